import { setTimeout as sleep } from 'node:timers/promises';
import { withDeadline } from '../../platform/deadline.ts';
import { isOfBudget, readBalanceId } from '../budget.ts';
import type { Change } from '../feed.ts';
import type { AccountLedger, OpenRequest, Transfer } from '../ledger.ts';
import type { LeaseRequest } from '../leases.ts';
import { carryOut, forwardedRepositories } from '../repositories/forwarded.ts';
import type { Repositories, RepositoryOperation } from '../repositories/repositories.ts';
import { openSqliteStore, type SqliteStore, type SqliteStoreOptions } from '../sqlite/store.ts';
import { StoreError } from '../store-error.ts';
import { accountColumn, costColumn, balancesOf, usageColumns, type SqlValue } from '../reports/usage-columns.ts';
import { Balances, type LeaseClient } from './balances.ts';
import type { WorkerPort } from './protocol.ts';

/** A worker that hears nothing for four of these admits no request. */
export const heartbeatEveryMs = 250;
/** How long a change waits to be in force at the workers; a worker that takes longer admits no request. */
const changeTimeoutMs = 1_000;
/** Interval of retries while the disk is full or the file is locked. */
const recordEveryMs = 500;
/** Number of tries to debit a customer whose money is with the workers. */
const debitTriesMax = 4;
const debitPauseMs = 50;

/** What a worker may call on the repositories: everything that requests need, and nothing that changes an account or a key. */
const repositoriesOfWorkers: ReadonlySet<string> = new Set<RepositoryOperation>([
  'loadKeys',
  'getAccount',
  'getBudget',
  'listAccountPrices',
  'keepItems',
  'findKeptItems',
  'tidyKeptItems',
  'deleteKeptItems',
  'beginFile',
  'finishFile',
  'getFile',
  'listFiles',
  'leaveFile',
  'forgetFiles',
  'unreadyFiles',
  'claimRequest',
  'keepAnswer',
  'leaveRequest',
  'tidyRequests',
]);

/** A worker that works on the ledger. */
export interface Served {
  /** Its process is gone, and no message of it is still to come. Resolves when its running requests are recorded as crashed. */
  end(): Promise<void>;
}

export interface LedgerServer {
  /** For this process, which answers no requests itself. */
  readonly store: Omit<SqliteStore, 'ledger' | 'follow' | 'repositoriesOf'> & { readonly ledger: AccountLedger };
  /** Lets a worker at the other end of the line work on the ledger, as one of the replicas. */
  serve(port: WorkerPort, replicaId: Uint8Array): Promise<Served>;
}

/**
 * The ledger of one file, for several processes on this machine: this one owns it, as it would alone, and is to its workers what
 * PostgreSQL is to its replicas (docs/money.md, "Several workers"). Rejects like `openSqliteStore`.
 */
export async function openLedgerServer(options: Omit<SqliteStoreOptions, 'free'>): Promise<LedgerServer> {
  const workers = new Set<Worker>();
  const balances = new Balances((balanceId) => sqlite.ledger.lease(balanceId, 0n));
  const sqlite = await openSqliteStore({
    ...options,
    free: {
      credit: (balanceId, microcents) => {
        balances.credit(balanceId, microcents);
        // A request that was refused a moment ago need not wait any longer.
        for (const worker of workers) worker.port.note('credited', balanceId);
      },
      reserve: (balanceId, microcents) => balances.reserve(balanceId, microcents),
    },
  });
  const heartbeats = setInterval(() => {
    for (const worker of workers) worker.port.note('beat', null);
  }, heartbeatEveryMs);
  const report = async (changeId: Uint8Array): Promise<void> => {
    const change = await sqlite.repositories.findChange({ id: changeId });
    if (change !== undefined) await Promise.all([...workers].map((worker) => worker.reported([change])));
  };
  return {
    store: {
      repositories: notifications(sqlite.repositories, report),
      ledger: ownLedger(sqlite, balances, report),
      migrated: sqlite.migrated,
      now: () => sqlite.now(),
      alone: (work) => sqlite.alone(work),
      tidy: async () => {
        const nowMs = sqlite.now();
        const isOver = (balanceId: string): boolean =>
          isOfBudget(balanceId) && (readBalanceId(balanceId).endsAt ?? Infinity) <= nowMs;
        for (const balanceId of balances.forget(isOver)) sqlite.ledger.release(balanceId);
        await sqlite.tidy();
      },
      close: async () => {
        clearInterval(heartbeats);
        await sqlite.close();
      },
    },
    serve: async (port, replicaId) => {
      await sqlite.ledger.beginReplica(replicaId, Date.now());
      const worker = new Worker(port, replicaId, sqlite, balances);
      workers.add(worker);
      return {
        end: async () => {
          workers.delete(worker);
          await worker.end();
        },
      };
    },
  };
}

