/**
 * Removes the usage rows that ended before the retention, a page at a time. One transaction adds a page's sums and deletes its rows, so
 * that rows and sums together are the same before and after it, even if the process dies; the next process continues.
 */
import { sql, SqliteAdapter, type Insertable, type Kysely } from 'kysely';
import { hourMs } from '../../platform/calendar/time-zone.ts';
import type { Database } from '../database.ts';
import { refundKey } from '../reports/reports.ts';
import { sumColumns, type SumColumn } from '../reports/usage-expressions.ts';
import { inMonthsOf } from '../reports/usage-months.ts';
import { StoreError } from '../store-error.ts';
import { retentionOf } from './retention.ts';

type Db = Kysely<Database>;

/** The last row that was checked. */
export interface RemovalCursor {
  /** If a later one is in force, everything is checked again. */
  readonly keptSince: number;
  readonly accountId: string;
  readonly endedAt: number;
  readonly requestId: Uint8Array;
}

export interface Removal {
  readonly removed: number;
  /** `more`: call it again, with `next`. `elsewhere`: another process is doing it. */
  readonly state: 'done' | 'more' | 'elsewhere';
  readonly next?: RemovalCursor | undefined;
}

/** Limits how long a settlement waits: some ten milliseconds of deleting. */
const rowsAtOnce = 500;
const accountsAtOnce = 200;

/**
 * Removes at most a few hundred rows, in one short transaction. Rows that are still needed stay: those of a refunded request (reports and
 * credit notes contain its model, key and labels), and those of an hour with money movements of the account (the list of its movements
 * splits the hour there).
 */
export async function removeUsage(
  db: Db,
  { after: last, now }: { readonly after?: RemovalCursor | undefined; readonly now: number },
): Promise<Removal> {
  const { keptSince, removedAt } = await retentionOf(db);
  const after = last?.keptSince === keptSince ? last : undefined;
  if (removedAt !== null) return { removed: 0, state: 'done' };
  const accounts = await db
    .selectFrom('account')
    .select('id')
    .where('id', '>=', after?.accountId ?? '')
    .orderBy('id')
    .limit(accountsAtOnce)
    .execute();
  for (const { id: accountId } of accounts) {
    const page = await pageOf(db, { accountId, keptSince, after: after?.accountId === accountId ? after : undefined });
    const row = page.at(-1);
    if (row === undefined) continue;
    const removed = await removePage(db, accountId, page);
    return {
      removed,
      state: 'more',
      next: { keptSince, accountId, endedAt: Number(row.ended_at), requestId: Uint8Array.from(row.request_id) },
    };
  }
  const account = accounts.at(-1);
  if (account !== undefined && accounts.length === accountsAtOnce)
    return {
      removed: 0,
      state: 'more',
      next: { keptSince, accountId: account.id, endedAt: keptSince, requestId: new Uint8Array(0) },
    };
  if (await removeLeaves(db, keptSince)) return { removed: 0, state: 'more', next: after };
  await db
    .updateTable('usage_retention')
    .set({ removed_at: now })
    .where('kept_since', '=', BigInt(keptSince))
    .execute();
  return { removed: 0, state: 'done' };
}

/** The hashes of removed requests prove nothing any more; the heads above them stay. true: there may be more. */
async function removeLeaves(db: Db, keptSince: number): Promise<boolean> {
  const pages = await db
    .selectFrom('usage_leaves')
    .select(['day', 'account_id', 'page'])
    .where('day', '<', BigInt(keptSince))
    .orderBy('day')
    .orderBy('account_id')
    .limit(rowsAtOnce)
    .execute();
  const last = pages.at(-1);
  if (last === undefined) return false;
  await db
    .deleteFrom('usage_leaves')
    .where('day', '<=', last.day)
    .where((is) => is(is.refTuple('day', 'account_id', 'page'), '<=', is.tuple(last.day, last.account_id, last.page)))
    .execute();
  return true;
}

async function pageOf(
  db: Db,
  {
    accountId,
    keptSince,
    after,
  }: { readonly accountId: string; readonly keptSince: number; readonly after: RemovalCursor | undefined },
) {
  let query = db
    .selectFrom('usage')
    .select(['request_id', 'started_at', 'ended_at', 'model_id', 'key_id', 'tags'])
    .select(['key_budget', 'account_budget', 'member_budget'])
    .select(['prompt_tokens', 'cached_tokens', 'completion_tokens', 'reasoning_tokens', 'cost', 'uncharged'])
    .where('account_id', '=', accountId)
    .where('ended_at', '<', BigInt(keptSince))
    .where(inMonthsOf(db, { to: keptSince }))
    .orderBy('ended_at')
    .orderBy('request_id')
    .limit(rowsAtOnce);
  if (after !== undefined) {
    const { endedAt, requestId } = after;
    query = query
      .where('ended_at', '>=', BigInt(endedAt))
      .where((is) => is(is.refTuple('ended_at', 'request_id'), '>', is.tuple(BigInt(endedAt), requestId)));
  }
  return await query.execute();
}

type RemovedRow = Awaited<ReturnType<typeof pageOf>>[number];

