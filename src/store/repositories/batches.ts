/**
 * Queries about batches. Processes divide the work by these statements alone: a row says which process has it, and a process that is no
 * longer a replica has nothing. It cannot charge any more either, so what it had may be taken (docs/decisions/057-batches.md).
 */
import { sql, type ExpressionBuilder, type Kysely, type SqlBool } from 'kysely';
import type { Row, Rows } from '../schema/codec.ts';

type Db = Kysely<Rows>;

export type BatchRow = Omit<Row<'batch'>, 'owner'>;
export type BatchStatus = BatchRow['status'];

/** Statuses in which nothing happens to a batch any more. */
export type EndedStatus = Extract<BatchStatus, 'failed' | 'completed' | 'expired' | 'cancelled'>;

// Written out, because a partial index serves no parameter.
const isOpen = sql<SqlBool>`has_lines = 1`;
const isWaiting = sql<SqlBool>`state = 'waiting'`;
const isRunning = sql<SqlBool>`state = 'running'`;

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
>;

/** undefined: the account has as many open batches as it may have. */
export async function createBatch(
  db: Db,
  { batch, openMax }: { readonly batch: NewBatch; readonly openMax: number },
): Promise<BatchRow | undefined> {
  const { open } = await db
    .selectFrom('batch')
    .select(({ fn }) => fn.countAll<bigint>().as('open'))
    .where('accountId', '=', batch.accountId)
    .where(isOpen)
    .executeTakeFirstOrThrow();
  if (Number(open) >= openMax) return undefined;
  return await db
    .insertInto('batch')
    .values({
      ...batch,
      status: 'validating',
      requests: 0,
      completed: 0,
      errored: 0,
      cancelled: 0,
      expired: 0,
      hasLines: true,
    })
    .returning(columns)
    .executeTakeFirstOrThrow();
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
  readonly limit: number;
}

/** Newest first. */
export async function listBatches(
  db: Db,
  { accountId, wire, after, before, limit }: BatchListRequest,
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

/** Stops it from the next line on; undefined: there is no such batch. One that is over, or is about to be, stays as it is. */
export async function cancelBatch(
  db: Db,
  { accountId, id, at }: OneBatch & { readonly at: number },
): Promise<BatchRow | undefined> {
  await db
    .updateTable('batch')
    .set({ status: 'cancelling', cancellingAt: at, owner: null })
    .where('accountId', '=', accountId)
    .where('id', '=', id)
    .where('status', 'in', ['validating', 'in_progress'])
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
export const openBatches = async (db: Db, { limit }: { readonly limit: number }): Promise<readonly BatchRow[]> =>
  await db
    .selectFrom('batch')
    .select(columns)
    .where(isOpen)
    .orderBy('createdAt')
    .orderBy('id')
    .limit(limit)
    .execute();

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
    .where((is) => is.or([is('owner', 'is', null), isDead(is, owner)]))
    .executeTakeFirst();
  return numUpdatedRows === 1n;
}

/** Matches rows of a process that is gone. If one process owns the database there is no other. */
const isDead = (is: ExpressionBuilder<Rows, 'batch' | 'batch_line'>, self: Uint8Array) =>
  is.and([is('owner', '<>', self), is('owner', 'not in', is.selectFrom('replica').select('replica.id'))]);

interface Owned {
  readonly id: string;
  readonly owner: Uint8Array;
}

/** Leaves the work to whoever comes first. */
export async function disownBatch(db: Db, { id, owner }: Owned): Promise<void> {
  await db.updateTable('batch').set({ owner: null }).where('id', '=', id).where('owner', '=', owner).execute();
}

export type NewLine = Pick<Row<'batch_line'>, 'line' | 'customId' | 'modelId' | 'offsetBytes' | 'bytes'>;

/** Adds lines of a batch that is being validated; false: it is not, or not by this process. */
export async function addBatchLines(
  db: Db,
  { id, owner, lines }: Owned & { readonly lines: readonly NewLine[] },
): Promise<boolean> {
  return await db.transaction().execute(async (transaction) => {
    // Locks the row: lines never come after a cancellation.
    const { numUpdatedRows } = await transaction
      .updateTable('batch')
      .set((is) => ({ requests: is('requests', '+', lines.length) }))
      .where('id', '=', id)
      .where('owner', '=', owner)
      .where('status', '=', 'validating')
      .executeTakeFirst();
    if (numUpdatedRows !== 1n) return false;
    const rows = lines.map((line) => ({ ...line, batchId: id, state: 'waiting' as const, tries: 0, notBefore: 0 }));
    await transaction.insertInto('batch_line').values(rows).execute();
    return true;
  });
}

/** Deletes some of its lines; false: there are none left. */
export async function removeBatchLines(
  db: Db,
  { id, limit }: { readonly id: string; readonly limit: number },
): Promise<boolean> {
  const some = db.selectFrom('batch_line').select('line').where('batchId', '=', id).orderBy('line').limit(limit);
  const { numDeletedRows } = await db
    .deleteFrom('batch_line')
    .where('batchId', '=', id)
    .where('line', 'in', some)
    .executeTakeFirst();
  return Number(numDeletedRows) === limit;
}

/** Begins a validation anew, after a process that died in it. */
export async function restartValidation(db: Db, { id, owner }: Owned): Promise<void> {
  await db
    .updateTable('batch')
    .set({ requests: 0 })
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
  }: Owned & {
    readonly at: number;
    readonly outcome: Pick<BatchRow, 'models'> | { readonly faults: NonNullable<BatchRow['faults']> };
  },
): Promise<void> {
  await db
    .updateTable('batch')
    .set(
      'faults' in outcome
        ? { status: 'failed', endedAt: at, requests: 0, owner: null, ...outcome }
        : { status: 'in_progress', inProgressAt: at, owner: null, ...outcome },
    )
    .where('id', '=', id)
    .where('owner', '=', owner)
    .where('status', '=', 'validating')
    .execute();
}

