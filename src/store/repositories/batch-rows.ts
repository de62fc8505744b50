/**
 * Queries about batches. Processes divide the work by these statements alone: a row says which process has it, and a process that is no
 * longer a replica has nothing. It cannot charge any more either, so what it had may be taken (docs/decisions/057-batches.md).
 */
import { sql, type ExpressionBuilder, type Kysely, type SqlBool } from 'kysely';
import { isKeyOf } from '../reports/usage-sums.ts';
import type { Row, Rows } from '../schema/codec.ts';

type Db = Kysely<Rows>;

export type BatchRow = Omit<Row<'batch'>, 'owner'>;
export type BatchStatus = BatchRow['status'];

// Written out, because a partial index serves no parameter.
const isOpen = sql<SqlBool>`has_lines = 1`;

const columns = [
  'id',
  'accountId',
  'keyId',
  'wire',
  'endpoint',
  'inputFileId',
  'status',
  'createdAt',
  'expiresAt',
  'inProgressAt',
  'finalizingAt',
  'cancellingAt',
  'endedAt',
  'faults',
  'outputFileId',
  'errorFileId',
  'outputExpiresAfterMs',
  'metadata',
  'models',
  'requests',
  'completed',
  'errored',
  'cancelled',
  'expired',
  'hasLines',
] as const;

export type NewBatch = Pick<
  BatchRow,
  | 'id'
  | 'accountId'
  | 'keyId'
  | 'wire'
  | 'endpoint'
  | 'inputFileId'
  | 'createdAt'
  | 'expiresAt'
  | 'outputExpiresAfterMs'
  | 'metadata'
> & {
  /** How many lines it has, if that is known before they are read: of the batches of Anthropic's interface. Else 0. */
  readonly requests: number;
};

/**
 * Records a batch. `full`: the account has as many open batches as it may have; `no_file`: its file has been deleted. On PostgreSQL the file
 * is locked, so that it is deleted either before or not at all.
 */
export async function createBatch(
  db: Db,
  { batch, openMax }: { readonly batch: NewBatch; readonly openMax: number },
  locks = false,
): Promise<BatchRow | 'full' | 'no_file'> {
  return await db.transaction().execute(async (transaction) => {
    const file = transaction
      .selectFrom('file')
      .select('id')
      .where('id', '=', batch.inputFileId)
      .where('state', '=', 'ready');
    if ((await (locks ? file.forShare() : file).executeTakeFirst()) === undefined) return 'no_file';
    const { open } = await transaction
      .selectFrom('batch')
      .select(({ fn }) => fn.countAll<bigint>().as('open'))
      .where('accountId', '=', batch.accountId)
      .where(isOpen)
      .executeTakeFirstOrThrow();
    if (Number(open) >= openMax) return 'full';
    return await transaction
      .insertInto('batch')
      .values({
        ...batch,
        status: 'validating',
        completed: 0,
        errored: 0,
        cancelled: 0,
        expired: 0,
        hasLines: true,
      })
      .returning(columns)
      .executeTakeFirstOrThrow();
  });
}

interface OneBatch {
  readonly accountId: string;
  readonly id: string;
}

export const getBatch = async (db: Db, { accountId, id }: OneBatch): Promise<BatchRow | undefined> =>
  await db
    .selectFrom('batch')
    .select(columns)
    .where('accountId', '=', accountId)
    .where('id', '=', id)
    .executeTakeFirst();

export interface BatchListRequest {
  readonly accountId: string;
  /** Only those of this interface. */
  readonly wire?: BatchRow['wire'] | undefined;
  /** Exclusive: the page of older ones. */
  readonly after?: Pick<BatchRow, 'createdAt' | 'id'> | undefined;
  /** Exclusive: the page of the next newer ones. */
  readonly before?: Pick<BatchRow, 'createdAt' | 'id'> | undefined;
  /** Only those of keys of this user; null: of keys without a user. */
  readonly ownerId?: string | null;
  readonly limit: number;
}

