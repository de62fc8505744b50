/** The hashes that are stored below an account's head, a page of 256 at a time: full pages are subtrees of its tree. */
import { PostgresAdapter, sql, type Kysely } from 'kysely';
import type { Database } from '../database.ts';
import { hourMs } from '../../platform/calendar/time-zone.ts';
import { inMonthsOf } from '../reports/usage-months.ts';
import { textOfColumns, textOfGiven } from '../copy/row-text.ts';
import { laterColumns, otherColumns, shownColumns, storedUsageHash } from './forms.ts';
import { hex } from './merkle.ts';

type Db = Kysely<Database>;

/** A power of two. */
export const pageRequests = 256;
/** A request's id, and its hash. */
export const entryBytes = 48;
/** A request that was recorded after its day was signed is signed with the next day, if it ended within these days before it. */
export const lateDays = 7;

export const dayMs = 24 * hourMs;

/** The id of the request at a place of a page. */
export const idOf = (leaves: Uint8Array, index: number): Uint8Array =>
  leaves.slice(index * entryBytes, index * entryBytes + 16);

export const hashOf = (leaves: Uint8Array, index: number): Uint8Array =>
  leaves.slice(index * entryBytes + 16, (index + 1) * entryBytes);

/** The entries of a page; undefined if there is none. */
export async function entriesOf(
  db: Db,
  { day, accountId, page }: { readonly day: number; readonly accountId: string; readonly page: number },
): Promise<Uint8Array | undefined> {
  const row = await db
    .selectFrom('usage_leaves')
    .select('leaves')
    .where('day', '=', BigInt(day))
    .where('account_id', '=', accountId)
    .where('page', '=', BigInt(page))
    .executeTakeFirst();
  return row?.leaves;
}

/** A request with what is hashed of it. */
export interface SignedRow {
  readonly request_id: Uint8Array;
  readonly account_id: string;
  readonly ended_at: bigint;
  readonly cost: bigint;
  readonly shown: string;
  readonly others: string;
}

export const hashOfRow = ({ shown, others }: SignedRow): Uint8Array => storedUsageHash(shown, others);

/** Selects requests as they are signed. */
export function signedRows(db: Db) {
  const dialect = db.getExecutor().adapter instanceof PostgresAdapter ? 'postgres' : 'sqlite';
  return db
    .selectFrom('usage')
    .select(['request_id', 'account_id', 'ended_at', 'cost'])
    .select(textOfColumns('usage', shownColumns, dialect).as('shown'))
    .select(
      sql<string>`${textOfColumns('usage', otherColumns, dialect)} || ${textOfGiven('usage', laterColumns, dialect)}`.as(
        'others',
      ),
    );
}

/** The requests of accounts that ended on a day, by account and end. */
export const rowsOfDay = (db: Db, accountIds: readonly string[], day: number) =>
  signedRows(db)
    .where('account_id', 'in', accountIds)
    .where('ended_at', '>=', BigInt(day))
    .where('ended_at', '<', BigInt(day + dayMs))
    .where(inMonthsOf(db, { from: day, to: day + dayMs }))
    .orderBy('account_id')
    .orderBy('ended_at')
    .orderBy('request_id');

/** Requests with these ids, by the hex of the id. */
export async function rowsWithIds(db: Db, ids: readonly Uint8Array[]): Promise<ReadonlyMap<string, SignedRow>> {
  if (ids.length === 0) return new Map();
  const sorted = [...ids].sort(Buffer.compare);
  const rows = await signedRows(db)
    .where('request_id', 'in', sorted)
    // PostgreSQL reads only the partitions of these keys.
    .where('request_id', '>=', sorted[0]!)
    .where('request_id', '<=', sorted.at(-1)!)
    .execute();
  return new Map(rows.map((row) => [hex(row.request_id), row]));
}

/** The number of requests of accounts by the day of their end. */
export function countByDay(db: Db, accountIds: readonly string[], from: number, to: number) {
  const day = sql<bigint>`ended_at - ended_at % ${sql.lit(dayMs)}`;
  return db
    .selectFrom('usage')
    .where('account_id', 'in', accountIds)
    .where('ended_at', '>=', BigInt(from))
    .where('ended_at', '<', BigInt(to))
    .where(inMonthsOf(db, { from, to }))
    .select(['account_id', day.as('day')])
    .select((of) => of.fn.countAll<bigint>().as('requests'))
    .groupBy(['account_id', day])
    .execute();
}

/**
 * The requests of an account that ended on a signed day and are in no head from before `until`. They are in the head of their day, or first
 * in a later one. Reads all of that day: for the rare account whose numbers of requests differ.
 */
export async function rowsInNoHead(
  db: Db,
  { accountId, day, until }: { readonly accountId: string; readonly day: number; readonly until: number },
): Promise<readonly SignedRow[]> {
  const heads = await db
    .selectFrom('usage_head')
    .select(['day', 'requests', 'late'])
    .where('account_id', '=', accountId)
    .where('day', '>=', BigInt(day))
    .where('day', '<', BigInt(until))
    .execute();
  const known = new Set<string>();
  for (const head of heads) {
    const entries = head.day === BigInt(day) ? head.requests : head.late;
    const pages = Math.ceil(Number(entries) / pageRequests);
    for (let page = 0; page < pages; page++) {
      const leaves = await entriesOf(db, { day: Number(head.day), accountId, page });
      // Erased: whatever is there was signed, or cannot be told apart from it.
      if (leaves === undefined) return [];
      for (let index = 0; index * entryBytes < leaves.length; index++) known.add(hex(idOf(leaves, index)));
    }
  }
  const rows = await rowsOfDay(db, [accountId], day).execute();
  return rows.filter((row) => !known.has(hex(row.request_id)));
}
