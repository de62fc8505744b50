import { setTimeout as sleep } from 'node:timers/promises';
import { messageCharactersMax, PeerBoard } from '../../platform/peers/peers.ts';
import { withDeadline } from '../../platform/deadline.ts';
import type { Change } from '../feed.ts';
import type { AccountLedger, OpenRequest, Transfer } from '../ledger.ts';
import type { Granted, LeaseRequest } from '../leases.ts';
import { carryOut, forwardedRepositories } from '../repositories/forwarded.ts';
import type { Repositories, RepositoryOperation } from '../repositories/repositories.ts';
import { nameOf } from '../sqlite/ledger-batch.ts';
import { openSqliteStore, type SqliteStore, type SqliteStoreOptions } from '../sqlite/store.ts';
import { StoreError } from '../store-error.ts';
import { accountColumn, costColumn, usageColumns, type SqlValue } from '../reports/usage-columns.ts';
import type { WorkerPort } from './protocol.ts';

/** A worker that hears nothing for four of these admits no request. */
export const heartbeatEveryMs = 250;
/** How long a change waits to be in force at the workers; a worker that takes longer admits no request. */
const changeTimeoutMs = 1_000;
/** Interval of retries while the disk is full or the file is locked. */
const recordEveryMs = 500;
/** A worker that takes longer to return what is idle is not waited for, and not asked again until it has answered. */
const returnTimeoutMs = 1_000;
/** Between tries to debit a customer whose money is with the workers. */
const debitPauseMs = 50;

