/**
 * Signs complete days of usage (decision 065), in short rounds: an account's requests of a day get a head, and all heads of the day together
 * the one that is signed. Requests are read by their end, and nothing of this touches a running one.
 */
import type { Kysely, Selectable } from 'kysely';
import type { Database } from '../database.ts';
import { addDayNotice } from '../repositories/notices.ts';
import { completeBefore } from '../reports/roll-ups.ts';
import { rowsOn } from '../schema/codec.ts';
import { accountHeadHash, dateOf, dayHeadHash, type DayHead } from './forms.ts';
import {
  countByDay,
  dayMs,
  entryBytes,
  hashOfRow,
  lateDays,
  pageRequests,
  rowsInNoHead,
  rowsOfDay,
  type SignedRow,
} from './leaves.ts';
import { hex, treeRoot } from './merkle.ts';

type Db = Kysely<Database>;

const accountsAtOnce = 200;
/** Whole pages. */
const rowsAtOnce = 16 * pageRequests;

export interface ClosingCursor {
  readonly day: number;
  /** The last account that is done. */
  readonly accountId: string;
  /** The next one, when its requests take several rounds. */
  readonly large?: LargeAccount | undefined;
}

interface LargeAccount {
  readonly account: Closed;
  readonly requests: number;
  readonly late: number;
  readonly cost: bigint;
  /** The last request that is in a page. */
  readonly last: Pick<SignedRow, 'ended_at' | 'request_id'>;
}

interface Closed {
  readonly id: string;
  readonly deleted_at: bigint | null;
}

/** `more`: call it again, with `next`. `unsigned`: all accounts have their heads, and the day's is to be signed. */
export type Closing =
  | { readonly state: 'done' | 'elsewhere' }
  | { readonly state: 'more'; readonly next: ClosingCursor }
  | { readonly state: 'unsigned'; readonly head: Pick<DayHead, 'date' | 'root' | 'previous'> };

/** Takes one step. The first day is the last complete one when this first runs; from then on there is a head for each day. */
export async function closeDay(
  db: Db,
  { now, after }: { readonly now: number; readonly after?: ClosingCursor | undefined },
): Promise<Closing> {
  const last = await lastDayHead(db);
  const complete = completeDays(now);
  const day = last === undefined ? complete - dayMs : Number(last.day) + dayMs;
  if (day >= complete) return { state: 'done' };
  const first = await db.selectFrom('day_head').select('day').orderBy('day').limit(1).executeTakeFirst();
  const from = first === undefined ? day : Math.max(Number(first.day), day - lateDays * dayMs);
  if (after?.day === day && after.large !== undefined) return await closeLarge(db, after, after.large, []);
  const done = after?.day === day ? after.accountId : await lastAccountWithHead(db, day);
  const accounts = await db
    .selectFrom('account')
    .select(['id', 'deleted_at'])
    .where('kind', '=', 0n)
    .where('id', '>', done)
    .orderBy('id')
    .limit(accountsAtOnce)
    .execute();
  const isClosing = await closeAccounts(db, { day, from, accounts });
  if (isClosing !== undefined) return isClosing;
  const lastAccount = accounts.at(-1);
  if (lastAccount !== undefined && accounts.length === accountsAtOnce)
    return { state: 'more', next: { day, accountId: lastAccount.id } };
  const heads = await db
    .selectFrom('usage_head')
    .select('hash')
    .where('day', '=', BigInt(day))
    .orderBy('hash')
    .execute();
  const previous = last === undefined ? null : hex(dayHeadHash(dayHeadOf(last)));
  return {
    state: 'unsigned',
    head: { date: dateOf(day), root: hex(treeRoot(heads.map((one) => one.hash))), previous },
  };
}

/** Days that begin before this time are complete, and will be signed. */
export const completeDays = (now: number): number => Math.floor(completeBefore(now) / dayMs) * dayMs;

/** Adds a signed head, and what announces it. Concurrent signers have signed the same root: the first one's signature stays, and is announced. */
export async function addDayHead(
  db: Db,
  { head, signature }: { readonly head: DayHead; readonly signature: string },
): Promise<void> {
  const signedAt = Number(head.signed_at);
  await db.transaction().execute(async (transaction) => {
    const { numInsertedOrUpdatedRows } = await transaction
      .insertInto('day_head')
      .values({
        day: Date.parse(head.date),
        root: bytesOf(head.root),
        previous: head.previous === null ? null : bytesOf(head.previous),
        key_id: head.key_id,
        signed_at: signedAt,
        signature: bytesOf(signature),
      })
      .onConflict((conflict) => conflict.column('day').doNothing())
      .executeTakeFirst();
    if (numInsertedOrUpdatedRows === 1n) await addDayNotice(rowsOn(transaction), { date: head.date, at: signedAt });
  });
}

