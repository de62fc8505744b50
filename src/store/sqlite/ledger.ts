import { randomBytes } from 'node:crypto';
import { setImmediate as nextTurn } from 'node:timers/promises';
import { withDeadline } from '../../platform/deadline.ts';
import { entryUrl } from '../../platform/entries.ts';
import { Thread } from '../../platform/rpc/thread.ts';
import type { AccountStatus } from '../database.ts';
import type {
  AccountLedger,
  BudgetChange,
  FreeBalances,
  Reinstatement,
  Reinstated,
  NewAccount,
  OpenRequest,
  Reversal,
  Reversed,
  Transfer,
  UsageRow,
} from '../ledger.ts';
import { debiting, Leases } from '../leases.ts';
import { fromFailure, StoreError, storeErrorFrom, storeErrors } from '../store-error.ts';
import { usageValues, type SqlValue } from '../reports/usage-columns.ts';
import type { LedgerBatch, LedgerOperation, LedgerReply, OperationAnswers, OperationResult } from './ledger-batch.ts';
import type { LedgerCalls } from './ledger-worker.ts';

/** Maximum settlements in one transaction; the rest wait for the next. */
const batchRowsMax = 1000;
/** Far above what admission lets through (`backlog`): a safety limit, not an expected size. */
const queueMax = 100_000;
const closeTimeoutMs = 10_000;
/**
 * How long an open request waits for a batch to join. No caller waits for it, and with long streams a separate commit for each would be
 * half of all commits.
 */
const openWaitMs = 100;

export interface SqliteLedgerOptions {
  readonly file: string;
  readonly free: FreeBalances;
  /** The ledger's thread has died, so nothing can be settled: the process must end. Called once. */
  readonly onFatal: (error: Error) => void;
  /** Called for each transaction: its number of settlements, the time until its answer, and whether the store refused all of it. */
  readonly onBatch?: (rows: number, elapsedMs: number, isRefused: boolean) => void;
}

/** A lease in transit may be free once it has arrived, so that a debit finds it. */
const leaseArrives = (): Promise<unknown> => nextTurn();

interface Waiter {
  readonly resolve: (outcome: 'billed') => void;
  readonly reject: (error: StoreError) => void;
}

interface PendingOperation {
  readonly operation: LedgerOperation;
  readonly resolve: (value: never) => void;
  readonly reject: (error: StoreError) => void;
}

/** The main thread's side: queues, and passes the thread one batch at a time, with everything gathered meanwhile. */
export class SqliteLedger implements AccountLedger {
  /** The only process on its ledger: any id works that no earlier process had. */
  readonly replicaId = Uint8Array.from(randomBytes(16));
  readonly #file: string;
  readonly #thread: Thread<LedgerCalls>;
  readonly leases: Leases;
  readonly #onFatal: (error: Error) => void;
  readonly #onBatch: SqliteLedgerOptions['onBatch'];

  #ids: Uint8Array[] = [];
  #rows: (readonly SqlValue[])[] = [];
  #waiters: Waiter[] = [];
  #opens: OpenRequest[] = [];
  #operations: PendingOperation[] = [];
  #flying:
    | {
        readonly sentMs: number;
        readonly waiters: Waiter[];
        readonly opens: OpenRequest[];
        readonly operations: PendingOperation[];
      }
    | undefined;
  #scheduled = false;
  /** Runs while open requests wait for a batch to join; when it expires they are sent alone. */
  #openTimer: NodeJS.Timeout | undefined;
  #areOpensDue = false;
  #state: 'starting' | 'open' | 'closing' | 'closed' = 'starting';
  #idle: (() => void) | undefined;

