import { setTimeout as sleep } from 'node:timers/promises';
import type { Ending, OpenRequest, UsageRow } from '../ledger.ts';
import { StoreError } from '../store-error.ts';
import {
  accountColumn,
  clean,
  balancesOf,
  usageColumns,
  usageValues,
  type SqlValue,
} from '../reports/usage-columns.ts';
import { arrayText, bytesArrayText } from './array-text.ts';
import type { Session } from './connection.ts';
import { isConnectionLost, isWorthAnotherTry, storeErrorOf } from './postgres-error.ts';
import { heartbeat, open, readUsage, settle, settleWithBudgets } from './statements.ts';

/** Maximum settlements in one transaction; the rest wait for the next. */
const batchRowsMax = 1000;
/** Far above what admission lets through (`backlog`): a safety limit, not an expected size. */
const queueMax = 100_000;
/** As in the SQLite ledger: how long an open request waits for a batch to join. */
const openWaitMs = 100;
/** A batch without an answer for this long is sent again on another connection. */
const answerTimeoutMs = 3_000;
/**
 * How long a row is retried while the database is away. After two seconds its client is told that it pays nothing, and the repair for that
 * waits behind this.
 */
const rowTimeoutMs = 4_000;
const conflictTriesMax = 5;
const probeTimeoutMs = 1_000;
/** The server ends the wait for a lock itself, because it does not notice that nobody is waiting for its answer any more. */
const probeLockTimeoutMs = 700;

interface Settlement {
  readonly id: string;
  readonly requestId: Uint8Array;
  readonly values: readonly SqlValue[];
  readonly costs: boolean;
  readonly ending: Ending;
  /** The id of this replica in the epoch in which the money was held. */
  readonly replica: Uint8Array;
  readonly sinceMs: number;
  resolve(outcome: 'billed' | 'lost'): void;
  reject(error: StoreError): void;
}

export interface SettlementsOptions {
  readonly session: Session;
  readonly replica: () => Uint8Array;
  readonly onBatch: ((rows: number, elapsedMs: number, isRefused: boolean) => void) | undefined;
}

/** Group commit: settlements that arrive while a transaction commits form the next one. There is no timer. */
export class Settlements {
  readonly #options: SettlementsOptions;
  #queue: Settlement[] = [];
  #flying = 0;
  readonly #opens = new Map<string, OpenRequest>();
  #areOpensDue = false;
  #openTimer: NodeJS.Timeout | undefined;
  #working: Promise<void> | undefined;
  #closed = false;

  constructor(options: SettlementsOptions) {
    this.#options = options;
  }

  get backlog(): number {
    return this.#queue.length + this.#flying;
  }

  settle(row: UsageRow): Promise<'billed' | 'lost'> {
    if (this.#closed) return Promise.reject(new StoreError('failed', 'the ledger is closed'));
    if (this.#queue.length >= queueMax) return Promise.reject(new StoreError('busy', 'too much waits to be written'));
    if (row.requestId.length !== 16) return Promise.reject(new StoreError('invalid', 'a request id has 16 bytes'));
    if (typeof row.costMicrocents !== 'bigint')
      return Promise.reject(new StoreError('invalid', 'a cost is not a bigint'));
    const id = hexOf(row.requestId);
    this.#opens.delete(id);
    return new Promise((resolve, reject) => {
      this.#queue.push({
        id,
        requestId: row.requestId,
        values: usageValues(row),
        costs: row.costMicrocents !== 0n,
        ending: row.ending,
        replica: this.#options.replica(),
        sinceMs: performance.now(),
        resolve,
        reject,
      });
      this.#start();
    });
  }

