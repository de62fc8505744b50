/** Queries about the lines of batches. A line belongs to the process that claimed it as long as that is a replica. */
import { sql, type Kysely, type SqlBool } from 'kysely';
import type { Row, Rows } from '../schema/codec.ts';
import { isDead, type OwnedBatch } from './batch-rows.ts';

type Db = Kysely<Rows>;

// Written out, because a partial index serves no parameter.
const isWaiting = sql<SqlBool>`state = 'waiting'`;
const isRunning = sql<SqlBool>`state = 'running'`;

/** One with a result never runs. */
export type NewLine = Pick<Row<'batch_line'>, 'line' | 'customId' | 'modelId' | 'offsetBytes' | 'bytes' | 'result'>;

/** Adds lines of a batch that is being validated; false: it is not, or not by this process. */
export async function addBatchLines(
  db: Db,
  { id, owner, lines }: OwnedBatch & { readonly lines: readonly NewLine[] },
): Promise<boolean> {
  return await db.transaction().execute(async (transaction) => {
    // Locks the row: lines never come after a cancellation.
    const { numUpdatedRows } = await transaction
      .updateTable('batch')
      .set((is) => ({
        requests: sql`case wire when 'openai' then requests + ${lines.length} else requests end`,
        errored: is('errored', '+', lines.filter(({ result }) => result !== null).length),
      }))
      .where('id', '=', id)
      .where('owner', '=', owner)
      .where('status', '=', 'validating')
      .executeTakeFirst();
    if (numUpdatedRows !== 1n) return false;
    const rows = lines.map((line) => ({
      ...line,
      batchId: id,
      state: line.result === null ? ('waiting' as const) : ('errored' as const),
      tries: 0,
      notBefore: 0,
    }));
    await transaction.insertInto('batch_line').values(rows).execute();
    return true;
  });
}

/** Deletes some lines of a batch that this process works on; false: there are none left. */
export async function removeBatchLines(
  db: Db,
  { id, owner, limit }: OwnedBatch & { readonly limit: number },
): Promise<boolean> {
  const some = db.selectFrom('batch_line').select('line').where('batchId', '=', id).orderBy('line').limit(limit);
  const { numDeletedRows } = await db
    .deleteFrom('batch_line')
    .where('batchId', '=', id)
    .where('line', 'in', some)
    .where((is) => is.exists(is.selectFrom('batch').select('id').where('id', '=', id).where('owner', '=', owner)))
    .executeTakeFirst();
  return Number(numDeletedRows) === limit;
}

/** A line to run. */
export type ClaimedLine = Pick<Row<'batch_line'>, 'batchId' | 'line' | 'customId' | 'offsetBytes' | 'bytes' | 'tries'>;

/**
 * Takes lines that wait, in their order. On PostgreSQL replicas skip what others are about to take; the second `state` is the condition
 * under which a row that was waited for is still free. The batch's row is locked, so a batch that is cancelled at this moment is either
 * found cancelled, or cancelled after its lines are seen to run: it ends after them.
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
    // A subquery that locks may be read again for each row of the table, and takes other rows each time: then it has no limit.
    .with(
      (cte) => cte('free_line').materialized(),
      () => waiting,
    )
    .updateTable('batch_line')
    .set({ state: 'running', owner, requestId: null, result: null })
    .where('batchId', '=', id)
    .where('line', 'in', (is) => is.selectFrom('free_line').select('line'))
    .where(isWaiting)
    .where((is) => {
      const batch = is.selectFrom('batch').select('id').where('id', '=', id).where('status', '=', 'in_progress');
      return is.exists(skipsLocked ? batch.forShare() : batch);
    })
    .returning(['batchId', 'line', 'customId', 'offsetBytes', 'bytes', 'tries'])
    .execute();
  return claimed.toSorted((a, b) => a.line - b.line);
}

export interface OneLine {
  readonly batchId: string;
  readonly line: number;
  /** The owner that claimed it. */
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

/**
 * Ends runs of lines, and counts them in their batches. Lines that no longer belong to their owner stay as they are. A line whose result is
 * charged is complete, whatever its process knows of it: it never runs again.
 */
