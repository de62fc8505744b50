/** Response items that later requests of the same account may reference by id. */
import { sql, type Kysely } from 'kysely';
import type { Database } from '../database.ts';

type Db = Kysely<Database>;

export interface KeptItem {
  readonly accountId: string;
  readonly id: string;
  readonly keptAt: number;
  /** JSON. */
  readonly body: string;
}

/** Stores all or none of them. Items whose id already exists stay unchanged. */
export async function keepItems(db: Db, request: { readonly items: readonly KeptItem[] }): Promise<void> {
  await db.transaction().execute(async (transaction) => {
    for (const { accountId, id, keptAt, body } of request.items) {
      await transaction
        .insertInto('kept_item')
        .values({ account_id: accountId, id, kept_at: keptAt, bytes: Buffer.byteLength(body), body })
        .onConflict((conflict) => conflict.doNothing())
        .execute();
    }
  });
}

/** Databases differ in their maximum parameters per statement; no known one is below this. */
const idsAtOnce = 500;

/** The existing bodies by id; 'too-large' if they total more than `bytesMax` bytes. */
export async function findKeptItems(
  db: Db,
  request: {
    readonly accountId: string;
    readonly ids: readonly string[];
    readonly keptAfter: number;
    readonly bytesMax: number;
  },
): Promise<readonly (readonly [id: string, body: string])[] | 'too-large'> {
  const { accountId, ids, keptAfter, bytesMax } = request;
  const chosen = (chunk: readonly string[]) =>
    db
      .selectFrom('kept_item')
      .where('account_id', '=', accountId)
      .where('id', 'in', chunk)
      .where('kept_at', '>', BigInt(keptAfter));
  const chunks = Array.from({ length: Math.ceil(ids.length / idsAtOnce) }, (_, index) =>
    ids.slice(index * idsAtOnce, (index + 1) * idsAtOnce),
  );
  let bytes = 0;
  for (const chunk of chunks) {
    const row = await chosen(chunk)
      .select((of) => of.fn.sum<bigint | null>('bytes').as('bytes'))
      .executeTakeFirst();
    bytes += Number(row?.bytes ?? 0n);
  }
  if (bytes > bytesMax) return 'too-large';
  const found: (readonly [string, string])[] = [];
  for (const chunk of chunks) {
    for (const { id, body } of await chosen(chunk).select(['id', 'body']).execute()) found.push([id, body]);
  }
  return found;
}

/** Maximum rows in one write, which settlements have to wait for. */
const rowsAtOnce = 500;

/**
 * Deletes items from before a time, and the oldest items of each of `accountIds` beyond its limit. Deletes a bounded number of rows per
 * call; the next call continues. Returns how many were deleted.
 */
export async function tidyKeptItems(
  db: Db,
  request: {
    readonly keptBefore: number;
    readonly accountIds: readonly string[];
    readonly accountBytesMax: number;
    readonly rowsMax: number;
  },
): Promise<number> {
  let deleted = 0;
  for (let last = rowsAtOnce; last === rowsAtOnce && deleted < request.rowsMax; deleted += last) {
    last = await deleteOldest(db, undefined, request.keptBefore);
  }
  for (const accountId of request.accountIds) {
    const cutoff = await cutoffOf(db, accountId, request.accountBytesMax);
    if (cutoff === undefined) continue;
    for (let last = rowsAtOnce; last === rowsAtOnce; deleted += last) last = await deleteOldest(db, accountId, cutoff);
  }
  return deleted;
}

/** Deletes all items of an account. */
export async function deleteKeptItems(db: Db, request: { readonly accountId: string }): Promise<number> {
  let deleted = 0;
  for (let last = rowsAtOnce; last === rowsAtOnce; deleted += last) {
    last = await deleteOldest(db, request.accountId, Number.MAX_SAFE_INTEGER);
  }
  return deleted;
}

async function deleteOldest(db: Db, accountId: string | undefined, keptBefore: number): Promise<number> {
  let oldest = db
    .selectFrom('kept_item')
    .select(['account_id', 'id'])
    .where('kept_at', '<=', BigInt(keptBefore))
    .orderBy('kept_at')
    .limit(rowsAtOnce);
  if (accountId !== undefined) oldest = oldest.where('account_id', '=', accountId);
  const { numDeletedRows } = await db
    .deleteFrom('kept_item')
    .where(({ eb, refTuple }) => eb(refTuple('account_id', 'id'), 'in', oldest.$asTuple('account_id', 'id')))
    .executeTakeFirst();
  return Number(numDeletedRows);
}

/** The time of the newest item that no longer fits within the limit. */
async function cutoffOf(db: Db, accountId: string, bytesMax: number): Promise<number | undefined> {
  const row = await db
    .selectFrom(
      db
        .selectFrom('kept_item')
        .where('account_id', '=', accountId)
        .select(['kept_at', sql<bigint>`sum(bytes) over (order by kept_at desc)`.as('total')])
        .as('running'),
    )
    .where('total', '>', BigInt(bytesMax))
    .select((of) => of.fn.max('kept_at').as('cutoff'))
    .executeTakeFirst();
  return row === undefined || row.cutoff === null ? undefined : Number(row.cutoff);
}