  constructor(options: SqliteLedgerOptions) {
    this.leases = new Leases({
      free: options.free,
      leaseServer: {
        grant: (request) => this.#operate({ kind: 'grant', request }),
        returnUnused: (balanceId, microcents) => this.#operate({ kind: 'return', balanceId, microcents }),
        callOthers: () => Promise.resolve(),
      },
      alone: true,
    });
    this.#onFatal = options.onFatal;
    this.#onBatch = options.onBatch;
    this.#file = options.file;
    this.#thread = new Thread({
      program: entryUrl('ledger-worker'),
      name: 'ledger',
      errors: storeErrors,
      onDied: (error) => this.#die(error),
    });
  }

  /** Opens the database, whose schema is up to date, and recovers: resolves with the number of requests that had crashed. */
  async start(now: number): Promise<number> {
    const recovered = await this.#thread.rpc.call('start', { file: this.#file, now });
    if (this.#state === 'starting') this.#state = 'open';
    return recovered;
  }

  get backlog(): number {
    return this.#rows.length + (this.#flying?.waiters.length ?? 0);
  }

  /** Always 0: the store is in this process, and a call that gets no answer reports that itself. */
  get silentMs(): number {
    return 0;
  }

  settle(row: UsageRow): Promise<'billed'> {
    return new Promise((resolve, reject) => {
      const refused = this.#refuse(this.#rows.length);
      if (refused !== undefined || row.requestId.length !== 16) {
        reject(refused ?? new StoreError('invalid', 'a request id has 16 bytes'));
        return;
      }
      this.#ids.push(row.requestId);
      this.#rows.push(usageValues(row));
      this.#waiters.push({ resolve, reject });
      this.#schedule();
    });
  }

  open(request: OpenRequest): void {
    if (this.#refuse(this.#opens.length) !== undefined) return; // the list is only used for crash recovery
    this.#opens.push({ ...request, requestId: Uint8Array.from(request.requestId) });
    this.#openTimer ??= setTimeout(() => {
      this.#openTimer = undefined;
      this.#areOpensDue = true;
      this.#schedule();
    }, openWaitMs).unref();
  }

  readBack(requestId: Uint8Array): Promise<OperationAnswers['read_back']> {
    return this.#operate({ kind: 'read_back', requestId: Uint8Array.from(requestId) });
  }

  async probe(): Promise<void> {
    await this.#operate({ kind: 'probe' });
  }

  transfer(transfer: Transfer): Promise<boolean> {
    const copy = { ...transfer, id: Uint8Array.from(transfer.id) };
    const { debitAccount, creditAccount } = transfer;
    return debiting(
      () =>
        this.leases.changing([debitAccount, creditAccount], () => this.#operate({ kind: 'transfer', transfer: copy })),
      leaseArrives,
    );
  }

  async reverse(request: Reversal): Promise<Reversed> {
    const { accountId } = request;
    const copy = { ...request, ids: copiesOf(request.ids) };
    const taken = await this.leases.changing([accountId], () => this.#operate({ kind: 'reverse', request: copy }));
    if (taken.owedMicrocents > 0n) await leaseArrives();
    return taken;
  }

  reinstate(request: Reinstatement): Promise<Reinstated | undefined> {
    const copy = { ...request, ids: copiesOf(request.ids) };
    return this.leases.changing([request.accountId], () => this.#operate({ kind: 'reinstate', request: copy }));
  }

  /** Creates a customer's account with a zero balance. */
  createAccount(account: NewAccount): Promise<undefined> {
    return this.#operate({ kind: 'create_account', account });
  }

  /** Suspends or reactivates a customer. The directory cuts running requests; what they have used is still settled. */
  setAccountStatus(accountId: string, status: AccountStatus, at: number, changeId: Uint8Array): Promise<undefined> {
    return this.#operate({ kind: 'account_status', accountId, status, at, changeId });
  }

  /** Sets how far below zero a customer may go. Rejects with `insufficient` if the credit to be removed is in use. */
  setCreditLimit(accountId: string, toMicrocents: bigint, at: number, changeId: Uint8Array): Promise<undefined> {
    return debiting(
      () =>
        this.leases.changing([accountId], () =>
          this.#operate({ kind: 'credit_limit', accountId, toMicrocents, at, changeId }),
        ),
      leaseArrives,
    );
  }

  setBudget(change: BudgetChange): Promise<undefined> {
    const balanceIds = this.leases.ofBudget(change.subject);
    return this.leases.changing(balanceIds, () => this.#operate({ kind: 'budget', change }));
  }

  /** Writes what is queued, closes the database and ends the thread. Later calls are refused. */
  async close(): Promise<void> {
    const lastMs = performance.now() + closeTimeoutMs;
    const wasOpen = this.#state === 'open';
    if (wasOpen) this.#state = 'closing';
    const isDrained = wasOpen ? await withDeadline(this.#drain(), closeTimeoutMs, () => false) : true;
    // Even while it is starting.
    if (isDrained) await this.#thread.close(() => this.#thread.rpc.call('close', null), lastMs - performance.now());
    this.#state = 'closed';
    await this.#thread.terminate();
    this.#rejectAll(new StoreError('failed', 'the ledger is closed'));
    await this.leases.close();
  }

  #operate<Kind extends LedgerOperation['kind']>(
    operation: Extract<LedgerOperation, { kind: Kind }>,
  ): Promise<OperationAnswers[Kind]> {
    return new Promise((resolve, reject) => {
      const refused = this.#refuse(this.#operations.length);
      if (refused !== undefined) {
        reject(refused);
        return;
      }
      this.#operations.push({ operation, resolve, reject });
      this.#schedule();
    });
  }

  #refuse(queued: number): StoreError | undefined {
    if (this.#state !== 'open') return new StoreError('failed', 'the ledger is closed');
    if (queued >= queueMax) return new StoreError('busy', 'too much waits to be written');
    return undefined;
  }

  /** Runs once per turn of the event loop, so that everything that ends in one turn shares a transaction. */
  #schedule(): void {
    if (this.#scheduled || this.#flying !== undefined) return;
    this.#scheduled = true;
    setImmediate(() => {
      this.#scheduled = false;
      this.#send();
    });
  }

  #send(): void {
    if (this.#flying !== undefined || this.#state === 'closed') return;
    const isDue = this.#areOpensDue || this.#state === 'closing';
    if (this.#rows.length + this.#operations.length + (isDue ? this.#opens.length : 0) === 0) {
      this.#idle?.();
      return;
    }
    clearTimeout(this.#openTimer);
    this.#openTimer = undefined;
    const count = Math.min(this.#rows.length, batchRowsMax);
    const ids = new Uint8Array(count * 16);
    for (let index = 0; index < count; index++) ids.set(this.#ids[index]!, index * 16);
    const rows = take(this.#rows, count);
    take(this.#ids, count);
    const opens = take(this.#opens, Math.min(this.#opens.length, batchRowsMax));
    this.#areOpensDue = this.#opens.length > 0;
    const operations = take(this.#operations, Math.min(this.#operations.length, batchRowsMax));
    this.#flying = { sentMs: performance.now(), waiters: take(this.#waiters, count), opens, operations };
    const batch: LedgerBatch = {
      ids,
      rows,
      opens,
      operations: operations.map((pending) => pending.operation),
    };
    // Rejects only if the thread has died, which `#die` handles.
    this.#thread.rpc.call('write', batch).then(
      (reply) => this.#receive(reply),
      () => {},
    );
  }

  #receive(reply: LedgerReply): void {
    const flying = this.#flying;
    if (flying === undefined) return;
    this.#flying = undefined;
    this.#onBatch?.(flying.waiters.length, performance.now() - flying.sentMs, reply.refused !== undefined);
    if (reply.refused !== undefined) {
      const error = fromFailure(reply.refused);
      for (const waiter of flying.waiters) waiter.reject(error);
      for (const pending of flying.operations) pending.reject(error);
      // Still running, and recorded nowhere else: they join the next batch that a caller waits for.
      this.#opens = this.#state === 'open' ? [...flying.opens, ...this.#opens].slice(0, queueMax) : [];
      if (this.#rows.length + this.#operations.length === 0 && this.#state === 'open') return;
    } else {
      this.#settled(flying.waiters, reply);
      flying.operations.forEach((pending, index) => answer(pending, reply.results[index]!));
    }
    this.#send();
  }

  #settled(waiters: readonly Waiter[], { failures }: LedgerReply): void {
    let nextFailure = 0;
    for (let index = 0; index < waiters.length; index++) {
      const failure = failures[nextFailure];
      if (failure?.[0] === index) {
        nextFailure += 1;
        waiters[index]!.reject(fromFailure(failure[1]));
        continue;
      }
      waiters[index]!.resolve('billed');
    }
  }

  /** Resolves with false if the thread died during its last batch. */
  #drain(): Promise<boolean> {
    return new Promise((resolve) => {
      this.#idle = () => resolve(this.#state === 'closing');
      this.#schedule();
    });
  }

  #die(error: Error): void {
    if (this.#state === 'starting' || this.#state === 'closed') return; // while it starts, `start` reports it
    this.#state = 'closed';
    const failed = storeErrorFrom(error);
    this.#rejectAll(failed);
    this.#idle?.();
    this.#onFatal(failed);
  }

  #rejectAll(error: StoreError): void {
    const waiters = [...(this.#flying?.waiters ?? []), ...this.#waiters];
    const operations = [...(this.#flying?.operations ?? []), ...this.#operations];
    this.#flying = undefined;
    this.#ids = [];
    this.#rows = [];
    this.#waiters = [];
    this.#opens = [];
    this.#operations = [];
    for (const waiter of waiters) waiter.reject(error);
    for (const pending of operations) pending.reject(error);
  }
}

function answer(pending: PendingOperation, result: OperationResult): void {
  if ('failure' in result) pending.reject(fromFailure(result.failure));
  else pending.resolve(result.value as never);
}

const copiesOf = ([one, other]: Reversal['ids']): Reversal['ids'] => [Uint8Array.from(one), Uint8Array.from(other)];

/** Removes the first `count` elements from a queue. */
function take<T>(queue: T[], count: number): T[] {
  return queue.splice(0, count);
}