export const dayHeadOf = (row: Selectable<Database['day_head']>): DayHead => ({
  date: dateOf(row.day),
  root: hex(row.root),
  previous: row.previous === null ? null : hex(row.previous),
  key_id: row.key_id,
  signed_at: String(row.signed_at),
});

export const lastDayHead = (db: Db) =>
  db.selectFrom('day_head').selectAll().orderBy('day', 'desc').limit(1).executeTakeFirst();

const bytesOf = (text: string): Uint8Array => Uint8Array.from(Buffer.from(text, 'hex'));

async function lastAccountWithHead(db: Db, day: number): Promise<string> {
  const row = await db
    .selectFrom('usage_head')
    .select((of) => of.fn.max('account_id').as('last'))
    .where('day', '=', BigInt(day))
    .executeTakeFirst();
  return row?.last ?? '';
}

/** What an account's head will have: `late` first. */
interface Part {
  readonly account: Closed;
  readonly own: number;
  readonly late: readonly SignedRow[];
}

/** Closes the accounts in order, until a round is long enough; undefined: all of them are done. */
async function closeAccounts(
  db: Db,
  { day, from, accounts }: { readonly day: number; readonly from: number; readonly accounts: readonly Closed[] },
): Promise<Closing | undefined> {
  const parts = await partsOf(db, { day, from, accounts });
  const batch: Part[] = [];
  let rows = 0;
  for (const part of parts) {
    const own = part.own + part.late.length;
    if (batch.length > 0 && rows + own > rowsAtOnce) break;
    if (own > rowsAtOnce) {
      await deletePages(db, day, part.account.id); // of a process that died
      const none = { ended_at: BigInt(day), request_id: new Uint8Array(0) };
      const large = { account: part.account, requests: 0, late: part.late.length, cost: 0n, last: none };
      return await closeLarge(db, { day, accountId: '' }, large, part.late);
    }
    batch.push(part);
    rows += own;
  }
  await closeSmall(db, day, batch);
  if (batch.length === parts.length) return undefined;
  return { state: 'more', next: { day, accountId: batch.at(-1)!.account.id } };
}

/** The accounts that have requests to sign. */
async function partsOf(
  db: Db,
  { day, from, accounts }: { readonly day: number; readonly from: number; readonly accounts: readonly Closed[] },
): Promise<readonly Part[]> {
  const ids = accounts.map(({ id }) => id);
  if (ids.length === 0) return [];
  const counts = new Map(
    (await countByDay(db, ids, from, day + dayMs)).map((row) => [`${row.account_id} ${row.day}`, Number(row.requests)]),
  );
  for (const head of await db
    .selectFrom('usage_head')
    .select(['account_id', 'day', 'requests', 'late'])
    .where('account_id', 'in', ids)
    .where('day', '>=', BigInt(from))
    .where('day', '<', BigInt(day))
    .execute()) {
    const name = `${head.account_id} ${head.day}`;
    counts.set(name, (counts.get(name) ?? 0) - Number(head.requests - head.late));
  }
  const parts: Part[] = [];
  for (const account of accounts) {
    const late: SignedRow[] = [];
    for (let earlier = from; earlier < day; earlier += dayMs)
      if ((counts.get(`${account.id} ${earlier}`) ?? 0) !== 0)
        late.push(...(await rowsInNoHead(db, { accountId: account.id, day: earlier, until: day })));
    const own = counts.get(`${account.id} ${day}`) ?? 0;
    if (own + late.length > 0) parts.push({ account, own, late });
  }
  return parts;
}

async function closeSmall(db: Db, day: number, parts: readonly Part[]): Promise<void> {
  if (parts.length === 0) return;
  const accountIds = parts.map(({ account }) => account.id);
  const rows = new Map<string, SignedRow[]>(parts.map(({ account, late }) => [account.id, [...late]]));
  for (const row of await rowsOfDay(db, accountIds, day).execute()) rows.get(row.account_id)!.push(row);
  const previous = await lastHashes(db, accountIds, day);
  const made = parts.map(({ account, late }) => {
    const all = rows.get(account.id)!;
    const pages = pagesOf(all, 0);
    const cost = all.reduce((sum, row) => sum + row.cost, 0n);
    return {
      account,
      pages,
      head: headOf({
        account,
        day,
        requests: all.length,
        late: late.length,
        cost,
        roots: pages.map((page) => page.root),
        previous: previous.get(account.id),
      }),
    };
  });
  await db.transaction().execute(async (transaction) => {
    // Erased accounts have no pages: their heads are valid without them.
    await insertPages(
      transaction,
      day,
      made.filter(({ account }) => account.deleted_at === null),
    );
    for (let at = 0; at < made.length; at += pagesAtOnce)
      await transaction
        .insertInto('usage_head')
        .values(made.slice(at, at + pagesAtOnce).map(({ head }) => head))
        .execute();
  });
}