/** One worker, as seen by the process that owns the ledger. */
class Worker implements LeaseClient {
  readonly port: WorkerPort;
  readonly #replicaId: Uint8Array;
  readonly #sqlite: SqliteStore;
  readonly #repositories: Repositories;
  readonly #balances: Balances;
  /** Settlements under way: what was lent for them must not come back before they are written. */
  readonly #settling = new Set<Promise<unknown>>();

  constructor(port: WorkerPort, replicaId: Uint8Array, sqlite: SqliteStore, balances: Balances) {
    this.port = port;
    this.#replicaId = replicaId;
    this.#sqlite = sqlite;
    this.#repositories = sqlite.repositoriesOf(replicaId);
    this.#balances = balances;
    balances.join(this);
    const { ledger } = sqlite;
    port.handle({
      settle: (value: unknown) => {
        const settling = this.#settle(value);
        this.#settling.add(settling);
        const settled = (): void => void this.#settling.delete(settling);
        settling.then(settled, settled);
        return settling;
      },
      open: (value: unknown) => ledger.openOf(replicaId, openRequestOf(value)),
      grant: (value: unknown) => balances.lease(this, inputOf(value)),
      return_unused: (value: unknown) => {
        const { balanceId, microcents } = value as { readonly balanceId: unknown; readonly microcents: unknown };
        balances.returnUnused(this, textOf(balanceId), amountOf(microcents));
      },
      read_back: (value: unknown) => ledger.readBack(bytesOf(value)),
      probe: () => ledger.probe(),
      transfer: (value: unknown) => ledger.transfer(refundOf(value)),
      repositories: (value: unknown) => this.#ask(value),
      look: () => null,
    });
  }

  releaseUnused(balanceId: string): Promise<unknown> {
    return this.port.call('return_free', balanceId);
  }

  /** Resolves when the changes are in force there, or the worker does not answer. */
  async reported(changes: readonly Change[]): Promise<void> {
    await withDeadline(
      this.port.call('changes', changes).catch(() => {}),
      changeTimeoutMs,
      () => {},
    );
  }

  async end(): Promise<void> {
    await Promise.allSettled(this.#settling);
    this.#balances.leave(this);
    for (;;) {
      try {
        await this.#sqlite.ledger.endReplica(this.#replicaId, Date.now());
        return;
      } catch (error) {
        if (!(error instanceof StoreError) || (error.code !== 'busy' && error.code !== 'full')) throw error;
        await sleep(recordEveryMs);
      }
    }
  }

  /** M6: what was not held from a lease of the worker is not charged, unless it was written before. */
  async #settle(value: unknown): Promise<'billed' | 'lost'> {
    const { requestId, values } = rowOf(value);
    const { ledger } = this.#sqlite;
    const balances = [values[accountColumn] as string, ...balancesOf(values)];
    const cost = values[costColumn] as bigint;
    if (!this.#balances.spend(this, balances, cost)) {
      const there = await ledger.readBack(requestId);
      return there === undefined || there.ending === 'crashed' ? 'lost' : 'billed';
    }
    let isNew = false;
    try {
      isNew = await ledger.settleValues(requestId, values);
    } finally {
      if (!isNew) this.#balances.unspend(this, balances, cost);
    }
    return 'billed';
  }

  async #ask(value: unknown): Promise<unknown> {
    const { name, request } = value as { readonly name: unknown; readonly request: unknown };
    if (typeof name !== 'string' || !repositoriesOfWorkers.has(name))
      throw new StoreError('invalid', `a worker may not ask for '${String(name)}'`);
    return await carryOut(this.#repositories, name as RepositoryOperation, ownBytes(request));
  }
}