/** What a worker may call on the repositories: everything that requests need, and nothing that changes an account or a key. */
const repositoriesOfWorkers: ReadonlySet<string> = new Set<RepositoryOperation>([
  'loadKeys',
  'findKeys',
  'countKeys',
  'listKeyHashes',
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
  const workers = new Workers();
  const sqlite = await openSqliteStore({
    ...options,
    callIn: async (accountId, tries) => {
      await workers.callIn(accountId);
      if (tries > 0) await sleep(debitPauseMs);
    },
  });
  const heartbeats = setInterval(() => {
    workers.note('heartbeat', null);
  }, heartbeatEveryMs);
  const report = async (changeId: Uint8Array): Promise<void> => {
    const change = await sqlite.repositories.findChange({ id: changeId });
    if (change !== undefined) await workers.reported([change]);
  };
  return {
    store: {
      repositories: notifications(sqlite.repositories, report),
      ledger: ownLedger(sqlite, workers, report),
      migrated: sqlite.migrated,
      now: () => sqlite.now(),
      alone: (work) => sqlite.alone(work),
      tidy: () => sqlite.tidy(),
      close: async () => {
        clearInterval(heartbeats);
        await sqlite.close();
      },
    },
    serve: async (port, replicaId) => {
      await sqlite.ledger.beginReplica(replicaId, Date.now());
      const worker = new Worker(port, replicaId, sqlite, workers);
      workers.add(worker);
      return { end: () => worker.end() };
    },
  };
}

/** The workers that are alive, for what concerns several of them. */
class Workers {
  readonly messages = new PeerBoard();
  readonly #workers = new Set<Worker>();
  /** The last of the requests that need missing money of a balance, by its id: one after the other. */
  readonly #turns = new Map<string, Promise<unknown>>();
  /** They have not answered in time, and are not asked before they have. */
  readonly #silent = new Set<Worker>();

  add(worker: Worker): void {
    this.#workers.add(worker);
  }

  remove(worker: Worker): void {
    this.#workers.delete(worker);
    this.#silent.delete(worker);
  }

  note(...[name, value]: Parameters<WorkerPort['note']>): void {
    for (const { port } of this.#workers) port.note(name, value);
  }

  async reported(changes: readonly Change[]): Promise<void> {
    await Promise.all([...this.#workers].map((worker) => worker.reported(changes)));
  }

  /** Has all workers but one return what is idle of a balance; resolves when that has arrived. */
  async callIn(balanceId: string, except?: Worker): Promise<void> {
    const others = [...this.#workers].filter((worker) => worker !== except && !this.#silent.has(worker));
    await Promise.all(
      others.map(async (worker) => {
        const answer = worker.port.call('return_free', balanceId).then(
          () => void this.#silent.delete(worker),
          () => void this.#silent.delete(worker),
        );
        await withDeadline(answer, returnTimeoutMs, () => void this.#silent.add(worker));
      }),
    );
  }

  async inTurn<Value>(balanceId: string, work: () => Promise<Value>): Promise<Value> {
    const turn = (this.#turns.get(balanceId) ?? Promise.resolve()).then(work);
    const done = turn.then(
      () => {},
      () => {},
    );
    this.#turns.set(balanceId, done);
    try {
      return await turn;
    } finally {
      if (this.#turns.get(balanceId) === done) this.#turns.delete(balanceId);
    }
  }
}

/** One worker, as seen by the process that owns the ledger. */
class Worker {
  readonly port: WorkerPort;
  readonly #replicaId: Uint8Array;
  /** Its name as a client of leases. */
  readonly #client: string;
  readonly #sqlite: SqliteStore;
  readonly #repositories: Repositories;
  readonly #workers: Workers;
  /** Settlements under way: what was leased for them must not come back before they are written. */
  readonly #settling = new Set<Promise<unknown>>();
  #isGone = false;

  constructor(port: WorkerPort, replicaId: Uint8Array, sqlite: SqliteStore, workers: Workers) {
    this.port = port;
    this.#replicaId = replicaId;
    this.#client = nameOf(replicaId);
    this.#sqlite = sqlite;
    this.#repositories = sqlite.repositoriesOf(replicaId);
    this.#workers = workers;
    const { ledger } = sqlite;
    port.handle({
      settle: (value: unknown) => {
        const { requestId, values } = rowOf(value);
        const settling = ledger.settleOf(this.#client, requestId, values);
        this.#settling.add(settling);
        const settled = (): void => void this.#settling.delete(settling);
        settling.then(settled, settled);
        return settling;
      },
      open: (value: unknown) => ledger.openOf(replicaId, openRequestOf(value)),
      grant: (value: unknown) => this.#lease(inputOf(value)),
      return_unused: (value: unknown) => {
        const { balanceId, microcents } = value as { readonly balanceId: unknown; readonly microcents: unknown };
        return ledger.returnFrom(this.#client, textOf(balanceId), amountOf(microcents));
      },
      read_back: (value: unknown) => ledger.readBack(bytesOf(value)),
      probe: () => ledger.probe(),
      transfer: (value: unknown) => {
        const refund = refundOf(value);
        return transferred(ledger.transfer(refund), refund, workers);
      },
      repositories: (value: unknown) => this.#ask(value),
      look: () => null,
      exchange_messages: (text: unknown) =>
        workers.messages.exchange(this.#client, text === undefined ? undefined : messageOf(text)),
    });
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
    this.#workers.remove(this);
    this.#workers.messages.drop(this.#client);
    this.#isGone = true;
    await Promise.allSettled(this.#settling);
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

  /**
   * Leases what the worker asks for; 0n: there is not enough. Before it says so, all others have returned what is idle at them, one
   * request of a balance after the other: so no request is refused while the missing money lies unused, and of two that need the last
   * of it one gets it.
   */
  async #lease(request: LeaseRequest): Promise<bigint> {
    const { balanceId, missing } = request;
    const there = await this.#grant(request);
    if (there.leased > 0n || missing === 0n || !there.isElsewhere) return there.leased;
    return await this.#workers.inTurn(balanceId, async () => {
      const come = await this.#grant(request);
      if (come.leased > 0n || !come.isElsewhere) return come.leased;
      await this.#workers.callIn(balanceId, this);
      return (await this.#grant(request)).leased;
    });
  }

  #grant(request: LeaseRequest): Promise<Granted> {
    if (this.#isGone) return Promise.reject(new StoreError('failed', 'this worker is gone'));
    return this.#sqlite.ledger.grantTo(this.#client, request);
  }

  async #ask(value: unknown): Promise<unknown> {
    const { name, request } = value as { readonly name: unknown; readonly request: unknown };
    if (typeof name !== 'string' || !repositoriesOfWorkers.has(name))
      throw new StoreError('invalid', `a worker may not ask for '${String(name)}'`);
    return await carryOut(this.#repositories, name as RepositoryOperation, ownBytes(request));
  }
}

/** A request that was refused a moment ago need not wait any longer. */
async function transferred(moving: Promise<boolean>, { creditAccount }: Transfer, workers: Workers): Promise<boolean> {
  const moved = await moving;
  if (moved) workers.note('credited', creditAccount);
  return moved;
}

/** The ledger for the operator's changes, which are in force at the workers when it answers. */
function ownLedger(
  { ledger }: SqliteStore,
  workers: Workers,
  report: (changeId: Uint8Array) => Promise<void>,
): AccountLedger {
  return {
    replicaId: ledger.replicaId,
    get backlog() {
      return ledger.backlog;
    },
    silentMs: 0,
    leases: {
      lease: () => Promise.reject(new StoreError('invalid', 'the owner of a shared ledger answers no requests')),
      noteRemaining: () => {},
      freed: () => {},
      release: () => {},
      budgetChanged: () => {},
    },
    settle: (row) => ledger.settle(row),
    open: (request) => ledger.open(request),
    readBack: (requestId) => ledger.readBack(requestId),
    probe: () => ledger.probe(),
    transfer: (transfer) => transferred(ledger.transfer(transfer), transfer, workers),
    reverse: (request) => ledger.reverse(request),
    reinstate: async (request) => {
      const given = await ledger.reinstate(request);
      workers.note('credited', request.accountId);
      return given;
    },
    createAccount: async (account) => {
      await ledger.createAccount(account);
      await report(account.changeId);
    },
    setAccountStatus: async (accountId, status, at, changeId) => {
      await ledger.setAccountStatus(accountId, status, at, changeId);
      await report(changeId);
    },
    setCreditLimit: async (accountId, toMicrocents, at, changeId) => {
      await ledger.setCreditLimit(accountId, toMicrocents, at, changeId);
      workers.note('credited', accountId);
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

function messageOf(value: unknown): string {
  const text = textOf(value);
  if (text.length > messageCharactersMax) throw unfit();
  return text;
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
  const own = (value: unknown): unknown => (value instanceof Uint8Array ? Uint8Array.from(value) : value);
  return Object.fromEntries(
    Object.entries(request).map(([name, value]: [string, unknown]) => [
      name,
      Array.isArray(value) ? value.map(own) : own(value),
    ]),
  );
}

const unfit = (): StoreError => new StoreError('invalid', 'what a worker asks for is of no known form');
