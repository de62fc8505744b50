import { setMaxListeners } from 'node:events';

import type { Caller } from '../../accounts/directory.ts';
import { batchIdOf } from '../../platform/ids/batch-id.ts';
import type { ServiceRecord } from '../../platform/log.ts';
import type { ClaimedLine, LineAnswer, LineEnding, OneLine } from '../../store/repositories/batch-lines.ts';
import type { BatchRow, BatchStatus } from '../../store/repositories/batch-rows.ts';
import type { Repositories } from '../../store/repositories/repositories.ts';
import type { BatchFault } from '../../store/schema/tables.ts';
import { StoreError } from '../../store/store-error.ts';
import { isMissing, type Files } from '../files/files.ts';
import { GroupedWrites } from './grouped-writes.ts';
import type { LineOutcome, Lines } from './line.ts';
import { LinePace } from './line-pace.ts';
import { finish } from './finish.ts';
import { fault, validate, type ValidationBounds } from './validate.ts';
import { wires } from './wires.ts';

export type BatchRepositories = Pick<
  Repositories,
  | 'openBatches'
  | 'getBatch'
  | 'ownBatch'
  | 'disownBatch'
  | 'addBatchLines'
  | 'removeBatchLines'
  | 'restartValidation'
  | 'endValidation'
  | 'claimBatchLines'
  | 'keepLineAnswers'
  | 'endLines'
  | 'recoverLines'
  | 'beginFinalizing'
  | 'planOutput'
  | 'listLineResults'
  | 'endBatch'
  | 'closeBatch'
  | 'cancelBatch'
  | 'creditUse'
>;

export interface RunnerOptions {
  readonly repositories: BatchRepositories;
  readonly files: Pick<Files, 'find' | 'upload' | 'remove' | 'readPart' | 'readBytes'>;
  readonly lines: Lines;
  /** Id of this process among those that share the database. */
  readonly owner: () => Uint8Array;
  readonly now: () => number;
  /** The same, but it never goes back: for waits (reliability S5). */
  readonly steadyNow: () => number;
  readonly bounds: () => ValidationBounds & { readonly linesRunningMax: number };
  /** How many lines of a model may take a slot now. */
  readonly room: (modelId: string) => number;
  /** From now on calls `wake` when one of these models, and no other, may have room. */
  readonly watch: (modelIds: ReadonlySet<string>, wake: () => void) => void;
  /** Whether other processes share the database. */
  readonly isShared: boolean;
  /** The caller with this key; `revoked`: there will be none any more; undefined: not now. */
  readonly callerOf: (keyId: string) => Promise<Caller | 'revoked' | undefined>;
  readonly log: (record: ServiceRecord) => void;
}

/** How often a process looks for what others, or a client, have changed: a cancelled batch stops within a second. */
const lookMs = 250;
/** The same without open batches; alone, a process makes them all itself. */
const idleLookMs = 5_000;
/** Between two turns of claims. */
const turnMs = 5;
/** How long the batches are taken to be what they were. */
const freshMs = 100;
const openAtOnce = 500;
/** Batches that this process validates, or whose results it writes, at the same time: each reads or writes a file of its own. */
const workingAtOnce = 4;
/** Lines that one claim takes. */
const claimedAtOnce = 16;
const removedAtOnce = 1_000;
const recoverEveryMs = 2_000;
/** How long lines may take to end when the process ends. */
const undecidedMs = 5_000;
/** After a failure of our own, or of the store. */
const againMs = 2_000;

interface Running {
  readonly batch: BatchRow;
  readonly line: number;
  readonly modelId: string;
  stop: (() => void) | undefined;
  /** It has its slot, or waits for it in the queue of its model. */
  isPlaced: boolean;
}

/**
 * Runs batches in this process, beside those that others run: reads their files, runs their lines where there is room, writes their
 * results. All that it knows is in the database, so any process goes on where another one died (docs/decisions/057-batches.md).
 */