/** Newest first. */
export async function listBatches(
  db: Db,
  { accountId, wire, after, before, ownerId, limit }: BatchListRequest,
): Promise<{ readonly batches: readonly BatchRow[]; readonly hasMore: boolean }> {
  const isBackward = before !== undefined;
  const direction = isBackward ? 'asc' : 'desc';
  let query = db
    .selectFrom('batch')
    .select(columns)
    .where('accountId', '=', accountId)
    .orderBy('createdAt', direction)
    .orderBy('id', direction)
    .limit(limit + 1);
  if (wire !== undefined) query = query.where('wire', '=', wire);
  if (ownerId !== undefined) query = query.where(isKeyOf(accountId, ownerId));
  const from = before ?? after;
  if (from !== undefined) {
    const beyond = isBackward ? ('>' as const) : ('<' as const);
    query = query.where(({ eb, and, or }) =>
      or([
        eb('createdAt', beyond, from.createdAt),
        and([eb('createdAt', '=', from.createdAt), eb('id', beyond, from.id)]),
      ]),
    );
  }
  const rows = await query.execute();
  const page = rows.slice(0, limit);
  return { batches: isBackward ? page.reverse() : page, hasMore: rows.length > limit };
}

/** What the lines of a batch have cost so far. `name`: its id as its client knows it. */
export async function batchCost(
  db: Db,
  request: { readonly accountId: string; readonly name: string },
): Promise<bigint> {
  const { microcents } = await db
    .selectFrom('usage')
    .select(sql<bigint>`cast(coalesce(sum(cost), 0) as bigint)`.as('microcents'))
    .where('accountId', '=', request.accountId)
    .where('batchId', '=', request.name)
    .executeTakeFirstOrThrow();
  return microcents;
}

/**
 * Stops it from the next line on, for the reasons in `faults` if its client has not asked for it; undefined: there is no such batch. One
 * that is over, or is about to be, stays as it is. `readsOn`: one whose lines are still read has all of them first, because its results
 * name each.
 */
export async function cancelBatch(
  db: Db,
  {
    accountId,
    id,
    at,
    readsOn = false,
    faults = null,
  }: OneBatch & { readonly at: number; readonly readsOn?: boolean; readonly faults?: BatchRow['faults'] },
): Promise<BatchRow | undefined> {
  const own = db.updateTable('batch').where('accountId', '=', accountId).where('id', '=', id);
  if (readsOn)
    await own.set({ cancellingAt: at }).where('status', '=', 'validating').where('cancellingAt', 'is', null).execute();
  await own
    .set({ status: 'cancelling', cancellingAt: at, owner: null, faults })
    .where('status', 'in', readsOn ? ['in_progress'] : ['validating', 'in_progress'])
    .execute();
  return await getBatch(db, { accountId, id });
}

/** Deletes a batch that is over, without its files. false: there is none. */
export async function deleteBatch(db: Db, { accountId, id }: OneBatch): Promise<boolean> {
  const { numDeletedRows } = await db
    .deleteFrom('batch')
    .where('accountId', '=', accountId)
    .where('id', '=', id)
    .where(sql<SqlBool>`has_lines = 0`)
    .executeTakeFirst();
  return numDeletedRows === 1n;
}

/** Those with work left, oldest first. */
export async function openBatches(
  db: Db,
  { limit, after }: { readonly limit: number; readonly after?: Pick<BatchRow, 'createdAt' | 'id'> | undefined },
): Promise<readonly BatchRow[]> {
  let query = db.selectFrom('batch').select(columns).where(isOpen).orderBy('createdAt').orderBy('id').limit(limit);
  if (after !== undefined)
    query = query.where((is) => is(is.refTuple('createdAt', 'id'), '>', is.tuple(after.createdAt, after.id)));
  return await query.execute();
}

/** Takes the work on a batch that only one process can do; false: another one has it, or its status is another. */
export async function ownBatch(
  db: Db,
  { id, status, owner }: { readonly id: string; readonly status: BatchStatus; readonly owner: Uint8Array },
): Promise<boolean> {
  const { numUpdatedRows } = await db
    .updateTable('batch')
    .set({ owner })
    .where('id', '=', id)
    .where('status', '=', status)
    // Its own: a process that could not leave it has not worked on it since.
    .where((is) => is.or([is('owner', 'is', null), is('owner', '=', owner), isDead(is, owner)]))
    .executeTakeFirst();
  return numUpdatedRows === 1n;
}