/** A line to run. */
export type ClaimedLine = Pick<Row<'batch_line'>, 'batchId' | 'line' | 'customId' | 'offsetBytes' | 'bytes' | 'tries'>;

/**
 * Takes lines that wait, in their order. On PostgreSQL replicas skip what others are about to take; the second `state` is the condition
 * under which a row that was waited for is still free. A batch that is cancelled at this moment may still have some taken: whoever has them
 * sees it when it looks next, and the batch ends after them.
 */
export async function claimBatchLines(
  db: Db,
  request: {
    readonly id: string;
    readonly modelId: string;
    readonly owner: Uint8Array;
    readonly now: number;
    readonly limit: number;
  },
  skipsLocked = false,
): Promise<readonly ClaimedLine[]> {
  const { id, modelId, owner, now, limit } = request;
  let waiting = db
    .selectFrom('batch_line')
    .select('line')
    .where('batchId', '=', id)
    .where('modelId', '=', modelId)
    .where(isWaiting)
    .where('notBefore', '<=', now)
    .orderBy('line')
    .limit(limit);
  if (skipsLocked) waiting = waiting.forUpdate().skipLocked();
  const claimed = await db
    .updateTable('batch_line')
    .set({ state: 'running', owner, requestId: null, result: null })
    .where('batchId', '=', id)
    .where('line', 'in', waiting)
    .where(isWaiting)
    .where((is) =>
      is.exists(is.selectFrom('batch').select('id').where('id', '=', id).where('status', '=', 'in_progress')),
    )
    .returning(['batchId', 'line', 'customId', 'offsetBytes', 'bytes', 'tries'])
    .execute();
  return claimed.toSorted((a, b) => a.line - b.line);
}

interface OneLine {
  readonly batchId: string;
  readonly line: number;
  /** Of the claim. */
  readonly owner: Uint8Array;
}

export interface LineAnswer extends OneLine {
  readonly requestId: Uint8Array;
  readonly result: string;
}

/**
 * Stores answers before they are charged: a line whose request is in the ledger has its result. Returns for each whether its line still
 * belongs to its owner; if not, it must not be charged.
 */
export async function keepLineAnswers(
  db: Db,
  { answers }: { readonly answers: readonly LineAnswer[] },
): Promise<readonly boolean[]> {
  return await db.transaction().execute(async (transaction) => {
    const kept: boolean[] = [];
    for (const { requestId, result, ...line } of answers)
      kept.push((await changeLine(transaction, line, { requestId, result })) === 1);
    return kept;
  });
}

export type LineEnding = OneLine &
  (
    | { readonly state: 'completed' }
    /** It will not run again. */
    | { readonly state: 'errored'; readonly result: string }
    /** It runs again, not before that time. */
    | { readonly state: 'waiting'; readonly tries: number; readonly notBefore: number }
  );

/** Ends runs of lines, and counts them in their batches. Lines that no longer belong to their owner stay as they are. */
export async function endLines(db: Db, { endings }: { readonly endings: readonly LineEnding[] }): Promise<void> {
  await db.transaction().execute(async (transaction) => {
    const counts = new Map<string, { completed: number; errored: number }>();
    // In one order, because replicas that end lines of one batch would otherwise wait for each other.
    for (const ending of endings.toSorted(inOrder)) {
      const { batchId, line, owner, ...changes } = ending;
      const free = ending.state === 'waiting' ? { owner: null, requestId: null, result: null } : {};
      const changed = await changeLine(transaction, { batchId, line, owner }, { ...changes, ...free });
      if (ending.state === 'waiting') continue;
      const count = counts.get(batchId) ?? { completed: 0, errored: 0 };
      count[ending.state] += changed;
      counts.set(batchId, count);
    }
    for (const [id, count] of counts) await addCounts(transaction, id, count);
  });
}

const inOrder = (one: OneLine, other: OneLine): number =>
  one.batchId === other.batchId ? one.line - other.line : one.batchId < other.batchId ? -1 : 1;

