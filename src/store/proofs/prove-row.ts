/** Proofs of single requests, and the heads that are published. */
import type { Kysely } from 'kysely';
import type { Database } from '../database.ts';
import { hourMs } from '../../platform/calendar/time-zone.ts';
import { dayHeadOf, lastDayHead } from './close-day.ts';
import { dateOf, shownUsage, type AccountHead, type DayHead, type ShownUsage } from './forms.ts';
import {
  dayMs,
  entriesOf,
  entryBytes,
  hashOf,
  hashOfRow,
  idOf,
  lateDays,
  pageRequests,
  rowsWithIds,
  type SignedRow,
} from './leaves.ts';
import { auditPath, hex, type PathStep } from './merkle.ts';
import { listSigningKeys, shownKey, type PublicKey } from './signing-keys.ts';

type Db = Kysely<Database>;

export type SignedHead = DayHead & { readonly signature: string };

/** All that somebody needs to check a request, in the order of the file. */
export interface Proof {
  readonly object: 'receipt_proof';
  readonly request: ShownUsage;
  readonly request_path: readonly PathStep[];
  readonly account_head: AccountHead;
  readonly account_path: readonly PathStep[];
  readonly day_head: SignedHead;
  readonly key: PublicKey;
}

/** `later`: from `at` on, ms since 1970. `never`: it is from before the first signed day, or its hashes are erased. */
export type Proving =
  | { readonly state: 'proved'; readonly proof: Proof }
  | { readonly state: 'later'; readonly at: number }
  | { readonly state: 'never' | 'changed' };

export async function proveUsage(
  db: Db,
  { accountId, requestId }: { readonly accountId: string; readonly requestId: Uint8Array },
): Promise<Proving> {
  const row = (await rowsWithIds(db, [requestId])).get(hex(requestId));
  if (row?.account_id !== accountId) return { state: 'never' };
  const own = Math.floor(Number(row.ended_at) / dayMs) * dayMs;
  const last = Number((await lastDayHead(db))?.day ?? own - dayMs);
  const signedAfter = (day: number): Proving => ({ state: 'later', at: day + dayMs + hourMs });
  if (own > last) return signedAfter(own);
  for (let day = own; day <= Math.min(last, own + lateDays * dayMs); day += dayMs) {
    const place = await placeOf(db, row, day, day === own);
    if (place !== undefined) return await proofOf(db, row, day, place);
  }
  const first = await db.selectFrom('day_head').select('day').orderBy('day').limit(1).executeTakeFirst();
  const isTooLate = own < Number(first?.day ?? 0) || last >= own + lateDays * dayMs;
  return isTooLate ? { state: 'never' } : signedAfter(last + dayMs);
}

interface Place {
  readonly page: number;
  readonly index: number;
  readonly leaves: Uint8Array;
}

/** Where the hash of a request is below an account's head of a day. */
async function placeOf(db: Db, row: SignedRow, day: number, isOwn: boolean): Promise<Place | undefined> {
  const head = await headOfAccount(db, row.account_id, day);
  if (head === undefined) return undefined;
  // In the order of their end, behind the late ones; those that are in a later head only make it seem further behind.
  const before = isOwn ? await countBefore(db, row, day) : -1;
  const guess = Number(head.late) + before;
  for (let page = Math.floor(Math.min(guess, Number(head.requests) - 1) / pageRequests); page >= 0; page--) {
    const leaves = await entriesOf(db, { day, accountId: row.account_id, page });
    if (leaves === undefined) return undefined;
    for (let index = 0; index * entryBytes < leaves.length; index++)
      if (Buffer.compare(idOf(leaves, index), row.request_id) === 0) return { page, index, leaves };
  }
  return undefined;
}

async function countBefore(db: Db, row: SignedRow, day: number): Promise<number> {
  const { before } = await db
    .selectFrom('usage')
    .where('account_id', '=', row.account_id)
    .where('ended_at', '>=', BigInt(day))
    .where((is) => is(is.refTuple('ended_at', 'request_id'), '<', is.tuple(row.ended_at, row.request_id)))
    .select((of) => of.fn.countAll<bigint>().as('before'))
    .executeTakeFirstOrThrow();
  return Number(before);
}

const headOfAccount = (db: Db, accountId: string, day: number) =>
  db
    .selectFrom('usage_head')
    .selectAll()
    .where('account_id', '=', accountId)
    .where('day', '=', BigInt(day))
    .executeTakeFirst();

async function proofOf(db: Db, row: SignedRow, day: number, { page, index, leaves }: Place): Promise<Proving> {
  const hashes = Array.from({ length: leaves.length / entryBytes }, (_, at) => hashOf(leaves, at));
  if (Buffer.compare(hashes[index]!, hashOfRow(row)) !== 0) return { state: 'changed' };
  const pages = await db
    .selectFrom('usage_leaves')
    .select('root')
    .where('day', '=', BigInt(day))
    .where('account_id', '=', row.account_id)
    .orderBy('page')
    .execute();
  const head = (await headOfAccount(db, row.account_id, day))!;
  const accounts = await db
    .selectFrom('usage_head')
    .select('hash')
    .where('day', '=', BigInt(day))
    .orderBy('hash')
    .execute();
  const all = accounts.map(({ hash }) => hash);
  const place = all.findIndex((hash) => Buffer.compare(hash, head.hash) === 0);
  const signed = (await getDayHead(db, { day }))!;
  const roots = pages.map(({ root }) => root);
  return {
    state: 'proved',
    proof: {
      object: 'receipt_proof',
      request: shownUsage(row.shown, row.others),
      request_path: [...auditPath(hashes, index), ...auditPath(roots, page)],
      account_head: {
        account_id: head.account_id,
        date: dateOf(day),
        requests: String(head.requests),
        late: String(head.late),
        cost: String(head.cost),
        root: hex(head.root),
        previous: head.previous === null ? null : hex(head.previous),
      },
      account_path: auditPath(all, place),
      day_head: signed,
      key: shownKey((await listSigningKeys(db)).find(({ id }) => id === signed.key_id)!),
    },
  };
}

/** `day`: its start in UTC, ms since 1970. */
export async function getDayHead(db: Db, { day }: { readonly day: number }): Promise<SignedHead | undefined> {
  const row = await db.selectFrom('day_head').selectAll().where('day', '=', BigInt(day)).executeTakeFirst();
  return row === undefined ? undefined : { ...dayHeadOf(row), signature: hex(row.signature) };
}

/** Newest first. */
export async function listDayHeads(
  db: Db,
  { before, limit }: { readonly before?: number | undefined; readonly limit: number },
): Promise<readonly SignedHead[]> {
  let query = db.selectFrom('day_head').selectAll().orderBy('day', 'desc').limit(limit);
  if (before !== undefined) query = query.where('day', '<', BigInt(before));
  return (await query.execute()).map((row) => ({ ...dayHeadOf(row), signature: hex(row.signature) }));
}