/** Adds some pages of an account, with `late` in front, and its head after the last one. */
async function closeLarge(
  db: Db,
  { day, accountId }: ClosingCursor,
  { account, ...large }: LargeAccount,
  late: readonly SignedRow[],
): Promise<Closing> {
  // Whole pages, whatever is in front.
  const limit = rowsAtOnce + ((pageRequests - (late.length % pageRequests)) % pageRequests);
  const own = await rowsOfDay(db, [account.id], day)
    .where((is) => is(is.refTuple('ended_at', 'request_id'), '>', is.tuple(large.last.ended_at, large.last.request_id)))
    .limit(limit)
    .execute();
  const rows = [...late, ...own];
  const pages = pagesOf(rows, large.requests / pageRequests);
  const requests = large.requests + rows.length;
  const cost = rows.reduce((sum, row) => sum + row.cost, large.cost);
  if (own.length === limit) {
    await insertPages(db, day, [{ account, pages }]);
    const { ended_at, request_id } = own.at(-1)!;
    const last = { ended_at, request_id: Uint8Array.from(request_id) };
    return { state: 'more', next: { day, accountId, large: { account, requests, late: large.late, cost, last } } };
  }
  const stored = await db
    .selectFrom('usage_leaves')
    .select('root')
    .where('day', '=', BigInt(day))
    .where('account_id', '=', account.id)
    .orderBy('page')
    .execute();
  const roots = [...stored, ...pages].map((page) => page.root);
  const previous = (await lastHashes(db, [account.id], day)).get(account.id);
  await db.transaction().execute(async (transaction) => {
    await insertPages(transaction, day, [{ account, pages }]);
    await transaction
      .insertInto('usage_head')
      .values(headOf({ account, day, requests, late: large.late, cost, roots, previous }))
      .execute();
    if (account.deleted_at !== null) await deletePages(transaction, day, account.id);
  });
  return { state: 'more', next: { day, accountId: account.id } };
}

const deletePages = (db: Db, day: number, accountId: string) =>
  db.deleteFrom('usage_leaves').where('day', '=', BigInt(day)).where('account_id', '=', accountId).execute();

interface Page {
  readonly page: number;
  readonly root: Uint8Array;
  readonly leaves: Uint8Array;
}

function pagesOf(rows: readonly SignedRow[], first: number): readonly Page[] {
  const pages: Page[] = [];
  for (let at = 0; at < rows.length; at += pageRequests) {
    const some = rows.slice(at, at + pageRequests);
    const leaves = new Uint8Array(some.length * entryBytes);
    const hashes = some.map((row, index) => {
      const hash = hashOfRow(row);
      leaves.set(row.request_id, index * entryBytes);
      leaves.set(hash, index * entryBytes + 16);
      return hash;
    });
    pages.push({ page: first + pages.length, root: treeRoot(hashes), leaves });
  }
  return pages;
}

function headOf({
  account,
  day,
  requests,
  late,
  cost,
  roots,
  previous,
}: {
  readonly account: Closed;
  readonly day: number;
  readonly requests: number;
  readonly late: number;
  readonly cost: bigint;
  readonly roots: readonly Uint8Array[];
  readonly previous: Uint8Array | undefined;
}) {
  const root = treeRoot(roots);
  const hash = accountHeadHash({
    account_id: account.id,
    date: dateOf(day),
    requests: String(requests),
    late: String(late),
    cost: String(cost),
    root: hex(root),
    previous: previous === undefined ? null : hex(previous),
  });
  return { account_id: account.id, day, requests, late, cost, root, previous: previous ?? null, hash };
}

/** The hashes of the last heads of accounts before a day. */
async function lastHashes(
  db: Db,
  accountIds: readonly string[],
  day: number,
): Promise<ReadonlyMap<string, Uint8Array>> {
  const rows = await db
    .selectFrom('usage_head as head')
    .select(['account_id', 'hash'])
    .where('account_id', 'in', accountIds)
    .where('day', '=', (of) =>
      of
        .selectFrom('usage_head as earlier')
        .select((is) => is.fn.max('earlier.day').as('day'))
        .whereRef('earlier.account_id', '=', 'head.account_id')
        .where('earlier.day', '<', BigInt(day)),
    )
    .execute();
  return new Map(rows.map((row) => [row.account_id, row.hash]));
}

const pagesAtOnce = 500;

async function insertPages(
  db: Db,
  day: number,
  made: readonly { readonly account: Closed; readonly pages: readonly Page[] }[],
): Promise<void> {
  const rows = made.flatMap(({ account, pages }) => pages.map((page) => ({ day, account_id: account.id, ...page })));
  for (let at = 0; at < rows.length; at += pagesAtOnce)
    await db
      .insertInto('usage_leaves')
      .values(rows.slice(at, at + pagesAtOnce))
      .execute();
}