export class BatchRunner {
  readonly #options: RunnerOptions;
  readonly #pace: LinePace;
  readonly #running = new Map<string, Running>();
  /** Batches that this process validates, or writes the results of. */
  readonly #working = new Map<string, Promise<void>>();
  readonly #ending = new AbortController();
  /** When the runs of dead processes were last looked for, by batch. */
  readonly #recovered = new Map<string, number>();
  readonly #answers: GroupedWrites<LineAnswer, boolean>;
  readonly #endings: GroupedWrites<LineEnding, undefined>;
  #looking: Promise<void> | undefined;
  #isAskedAgain = false;
  #timer: NodeJS.Timeout | undefined;
  /** When it fires, by `performance.now()`. */
  #dueMs = 0;
  /** The last of the open batches that were read, if there are more: then the next ones are read. And which model is first. */
  readonly #rotation: { readTo: BatchRow | undefined; turn: number } = { readTo: undefined, turn: 0 };
  /** The batches with work left, and when they were read. */
  #open: { readonly batches: readonly BatchRow[]; readonly atMs: number } | undefined;

  constructor(options: RunnerOptions) {
    this.#options = options;
    this.#pace = new LinePace(options.steadyNow);
    // Every line that reads its part of a file listens.
    setMaxListeners(0, this.#ending.signal);
    const { repositories } = options;
    this.#answers = new GroupedWrites((answers) => repositories.keepLineAnswers({ answers }));
    this.#endings = new GroupedWrites(async (endings) => {
      await repositories.endLines({ endings });
      return endings.map(() => undefined);
    });
  }

  /** Looks at the batches now, and from now on. */
  begin(): void {
    this.#open = undefined;
    this.#wake();
  }

  /** There may be room for lines. Called with every slot that becomes free, so turns have a distance. */
  readonly #wake = (): void => {
    if (this.#ending.signal.aborted) return;
    if (this.#looking !== undefined) this.#isAskedAgain = true;
    else this.#lookIn(turnMs);
  };

  #lookIn(delayMs: number): void {
    const dueMs = performance.now() + delayMs;
    if (this.#timer !== undefined && this.#dueMs <= dueMs) return;
    clearTimeout(this.#timer);
    this.#dueMs = dueMs;
    this.#timer = setTimeout(() => {
      this.#timer = undefined;
      this.#isAskedAgain = false;
      this.#looking = this.#look().then((nextMs) => {
        this.#looking = undefined;
        if (this.#ending.signal.aborted) return;
        if (this.#isAskedAgain) this.#lookIn(turnMs);
        else if (nextMs !== undefined) this.#lookIn(nextMs);
      });
    }, delayMs).unref();
  }

  /** Begins nothing any more; lines that run go on. */
  stop(): void {
    clearTimeout(this.#timer);
    this.#timer = undefined;
    this.#ending.abort(new Error('the service is being stopped'));
  }

  /**
   * Resolves when nothing of it runs. The lines have been stopped before; one whose charge is not decided in time, because the database
   * does not answer, is left to the next owner of the database.
   */
  async close(): Promise<void> {
    this.stop();
    await this.#looking;
    await Promise.all(this.#working.values());
    const lastMs = performance.now() + undecidedMs;
    while (this.#running.size > 0 && performance.now() < lastMs)
      await new Promise((resolve) => setTimeout(resolve, 10));
  }

  /** Never rejects; returns when to look again, if ever. */
  async #look(): Promise<number | undefined> {
    try {
      const before = this.#open;
      const isFresh = before !== undefined && performance.now() - before.atMs < freshMs;
      const open = isFresh ? before.batches : await this.#readOpen();
      if (!isFresh) {
        this.#open = { batches: open, atMs: performance.now() };
        this.#forget(open);
        for (const batch of open) await this.#advance(batch);
      }
      await this.#claim(open.filter(({ status }) => status === 'in_progress'));
      if (open.length > 0 || this.#rotation.readTo !== undefined) return lookMs;
      return this.#options.isShared ? idleLookMs : undefined;
    } catch (error) {
      this.#failed('look', error);
      return againMs;
    }
  }

  /** All of them in turn, so that batches which wait for something hold up no others. */
  async #readOpen(): Promise<readonly BatchRow[]> {
    const open = await this.#options.repositories.openBatches({ limit: openAtOnce, after: this.#rotation.readTo });
    this.#rotation.readTo = open.length < openAtOnce ? undefined : open.at(-1);
    return open;
  }

  #forget(open: readonly BatchRow[]): void {
    if (this.#rotation.readTo !== undefined) return;
    const ids = new Set(open.map(({ id }) => id));
    for (const id of this.#recovered.keys()) if (!ids.has(id)) this.#recovered.delete(id);
    this.#pace.forget(new Set(open.map(({ accountId }) => accountId)));
  }

  /** A batch has come to its next step. */
  #again(): void {
    this.#open = undefined;
    this.#wake();
  }

  async #advance(batch: BatchRow): Promise<void> {
    const { id, status } = batch;
    if (this.#working.has(id)) return;
    switch (status) {
      case 'validating':
        await this.#begin(batch);
        return;
      case 'in_progress': {
        await this.#recover(id);
        const { now, repositories } = this.#options;
        const at = now();
        if (at < batch.expiresAt && batch.completed + batch.errored < batch.requests) return;
        await repositories.beginFinalizing({ id, at });
        this.#again();
        return;
      }
      case 'cancelling':
      case 'finalizing':
        if (status === 'cancelling') this.#stopLines(id);
        // Of a batch that has expired, lines that have begun end.
        if ((await this.#recover(id, true)) > 0) return;
        await this.#own(batch, (owner) => finish(batch, owner, this.#options, this.#ending.signal));
        return;
      case 'failed':
      case 'completed':
      case 'expired':
      case 'cancelled':
        await this.#own(batch, (owner) => this.#clear(batch, owner));
    }
  }

  #stopLines(batchId: string): void {
    for (const { batch, stop } of this.#running.values()) if (batch.id === batchId) stop?.();
  }

  /** Takes the lines back of dead processes, and of claims whose answer was lost; returns how many lines run at living ones. */
  async #recover(id: string, isAlways = false): Promise<number> {
    const { steadyNow, owner, repositories, isShared } = this.#options;
    const at = steadyNow();
    if (!isAlways && at - (this.#recovered.get(id) ?? 0) < recoverEveryMs) return 0;
    // An earlier process wrote waits by another clock.
    const endsWaits = !isShared && !this.#recovered.has(id);
    const own = [...this.#running.values()].filter(({ batch }) => batch.id === id).map(({ line }) => line);
    const running = await repositories.recoverLines({ id, self: owner(), running: own, endsWaits });
    this.#recovered.set(id, at);
    return running;
  }

  /** Validates a batch whose key may still be used. */
  async #begin(batch: BatchRow): Promise<void> {
    const { now, repositories } = this.#options;
    if (this.#pace.rests(batch)) return;
    if (now() >= batch.expiresAt) {
      await this.#own(batch, (owner) =>
        repositories.endValidation({
          ...{ id: batch.id, owner, at: now() },
          outcome: { faults: [fault('batch_expired', 'The file could not be read within the completion window.')] },
        }),
      );
      return;
    }
    const caller = await this.#callerOf(batch);
    if (caller !== undefined) await this.#own(batch, (owner) => this.#validate(batch, caller, owner));
  }

  /** The caller that made the batch; undefined: not now, or never again, and then the batch ends. */
  async #callerOf(batch: BatchRow): Promise<Caller | undefined> {
    const caller = await this.#options.callerOf(batch.keyId);
    if (typeof caller === 'object') return caller;
    if (caller === 'revoked') await this.#end(batch, fault('invalid_api_key', 'The key of the batch was revoked.'));
    // A key that is paused may come back.
    else this.#pace.rest(batch.id, againMs);
    return undefined;
  }

  /** Ends a batch that cannot go on, and says why. What has run is delivered. */
  async #end({ accountId, id }: BatchRow, reason: BatchFault): Promise<void> {
    const { repositories, now } = this.#options;
    await repositories.cancelBatch({ accountId, id, at: now(), faults: [reason] });
    this.#again();
  }

  async #own(batch: BatchRow, work: (owner: Uint8Array) => Promise<void>): Promise<void> {
    const { id, status } = batch;
    const { repositories } = this.#options;
    if (this.#working.size >= workingAtOnce || this.#pace.rests(batch)) return;
    const owner = this.#options.owner();
    if (!(await repositories.ownBatch({ id, status, owner }))) return;
    const working = work(owner)
      .catch((error: unknown) => {
        if (this.#ending.signal.aborted) return;
        this.#failed(status, error);
        this.#pace.rest(id, againMs);
      })
      // What was not ended is left to the process that comes first.
      .then(() => repositories.disownBatch({ id, owner }))
      .catch((error: unknown) => this.#failed('disown', error))
      .finally(() => {
        this.#working.delete(id);
        this.#again();
      });
    this.#working.set(id, working);
  }

  async #validate(batch: BatchRow, caller: Caller, owner: Uint8Array): Promise<void> {
    const { repositories, files, lines, now, bounds } = this.#options;
    const { signal } = this.#ending;
    const { id } = batch;
    if ((await files.find(batch.accountId, batch.inputFileId)) === undefined) {
      const faults = [fault('file_not_found', 'The file has been deleted.')];
      await repositories.endValidation({ id, owner, at: now(), outcome: { faults } });
      return;
    }
    // What a process that died in it has left.
    while (await repositories.removeBatchLines({ id, owner, limit: removedAtOnce }));
    await repositories.restartValidation({ id, owner });
    const source = await this.#unlessMissing(batch, () => files.readBytes(batch.inputFileId, signal));
    if (source === undefined) return;
    try {
      const outcome = await validate(source, {
        batch,
        batchId: batchIdOf(batch),
        caller,
        bounds: bounds(),
        lines,
        signal,
        add: (added) => repositories.addBatchLines({ id, owner, lines: added }),
      });
      if (outcome !== undefined) await repositories.endValidation({ id, owner, at: now(), outcome });
    } finally {
      source.destroy();
    }
  }

  /** Takes lines for the room that there is. Accounts take turns, and so do their batches. */
  async #claim(batches: readonly BatchRow[]): Promise<void> {
    const { bounds, room, watch } = this.#options;
    const models = new Set(batches.flatMap(({ models: named }) => named ?? []));
    watch(models, this.#wake);
    // Another model is first each time: they share the lines of this process.
    const named = [...models];
    const first = this.#rotation.turn++ % Math.max(1, named.length);
    for (const modelId of [...named.slice(first), ...named.slice(0, first)]) {
      // Lines that have begun may not have their slot yet.
      const placing = this.#linesWhere((line) => line.modelId === modelId && !line.isPlaced);
      let left = Math.min(room(modelId) - placing, bounds().linesRunningMax - this.#running.size);
      let turn = this.#pace.inTurn(batches.filter((batch) => batch.models?.includes(modelId) === true));
      while (left > 0 && turn.length > 0 && !this.#ending.signal.aborted) {
        const next: BatchRow[] = [];
        for (const batch of turn) {
          if (left <= 0) break;
          const limit = Math.min(left, claimedAtOnce, this.#pace.linesMax(batch, this.#linesOf(batch.accountId)));
          const begun = limit <= 0 ? 0 : await this.#claimOf(batch, modelId, limit);
          left -= begun;
          if (begun === limit && begun > 0) next.push(batch);
        }
        turn = next;
      }
    }
  }

  #linesOf(accountId: string): number {
    return this.#linesWhere(({ batch }) => batch.accountId === accountId);
  }

  #linesWhere(matches: (line: Running) => boolean): number {
    let lines = 0;
    for (const line of this.#running.values()) if (matches(line)) lines++;
    return lines;
  }

  async #claimOf(batch: BatchRow, modelId: string, limit: number): Promise<number> {
    const { repositories, steadyNow } = this.#options;
    const { id } = batch;
    if ((await this.#callerOf(batch)) === undefined) return 0;
    const owner = this.#options.owner();
    const claimed = await repositories.claimBatchLines({ id, modelId, owner, now: steadyNow(), limit });
    for (const line of claimed) void this.#run(batch, line, modelId, owner);
    return claimed.length;
  }

  /** Never rejects. If the end of a line cannot be written, the next owner of the database finds it in the ledger. */
  async #run(batch: BatchRow, claimed: ClaimedLine, modelId: string, owner: Uint8Array): Promise<void> {
    const { batchId, line } = claimed;
    const name = `${batchId} ${line}`;
    const running: Running = { batch, line, modelId, stop: undefined, isPlaced: false };
    this.#running.set(name, running);
    const own = { batchId, line, owner };
    let ending: LineEnding = {
      ...own,
      state: 'waiting',
      tries: claimed.tries,
      notBefore: this.#options.steadyNow() + againMs,
    };
    try {
      const outcome = await this.#answer(claimed, running, own);
      if (outcome !== undefined) {
        const { accountId } = batch;
        const isShort = outcome.kind === 'failed' && !outcome.isStopped && outcome.error.status === 402;
        const credit = isShort ? await this.#options.repositories.creditUse({ accountId, ...own }) : undefined;
        ending = { ...own, ...this.#pace.endingOf(outcome, batch, claimed.tries, this.#linesOf(accountId), credit) };
      }
    } catch (error) {
      if (!this.#ending.signal.aborted) this.#failed('line', error);
    }
    try {
      await this.#ended(ending);
    } finally {
      this.#running.delete(name);
      this.#wake();
    }
  }

  /** undefined: it cannot run now, and nothing was tried. */
  async #answer(claimed: ClaimedLine, running: Running, own: OneLine): Promise<LineOutcome | undefined> {
    const { files, lines } = this.#options;
    const { batch } = running;
    const { customId, offsetBytes } = claimed;
    const bytes = await this.#unlessMissing(batch, () =>
      files.readPart(batch.inputFileId, offsetBytes, claimed.bytes, this.#ending.signal),
    );
    // Asked again: a key that was revoked since the claim runs nothing.
    const caller = bytes === undefined ? undefined : await this.#callerOf(batch);
    if (bytes === undefined || caller === undefined) return undefined;
    return await lines.run(
      { batchId: batchIdOf(batch), wire: batch.wire, endpoint: batch.endpoint, caller, bytes, customId },
      (answer) => this.#answers.add({ ...own, ...answer }),
      {
        begun: (stop) => (running.stop = stop),
        placed: () => (running.isPlaced = true),
      },
    );
  }

  /** A batch whose file is gone ends at once, instead of with its window. */
  async #unlessMissing<Value>(batch: BatchRow, read: () => Promise<Value>): Promise<Value | undefined> {
    try {
      return await read();
    } catch (error) {
      if (!isMissing(error)) throw error;
      await this.#end(batch, fault('file_not_found', 'The file of the batch is gone.'));
      return undefined;
    }
  }

  async #ended(ending: LineEnding): Promise<void> {
    for (;;) {
      try {
        await this.#endings.add(ending);
        return;
      } catch (error) {
        this.#failed('line_end', error);
        if (this.#ending.signal.aborted) return;
        await new Promise((resolve) => setTimeout(resolve, againMs).unref());
      }
    }
  }

  async #clear({ id, wire, accountId, inputFileId }: BatchRow, owner: Uint8Array): Promise<void> {
    const { repositories, files } = this.#options;
    if (!wires[wire].isFile) await files.remove(accountId, inputFileId);
    while (await repositories.removeBatchLines({ id, owner, limit: removedAtOnce }))
      this.#ending.signal.throwIfAborted();
    await repositories.closeBatch({ id });
  }

  #failed(what: BatchStatus | 'look' | 'line' | 'line_end' | 'disown', error: unknown): void {
    const code = error instanceof StoreError ? error.code : error instanceof Error ? error.name : 'unexpected';
    this.#options.log({ level: 'warn', event: 'batch_failed', detail: { what, code } });
  }
}