/** The ledger for the operator's changes: money that is with the workers is called in before a debit is refused. */
function ownLedger(
  { ledger }: SqliteStore,
  balances: Balances,
  report: (changeId: Uint8Array) => Promise<void>,
): AccountLedger {
  const debiting = async <Value>(accountId: string, debit: () => Promise<Value>): Promise<Value> => {
    for (let tries = 0; ; tries++) {
      try {
        return await debit();
      } catch (error) {
        const isShort = error instanceof StoreError && error.code === 'insufficient';
        if (!isShort || tries >= debitTriesMax) throw error;
        await balances.callIn(accountId);
        if (tries > 0) await sleep(debitPauseMs);
      }
    }
  };
  return {
    replicaId: ledger.replicaId,
    get backlog() {
      return ledger.backlog;
    },
    silentMs: 0,
    lease: () => Promise.reject(new StoreError('invalid', 'the owner of a shared ledger answers no requests')),
    noteRemaining: () => {},
    release: () => {},
    budgetChanged: () => {},
    settle: (row) => ledger.settle(row),
    open: (request) => ledger.open(request),
    readBack: (requestId) => ledger.readBack(requestId),
    probe: () => ledger.probe(),
    transfer: (transfer) => debiting(transfer.debitAccount, () => ledger.transfer(transfer)),
    createAccount: async (account) => {
      await ledger.createAccount(account);
      await report(account.changeId);
    },
    setAccountStatus: async (accountId, status, at, changeId) => {
      await ledger.setAccountStatus(accountId, status, at, changeId);
      await report(changeId);
    },
    setCreditLimit: async (accountId, toMicrocents, at, changeId) => {
      await debiting(accountId, () => ledger.setCreditLimit(accountId, toMicrocents, at, changeId));
      await report(changeId);
    },
    setBudget: async (change) => {
      await ledger.setBudget(change);
      await report(change.changeId);
    },
    close: () => ledger.close(),
  };
}

/** Repositories whose changes are in force at the workers when it answers. */
function notifications(repositories: Repositories, report: (changeId: Uint8Array) => Promise<void>): Repositories {
  return forwardedRepositories(async (name, request) => {
    const answer = await carryOut(repositories, name, request);
    const { changeId } = (request ?? {}) as { readonly changeId?: Uint8Array };
    if (changeId !== undefined) await report(changeId);
    return answer;
  });
}

const isAmount = (value: unknown): value is bigint => typeof value === 'bigint' && value >= 0n;

function amountOf(value: unknown): bigint {
  if (!isAmount(value)) throw unfit();
  return value;
}

function textOf(value: unknown): string {
  if (typeof value !== 'string') throw unfit();
  return value;
}

/** A copy: what arrives is a view into the whole message. */
function bytesOf(value: unknown): Uint8Array {
  if (!(value instanceof Uint8Array) || value.length !== 16) throw unfit();
  return Uint8Array.from(value);
}

function rowOf(value: unknown): { readonly requestId: Uint8Array; readonly values: readonly SqlValue[] } {
  const { requestId, values } = value as { readonly requestId: unknown; readonly values: unknown };
  if (!Array.isArray(values) || values.length !== usageColumns.length) throw unfit();
  const row = values as readonly SqlValue[];
  if (!isAmount(row[costColumn])) throw unfit();
  textOf(row[accountColumn]);
  return { requestId: bytesOf(requestId), values: row };
}

function inputOf(value: unknown): LeaseRequest {
  const { balanceId, missing, want, step, isFirst } = value as Record<keyof LeaseRequest, unknown>;
  if (!isAmount(missing) || !isAmount(want) || !isAmount(step) || step === 0n) throw unfit();
  return { balanceId: textOf(balanceId), missing, want, step, isFirst: isFirst === true };
}

function openRequestOf(value: unknown): OpenRequest {
  const { requestId, accountId, keyId, modelId, holdMicrocents, startedAt } = value as Record<
    keyof OpenRequest,
    unknown
  >;
  if (typeof startedAt !== 'number') throw unfit();
  return {
    requestId: bytesOf(requestId),
    accountId: textOf(accountId),
    keyId: textOf(keyId),
    modelId: textOf(modelId),
    holdMicrocents: amountOf(holdMicrocents),
    startedAt,
  };
}

/** The one movement of money that a request can make: refunding what its client was notified it does not pay. */
function refundOf(value: unknown): Transfer {
  const transfer = value as Transfer;
  if (transfer.kind !== 'refund' || !isAmount(transfer.amountMicrocents)) throw unfit();
  return { ...transfer, id: bytesOf(transfer.id), recording: [] };
}

/** Bytes of a request are views into the whole message, all of which would go on to the thread of the repositories. */
function ownBytes(request: unknown): unknown {
  if (typeof request !== 'object' || request === null) return request;
  return Object.fromEntries(
    Object.entries(request).map(([name, value]: [string, unknown]) => [
      name,
      value instanceof Uint8Array ? Uint8Array.from(value) : value,
    ]),
  );
}

const unfit = (): StoreError => new StoreError('invalid', 'what a worker asks for is of no known form');