  open(request: OpenRequest): void {
    if (this.#closed || this.#opens.size >= queueMax) return; // the list is only used after a crash
    this.#opens.set(hexOf(request.requestId), { ...request, requestId: Uint8Array.from(request.requestId) });
    this.#openTimer ??= setTimeout(() => {
      this.#openTimer = undefined;
      this.#areOpensDue = true;
      this.#start();
    }, openWaitMs).unref();
  }

  /** Resolves when an empty batch and a write have gone through on the settling connection, under the same conditions as a settlement. */
  async probe(): Promise<void> {
    const { session, replica } = this.#options;
    const columns = usageColumns.map(() => arrayText([]));
    await session.exclusively(probeTimeoutMs, async (run) => {
      await run({ text: `begin; set local lock_timeout = ${probeLockTimeoutMs}` }, []);
      try {
        await run(settle, [replica(), [], bytesArrayText([]), ...columns]);
        await run(heartbeat, [replica()]);
        await run({ text: 'commit' }, []);
      } catch (error) {
        if (!isConnectionLost(error)) await run({ text: 'rollback' }, []);
        throw error;
      }
    });
  }

  /** Starts a new epoch of this replica: its open requests are already recorded as crashed, or were never listed. */
  forgetOpens(): void {
    this.#opens.clear();
  }

  /** Writes what is queued; later calls are refused. */
  async close(): Promise<void> {
    this.#closed = true;
    clearTimeout(this.#openTimer);
    this.#opens.clear();
    await this.#working;
  }

  /** Runs in the next turn of the event loop, so that everything that ends in one turn shares a transaction. */
  #start(): void {
    this.#working ??= new Promise<void>((resolve) => setImmediate(resolve))
      .then(() => this.#work())
      .finally(() => {
        this.#working = undefined;
        if (this.#queue.length > 0) this.#start();
      });
  }

  async #work(): Promise<void> {
    while (this.#queue.length > 0 || this.#areOpensDue) {
      if (this.#opens.size > 0) await this.#writeOpens();
      this.#areOpensDue = false;
      const first = this.#queue[0];
      if (first === undefined) continue;
      // Money held in an earlier epoch is settled in a separate batch, because its fencing token differs.
      const end = this.#queue.findIndex((one) => one.replica !== first.replica);
      const batch = this.#queue.splice(0, Math.min(end === -1 ? this.#queue.length : end, batchRowsMax));
      this.#flying = batch.length;
      const sentMs = performance.now();
      const isRefused = await this.#write(batch);
      this.#flying = 0;
      this.#options.onBatch?.(batch.length, performance.now() - sentMs, isRefused);
    }
  }

  /** No caller waits for this, and it must not fail a settlement. */
  async #writeOpens(): Promise<void> {
    const entries = [...this.#opens.values()].slice(0, batchRowsMax);
    for (const { requestId } of entries) this.#opens.delete(hexOf(requestId));
    const column = <Value>(of: (request: OpenRequest) => Value): readonly Value[] => entries.map(of);
    await this.#options.session
      .query(
        open,
        [
          this.#options.replica(),
          column((request) => request.requestId),
          column((request) => request.accountId),
          column((request) => request.keyId),
          column((request) => clean(request.modelId)),
          column((request) => request.holdMicrocents),
          column((request) => request.startedAt),
        ],
        answerTimeoutMs,
      )
      .catch(() => {});
  }

  /** Settles every row of the batch; resolves with whether the store refused all of it. */
  async #write(batch: readonly Settlement[]): Promise<boolean> {
    for (let conflicts = 0; ;) {
      try {
        await this.#writeOnce(batch);
        return false;
      } catch (error) {
        if (isConnectionLost(error)) {
          // It is unknown whether it was written. Sending it again is safe: an existing row stays (M3, reliability D5).
          const alive = batch.filter((one) => performance.now() - one.sinceMs < rowTimeoutMs);
          for (const one of batch) if (!alive.includes(one)) one.reject(storeErrorOf(error));
          if (alive.length === 0) return true;
          if (alive.length < batch.length) return await this.#write(alive);
        } else if (isWorthAnotherTry(error) && conflicts < conflictTriesMax) {
          conflicts += 1;
          await sleep(Math.random() * 10 * 2 ** conflicts);
        } else {
          const refusal = storeErrorOf(error);
          const isOfOneRow = refusal.code === 'invalid' || refusal.code === 'conflict' || refusal.code === 'not_found';
          if (batch.length === 1 || !isOfOneRow) {
            for (const one of batch) one.reject(refusal);
            return !isOfOneRow;
          }
          // One bad row must not fail the others.
          for (const one of batch) await this.#write([one]);
          return false;
        }
      }
    }
  }

  async #writeOnce(batch: readonly Settlement[]): Promise<void> {
    const { session } = this.#options;
    const accounts = new Set<string>();
    for (const one of batch) if (one.costs) accounts.add(one.values[accountColumn] as string);
    const ids = bytesArrayText(batch.map((one) => one.id));
    const columns = usageColumns.map((_, index) => arrayText(batch.map((one) => one.values[index] ?? null)));
    const values = [batch[0]!.replica, [...accounts], ids, ...columns];
    const charges = budgetCharges(batch);
    const { rows } = await (charges === undefined
      ? session.query<{ id: string }>(settle, values, answerTimeoutMs)
      : session.query<{ id: string }>(settleWithBudgets, [...values, ...charges], answerTimeoutMs));
    const written = new Set(rows.map(({ id }) => id));
    const rest = batch.filter((one) => !written.has(one.id));
    const found = rest.length === 0 ? new Map<string, string>() : await this.#endings(rest);
    for (const one of batch) {
      const ending = written.has(one.id) ? one.ending : found.get(one.id);
      // A row that a sweep has written in its absence is not this settlement (M6).
      const isBilled = ending !== undefined && (ending !== 'crashed' || one.ending === 'crashed');
      one.resolve(isBilled ? 'billed' : 'lost');
    }
  }

  async #endings(of: readonly Settlement[]): Promise<ReadonlyMap<string, string>> {
    const { rows } = await this.#options.session.query<{ id: string; ending: string }>(
      readUsage,
      [of.map((one) => one.requestId)],
      answerTimeoutMs,
    );
    return new Map(rows.map(({ id, ending }) => [id, ending]));
  }
}

/** The batch's charges to budgets: the balances, and the request and the balance of each charge; undefined: no charges. */
function budgetCharges(batch: readonly Settlement[]): readonly unknown[] | undefined {
  const requests: Uint8Array[] = [];
  const balances: string[] = [];
  for (const { requestId, values, costs } of batch) {
    if (!costs) continue;
    for (const balanceId of balancesOf(values)) {
      requests.push(requestId);
      balances.push(balanceId);
    }
  }
  return requests.length === 0 ? undefined : [[...new Set(balances)], requests, balances];
}

export function hexOf(id: Uint8Array): string {
  return Buffer.from(id.buffer, id.byteOffset, id.byteLength).toString('hex');
}