async function removePage(db: Db, accountId: string, page: readonly RemovedRow[]): Promise<number> {
  return await db.transaction().execute(async (transaction) => {
    const refunded = await refundedOf(transaction, page);
    const moved = await hoursWithMovements(transaction, accountId, page);
    const rows = page.filter((row) => !refunded.has(hexOf(row.request_id)) && !moved.has(hourOf(row.ended_at)));
    if (rows.length === 0) return 0;
    const ids = rows.map((row) => row.request_id).sort(Buffer.compare);
    const { numDeletedRows } = await transaction
      .deleteFrom('usage')
      .where('request_id', 'in', ids)
      // PostgreSQL searches only the partitions of these keys.
      .where('request_id', '>=', ids[0]!)
      .where('request_id', '<=', ids.at(-1)!)
      .executeTakeFirst();
    if (numDeletedRows !== BigInt(rows.length))
      throw new StoreError('conflict', 'rows of usage that were to be removed are gone');
    await transaction.insertInto('pruned_usage').values(sumsOf(accountId, rows)).execute();
    return rows.length;
  });
}

const hexOf = (id: Uint8Array): string => Buffer.from(id).toString('hex');
const hourOf = (at: bigint): bigint => at - (at % BigInt(hourMs));

async function refundedOf(db: Db, page: readonly RemovedRow[]): Promise<ReadonlySet<string>> {
  const keys = page.map((row) => `${refundKey}${hexOf(row.request_id)}`);
  const rows = await db.selectFrom('transfer').select('idempotency_key').where('idempotency_key', 'in', keys).execute();
  return new Set(rows.map((row) => row.idempotency_key.slice(refundKey.length)));
}

/** The hours of a page, ordered by time, that have money movements of the account. */
async function hoursWithMovements(
  db: Db,
  accountId: string,
  page: readonly RemovedRow[],
): Promise<ReadonlySet<bigint>> {
  const from = hourOf(page[0]!.ended_at);
  const to = hourOf(page.at(-1)!.ended_at) + BigInt(hourMs);
  const hours = new Set<bigint>();
  for (const side of ['debit_account', 'credit_account'] as const) {
    const rows = await db
      .selectFrom('transfer')
      .select(sql<bigint>`at - at % ${sql.lit(hourMs)}`.as('hour'))
      .distinct()
      .where(side, '=', accountId)
      .where('at', '>=', from)
      .where('at', '<', to)
      .execute();
    for (const { hour } of rows) hours.add(hour);
  }
  return hours;
}

const dayMs = 24n * BigInt(hourMs);

function sumsOf(accountId: string, rows: readonly RemovedRow[]): readonly Insertable<Database['pruned_usage']>[] {
  const groups = new Map<string, Insertable<Database['pruned_usage']> & Record<SumColumn, bigint>>();
  for (const row of rows) {
    const { model_id, key_id, tags, key_budget, account_budget, member_budget } = row;
    const day = row.started_at - (row.started_at % dayMs);
    const group = { model_id, key_id, tags, key_budget, account_budget, member_budget };
    const name = JSON.stringify([String(day), ...Object.values(group)]);
    const sums =
      groups.get(name) ??
      ({ id: row.request_id, account_id: accountId, day, ...group, ...nothing } as Insertable<
        Database['pruned_usage']
      > &
        Record<SumColumn, bigint>);
    for (const column of sumColumns) sums[column] += column === 'requests' ? 1n : row[column];
    groups.set(name, sums);
  }
  return [...groups.values()];
}

const nothing = Object.fromEntries(sumColumns.map((column) => [column, 0n])) as Record<SumColumn, bigint>;

/** About a megabyte. */
const pagesAtOnce = 256;

/** `later`: something else is in the way for now, such as a reader. */
export type FreedSpace = 'more' | 'later' | 'done';

/**
 * SQLite: returns a few of the file's free pages to the disk, in one short transaction; the file shrinks when the end of its log is
 * merged into it, which waits for readers.
 */
export async function freePages(db: Db): Promise<FreedSpace> {
  if (!(db.getExecutor().adapter instanceof SqliteAdapter)) return 'done';
  const free = async (): Promise<number> =>
    Number((await sql<{ readonly freelist_count: bigint }>`pragma freelist_count`.execute(db)).rows[0]!.freelist_count);
  const before = await free();
  if (before > 0)
    await db.transaction().execute(async (transaction) => {
      // Each step of the statement frees one page, so it is run page by page.
      for (let pages = 0; pages < Math.min(before, pagesAtOnce); pages++)
        await sql`pragma incremental_vacuum(1)`.execute(transaction);
    });
  const after = before === 0 ? 0 : await free();
  // A file created by other means may have no incremental vacuum: its free pages are reused.
  if (after > 0) return after < before ? 'more' : 'done';
  const { rows } = await sql<{
    readonly log: bigint;
    readonly checkpointed: bigint;
  }>`pragma wal_checkpoint(passive)`.execute(db);
  return rows[0]!.log === rows[0]!.checkpointed ? 'done' : 'later';
}