async function changeLine(
  transaction: Db,
  { batchId, line, owner }: OneLine,
  changes: Partial<Omit<Row<'batch_line'>, 'batchId' | 'line'>>,
): Promise<number> {
  const { numUpdatedRows } = await transaction
    .updateTable('batch_line')
    .set(changes)
    .where('batchId', '=', batchId)
    .where('line', '=', line)
    .where('owner', '=', owner)
    .where(isRunning)
    .executeTakeFirst();
  return Number(numUpdatedRows);
}

async function addCounts(
  transaction: Db,
  id: string,
  { completed, errored }: { readonly completed: number; readonly errored: number },
): Promise<void> {
  if (completed + errored === 0) return;
  await transaction
    .updateTable('batch')
    .set((is) => ({ completed: is('completed', '+', completed), errored: is('errored', '+', errored) }))
    .where('id', '=', id)
    .execute();
}

const recoveredAtOnce = 500;

/**
 * Ends the runs of processes that are gone. What the ledger has charged is complete; all else runs again. Returns how many lines still
 * run, at living processes. The two looks are two statements: a process that is gone before the first charges nothing after it.
 */
export async function recoverLines(
  db: Db,
  { id, self }: { readonly id: string; readonly self: Uint8Array },
): Promise<number> {
  for (;;) {
    const dead = await db
      .selectFrom('batch_line')
      .select(['line', 'owner', 'requestId'])
      .where('batchId', '=', id)
      .where(isRunning)
      .where((is) => isDead(is, self))
      .orderBy('line')
      .limit(recoveredAtOnce)
      .execute();
    if (dead.length === 0) break;
    const ids = dead.flatMap(({ requestId }) => (requestId === null ? [] : [requestId]));
    const charged =
      ids.length === 0
        ? []
        : await db
            .selectFrom('usage')
            .select('requestId')
            .where('requestId', 'in', ids)
            .where('ending', 'in', ['finished', 'credit'])
            .execute();
    const isCharged = new Set(charged.map(({ requestId }) => nameOf(requestId)));
    await endLines(db, {
      endings: dead.map(({ line, owner, requestId }) => ({
        batchId: id,
        line,
        owner: owner!,
        ...(requestId !== null && isCharged.has(nameOf(requestId))
          ? { state: 'completed' as const }
          : { state: 'waiting' as const, tries: 0, notBefore: 0 }),
      })),
    });
    if (dead.length < recoveredAtOnce) break;
  }
  const { running } = await db
    .selectFrom('batch_line')
    .select(({ fn }) => fn.countAll<bigint>().as('running'))
    .where('batchId', '=', id)
    .where(isRunning)
    .executeTakeFirstOrThrow();
  return Number(running);
}

const nameOf = (id: Uint8Array): string =>
  Buffer.from(id.buffer, id.byteOffset, id.byteLength).toString('latin1');

/** No further lines begin: all have ended, or its time is over. */
export async function beginFinalizing(db: Db, { id, at }: { readonly id: string; readonly at: number }): Promise<void> {
  await db
    .updateTable('batch')
    .set({ status: 'finalizing', finalizingAt: at })
    .where('id', '=', id)
    .where('status', '=', 'in_progress')
    .where((is) =>
      is.or([is('expiresAt', '<=', at), is(sql`completed + errored`, '>=', sql`requests`)]),
    )
    .execute();
}

/** Notes which files will have the results; false: the batch does not belong to the process. */
export async function planOutput(
  db: Db,
  { id, owner, ...files }: Owned & Pick<BatchRow, 'outputFileId' | 'errorFileId'>,
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

export type LineResult = Pick<Row<'batch_line'>, 'line' | 'customId' | 'state' | 'result'>;

/** A page of lines in their order: those with an answer, the others, or both. */
export async function listLineResults(
  db: Db,
  request: {
    readonly id: string;
    readonly which: 'completed' | 'others' | 'all';
    readonly after: number;
    readonly limit: number;
  },
): Promise<readonly LineResult[]> {
  const lines = db
    .selectFrom('batch_line')
    .select(['line', 'customId', 'state', 'result'])
    .where('batchId', '=', request.id)
    .where('line', '>', request.after)
    .orderBy('line')
    .limit(request.limit);
  if (request.which === 'all') return await lines.execute();
  return await lines.where('state', request.which === 'completed' ? '=' : '<>', 'completed').execute();
}

/** Ends a batch whose results are written. The lines that never ran count by the status. */
export async function endBatch(
  db: Db,
  { id, owner, status, at }: Owned & { readonly status: 'completed' | 'expired' | 'cancelled'; readonly at: number },
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

/** An open batch that reads this file, if any: as long as there is one, the file stays. */
export async function readerOfFile(db: Db, { fileId }: { readonly fileId: string }): Promise<string | undefined> {
  const row = await db
    .selectFrom('batch')
    .select('id')
    .where('inputFileId', '=', fileId)
    .where(isOpen)
    .where('endedAt', 'is', null)
    .executeTakeFirst();
  return row?.id;
}