export async function endLines(db: Db, { endings }: { readonly endings: readonly LineEnding[] }): Promise<void> {
  await db.transaction().execute(async (transaction) => {
    const counts = new Map<string, { completed: number; errored: number }>();
    // In one order, because replicas that end lines of one batch would otherwise wait for each other.
    const charged = await chargedLines(transaction, endings);
    for (const ending of endings.toSorted(inOrder)) {
      const { batchId, line, owner, ...asked } = ending;
      const changes = charged.has(placeOf(ending)) ? { state: 'completed' as const } : asked;
      const free = changes.state === 'waiting' ? { owner: null, requestId: null, result: null } : {};
      const changed = await changeLine(transaction, { batchId, line, owner }, { ...changes, ...free });
      if (changes.state === 'waiting') continue;
      const count = counts.get(batchId) ?? { completed: 0, errored: 0 };
      count[changes.state] += changed;
      counts.set(batchId, count);
    }
    for (const [id, count] of counts) await addCounts(transaction, id, count);
  });
}

const placeOf = ({ batchId, line }: Pick<OneLine, 'batchId' | 'line'>): string => `${batchId} ${line}`;

/** Those of the lines that are said not to be complete, and whose result the ledger has charged. */
async function chargedLines(transaction: Db, endings: readonly LineEnding[]): Promise<ReadonlySet<string>> {
  const byBatch = new Map<string, number[]>();
  for (const { state, batchId, line } of endings)
    if (state !== 'completed') byBatch.set(batchId, [...(byBatch.get(batchId) ?? []), line]);
  const charged = new Set<string>();
  for (const [batchId, lines] of byBatch) {
    const rows = await transaction
      .selectFrom('batch_line')
      .innerJoin('usage', 'usage.requestId', 'batch_line.requestId')
      .select('batch_line.line')
      .where('batch_line.batchId', '=', batchId)
      .where('batch_line.line', 'in', lines)
      .where('usage.ending', 'in', ['finished', 'credit'])
      .execute();
    for (const { line } of rows) charged.add(placeOf({ batchId, line }));
  }
  return charged;
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
 * Ends the runs of processes that are gone, and those of this one that are not in `running`: it was not told that it had claimed them.
 * What the ledger has charged is complete; all else runs again. Returns how many lines still run, at living processes. `endsWaits`: lines that wait need not any more. Who is gone is looked up before what is charged: a process that is gone charges nothing afterwards.
 */
export async function recoverLines(
  db: Db,
  {
    id,
    self,
    running: known,
    endsWaits,
  }: {
    readonly id: string;
    readonly self: Uint8Array;
    readonly running: readonly number[];
    readonly endsWaits: boolean;
  },
): Promise<number> {
  if (endsWaits)
    await db
      .updateTable('batch_line')
      .set({ notBefore: 0 })
      .where('batchId', '=', id)
      .where(isWaiting)
      .where('notBefore', '>', 0)
      .execute();
  for (;;) {
    const dead = await db
      .selectFrom('batch_line')
      .select(['line', 'owner'])
      .where('batchId', '=', id)
      .where(isRunning)
      .where((is) => is.or([isDead(is, self), is('owner', '=', self)]))
      .$if(known.length > 0, (lines) =>
        lines.where((is) => is.or([is('owner', '<>', self), is('line', 'not in', known)])),
      )
      .orderBy('line')
      .limit(recoveredAtOnce)
      .execute();
    if (dead.length === 0) break;
    await endLines(db, {
      endings: dead.map(({ line, owner }) => ({
        ...{ batchId: id, line, owner: owner! },
        ...{ state: 'waiting', tries: 0, notBefore: 0 },
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

/**
 * What a line that found too little credit has to know: whether other requests of its account run, on any process, whose holds may come
 * back, and whether another line of its batch has ended with 402 already.
 */
export async function creditUse(
  db: Db,
  { accountId, batchId, line }: { readonly accountId: string } & Omit<OneLine, 'owner'>,
): Promise<{ readonly isHeld: boolean; readonly isReported: boolean }> {
  const running = await db
    .selectFrom('batch_line')
    .innerJoin('batch', 'batch.id', 'batch_line.batchId')
    .select('batch_line.line')
    .where('batch.accountId', '=', accountId)
    .where(sql<SqlBool>`batch.has_lines = 1`)
    .where(sql<SqlBool>`batch_line.state = 'running'`)
    .where((is) => is.or([is('batch_line.batchId', '<>', batchId), is('batch_line.line', '<>', line)]))
    .executeTakeFirst();
  const open = await db
    .selectFrom('open_request')
    .select('requestId')
    .where('accountId', '=', accountId)
    .executeTakeFirst();
  const reported = await db
    .selectFrom('batch_line')
    .select('line')
    .where('batchId', '=', batchId)
    .where('state', '=', 'errored')
    .where('result', 'like', '{"status_code":402,%')
    .executeTakeFirst();
  return { isHeld: running !== undefined || open !== undefined, isReported: reported !== undefined };
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