/** Matches rows of a process that is gone. If one process owns the database there is no other. */
export const isDead = (is: ExpressionBuilder<Rows, 'batch' | 'batch_line'>, self: Uint8Array) =>
  is.and([is('owner', '<>', self), is('owner', 'not in', is.selectFrom('replica').select('replica.id'))]);

export interface OwnedBatch {
  readonly id: string;
  readonly owner: Uint8Array;
}

/** Leaves the work to the process that comes first. */
export async function disownBatch(db: Db, { id, owner }: OwnedBatch): Promise<void> {
  await db.updateTable('batch').set({ owner: null }).where('id', '=', id).where('owner', '=', owner).execute();
}

/** Begins a validation anew, after a process that died in it. */
export async function restartValidation(db: Db, { id, owner }: OwnedBatch): Promise<void> {
  await db
    .updateTable('batch')
    .set({ requests: sql`case wire when 'openai' then 0 else requests end`, errored: 0 })
    .where('id', '=', id)
    .where('owner', '=', owner)
    .where('status', '=', 'validating')
    .execute();
}

/** Ends the validation: its lines may run, or nothing will. */
export async function endValidation(
  db: Db,
  {
    id,
    owner,
    at,
    outcome,
  }: OwnedBatch & {
    readonly at: number;
    readonly outcome: Pick<BatchRow, 'models'> | { readonly faults: NonNullable<BatchRow['faults']> };
  },
): Promise<void> {
  await db
    .updateTable('batch')
    .set(
      'faults' in outcome
        ? { status: 'failed', endedAt: at, requests: 0, owner: null, ...outcome }
        : {
            // Cancelled while its lines were read.
            status: sql<BatchStatus>`case when cancelling_at is null then 'in_progress' else 'cancelling' end`,
            inProgressAt: at,
            owner: null,
            ...outcome,
          },
    )
    .where('id', '=', id)
    .where('owner', '=', owner)
    .where('status', '=', 'validating')
    .execute();
}

/** No further lines begin: all have ended, or its time is over. */
export async function beginFinalizing(db: Db, { id, at }: { readonly id: string; readonly at: number }): Promise<void> {
  await db
    .updateTable('batch')
    .set({ status: 'finalizing', finalizingAt: at })
    .where('id', '=', id)
    .where('status', '=', 'in_progress')
    .where((is) => is.or([is('expiresAt', '<=', at), is(sql`completed + errored`, '>=', sql`requests`)]))
    .execute();
}

/** Notes which files will have the results; false: the batch does not belong to the process. */
export async function planOutput(
  db: Db,
  { id, owner, ...files }: OwnedBatch & Pick<BatchRow, 'outputFileId' | 'errorFileId'>,
): Promise<boolean> {
  const { numUpdatedRows } = await db
    .updateTable('batch')
    .set(files)
    .where('id', '=', id)
    .where('owner', '=', owner)
    .where('status', 'in', ['finalizing', 'cancelling'])
    .executeTakeFirst();
  return numUpdatedRows === 1n;
}

/** Ends a batch whose results are written. The lines that never ran count by the status. */
export async function endBatch(
  db: Db,
  {
    id,
    owner,
    status,
    at,
  }: OwnedBatch & { readonly status: 'completed' | 'expired' | 'cancelled'; readonly at: number },
): Promise<boolean> {
  const rest = sql<number>`requests - completed - errored`;
  const { numUpdatedRows } = await db
    .updateTable('batch')
    .set({ status, endedAt: at, owner: null, ...(status === 'completed' ? {} : { [status]: rest }) })
    .where('id', '=', id)
    .where('owner', '=', owner)
    .where('status', 'in', ['finalizing', 'cancelling'])
    .executeTakeFirst();
  return numUpdatedRows === 1n;
}

/** The batch's lines are deleted: nothing is left to do. */
export async function closeBatch(db: Db, { id }: { readonly id: string }): Promise<void> {
  await db
    .updateTable('batch')
    .set({ hasLines: false })
    .where('id', '=', id)
    .where('endedAt', 'is not', null)
    .execute();
}
