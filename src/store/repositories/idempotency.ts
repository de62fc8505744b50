/** Requests with an `Idempotency-Key`, and their responses. */
import { sql, type Kysely } from 'kysely';
import type { Database } from '../database.ts';
import { rowBytes } from '../row-facts.ts';
import { StoreError } from '../store-error.ts';

type Db = Kysely<Database>;

/** The two bytes columns are hashes of 32 bytes. */
export interface RequestClaim {
  readonly accountId: string;
  readonly keyHash: Uint8Array;
  readonly fingerprint: Uint8Array;
  readonly requestId: Uint8Array;
  readonly publicId: string;
  /** The process that claims the request and will run it. */
  readonly owner: Uint8Array;
  readonly now: number;
  /** Claims from this time or earlier are expired. */
  readonly expiredAt: number;
}

export type Claimed =
  /** The caller may run it. */
  | { readonly outcome: 'claimed' }
  /** Another process runs it. */
  | { readonly outcome: 'running'; readonly publicId: string }
  /** It was answered and charged, by the model `modelId`; null: the answer is not kept. An earlier version stored it in clear text. */
  | {
      readonly outcome: 'answered';
      readonly publicId: string;
      readonly modelId: string;
      readonly answer: Uint8Array | null;
    }
  /** The key belongs to another request. */
  | { readonly outcome: 'other' };

const claimTriesMax = 10;

/**
 * Claims a key for a request, unless it belongs to one that was answered or is running. A claim whose process died, or could not release
 * it, is claimed anew: the ledger shows that it was not charged.
 */
export async function claimRequest(db: Db, claim: RequestClaim): Promise<Claimed> {
  const { accountId, keyHash, fingerprint, requestId, publicId, owner, now } = claim;
  const own = { fingerprint, request_id: requestId, public_id: publicId, owner, created_at: now, bytes: rowBytes };
  for (let tries = 0; tries < claimTriesMax; tries++) {
    const row = await db
      .selectFrom('idempotent_request')
      .where('account_id', '=', accountId)
      .where('key_hash', '=', keyHash)
      .selectAll()
      .executeTakeFirst();
    if (row === undefined) {
      const { numInsertedOrUpdatedRows } = await db
        .insertInto('idempotent_request')
        .values({ ...own, account_id: accountId, key_hash: keyHash, sealed_answer: null })
        .onConflict((conflict) => conflict.doNothing())
        .executeTakeFirst();
      if (numInsertedOrUpdatedRows === 1n) return { outcome: 'claimed' };
      continue;
    }
    if (Number(row.created_at) > claim.expiredAt) {
      if (!isSame(row.fingerprint, fingerprint)) return { outcome: 'other' };
      const charged = await chargeOf(db, row.request_id);
      if (charged?.ending === 'finished' || charged?.ending === 'credit') {
        return {
          outcome: 'answered',
          publicId: row.public_id,
          modelId: charged.model_id,
          answer: row.sealed_answer,
        };
      }
      // The caller would know a live claim from itself: this one was left behind by a failure.
      if (charged === undefined && !isSame(row.owner, owner) && (await isAlive(db, row.owner)))
        return { outcome: 'running', publicId: row.public_id };
    }
    const { numUpdatedRows } = await db
      .updateTable('idempotent_request')
      .set({ ...own, sealed_answer: null })
      .where('account_id', '=', accountId)
      .where('key_hash', '=', keyHash)
      // Only one of several concurrent callers succeeds.
      .where('request_id', '=', row.request_id)
      .executeTakeFirst();
    if (numUpdatedRows === 1n) return { outcome: 'claimed' };
  }
  throw new StoreError('busy', 'an idempotency key is claimed by too many at once');
}

type Owned = Pick<RequestClaim, 'accountId' | 'keyHash' | 'requestId'>;

/** Stores the encrypted answer. false: another process has claimed the key meanwhile. */
export async function keepAnswer(
  db: Db,
  { accountId, keyHash, requestId, answer }: Owned & { readonly answer: Uint8Array | null },
): Promise<boolean> {
  const { numUpdatedRows } = await db
    .updateTable('idempotent_request')
    .set({ sealed_answer: answer, bytes: rowBytes + (answer?.byteLength ?? 0) })
    .where('account_id', '=', accountId)
    .where('key_hash', '=', keyHash)
    .where('request_id', '=', requestId)
    .executeTakeFirst();
  return numUpdatedRows === 1n;
}

/** Frees the key of a request that ended without an answer. */
export async function leaveRequest(db: Db, { accountId, keyHash, requestId }: Owned): Promise<void> {
  await db
    .deleteFrom('idempotent_request')
    .where('account_id', '=', accountId)
    .where('key_hash', '=', keyHash)
    .where('request_id', '=', requestId)
    .execute();
}

/** Maximum rows in one write, which settlements have to wait for. */
const rowsAtOnce = 200;

/** Deletes expired rows, and the oldest rows beyond the limits of each of `accountIds` and of all. Returns how many were deleted. */
export async function tidyRequests(
  db: Db,
  request: {
    readonly expiredAt: number;
    readonly accountIds: readonly string[];
    readonly accountBytesMax: number;
    readonly bytesMax: number;
  },
): Promise<number> {
  let deleted = await deleteUntil(db, undefined, request.expiredAt);
  for (const accountId of request.accountIds) deleted += await trim(db, accountId, request.accountBytesMax);
  if (request.accountIds.length > 0) deleted += await trim(db, undefined, request.bytesMax);
  return deleted;
}

async function trim(db: Db, accountId: string | undefined, bytesMax: number): Promise<number> {
  let rows = db
    .selectFrom('idempotent_request')
    .select(['created_at', sql<bigint>`sum(bytes) over (order by created_at desc)`.as('total')]);
  if (accountId !== undefined) rows = rows.where('account_id', '=', accountId);
  const row = await db
    .selectFrom(rows.as('running'))
    .where('total', '>', BigInt(bytesMax))
    .select((of) => of.fn.max('created_at').as('cutoff'))
    .executeTakeFirst();
  if (row === undefined || row.cutoff === null) return 0;
  return await deleteUntil(db, accountId, Number(row.cutoff));
}

async function deleteUntil(db: Db, accountId: string | undefined, until: number): Promise<number> {
  let oldest = db
    .selectFrom('idempotent_request')
    .select(['account_id', 'key_hash'])
    .where('created_at', '<=', BigInt(until))
    .orderBy('created_at')
    .limit(rowsAtOnce);
  if (accountId !== undefined) oldest = oldest.where('account_id', '=', accountId);
  let deleted = 0;
  for (let last = rowsAtOnce; last === rowsAtOnce; deleted += last) {
    const { numDeletedRows } = await db
      .deleteFrom('idempotent_request')
      .where(({ eb, refTuple }) =>
        eb(refTuple('account_id', 'key_hash'), 'in', oldest.$asTuple('account_id', 'key_hash')),
      )
      .executeTakeFirst();
    last = Number(numDeletedRows);
  }
  return deleted;
}

async function chargeOf(db: Db, requestId: Uint8Array) {
  return await db
    .selectFrom('usage')
    .where('request_id', '=', requestId)
    .select(['ending', 'model_id'])
    .executeTakeFirst();
}

/** If one process owns the database there is no other. */
async function isAlive(db: Db, replicaId: Uint8Array): Promise<boolean> {
  return (await db.selectFrom('replica').where('id', '=', replicaId).select('id').executeTakeFirst()) !== undefined;
}

const isSame = (one: Uint8Array, other: Uint8Array): boolean => Buffer.compare(one, other) === 0;
