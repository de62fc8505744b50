import { setTimeout as sleep } from 'node:timers/promises';
import type { AccountStatus } from '../database.ts';
import type {
  AccountLedger,
  BudgetChange,
  Ending,
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
import * as steps from '../ledger-steps.ts';
import { accountsOfReturn, reinstate, reverse } from '../return-steps.ts';
import { StoreError } from '../store-error.ts';
import { balancesCharged } from '../reports/usage-columns.ts';
import { arrayText } from './array-text.ts';
import { Session, type PostgresAddress, type Run } from './connection.ts';
import { DatabaseClock } from './database-clock.ts';
import { debiting, Leases, type LeaseServer } from '../leases.ts';
import { postgresLeaseServer, balanceCalled, returnChannel } from './lease-server.ts';
import { Membership } from './membership.ts';
import { move, runSteps } from './run-steps.ts';
import { isConnectionLost, isWorthAnotherTry, storeErrorOf } from './postgres-error.ts';
import { Settlements } from './settlements.ts';
import { readUsage } from './statements.ts';

const operationTimeoutMs = 5_000;
const conflictTriesMax = 5;
/** Pause between tries to debit an account whose credit others have leased. */
const debitPauseMs = 50;

export interface PostgresLedgerOptions {
  readonly address: PostgresAddress;
  readonly free: FreeBalances;
  /** Generates UUIDv7s. */
  readonly newId: () => Uint8Array;
  /** Called for each transaction: its number of settlements, the time until its answer, and whether the store refused all of it. */
  readonly onBatch?: (rows: number, elapsedMs: number, isRefused: boolean) => void;
  /** Called when this process was out of contact and has expired. */
  readonly onExpired?: () => void;
}

/**
 * One of several ledgers on one database. Three connections, so that settlements, lease requests and heartbeats do not wait for each other.
 * A database outage never ends it: meanwhile its calls fail, and `silentMs` grows.
 */
export class PostgresLedger implements AccountLedger {
  readonly #free: FreeBalances;
  readonly #settling: Session;
  readonly #operating: Session;
  readonly #membership: Membership;
  readonly #settlements: Settlements;
  readonly #leaseServer: LeaseServer;
  readonly leases: Leases;
  readonly #clock = new DatabaseClock();
  #answeredMs = performance.now();
  #state: 'open' | 'closed' = 'open';

  constructor(options: PostgresLedgerOptions) {
    const { address, free, newId } = options;
    this.#free = free;
    const onAnswer = (): void => void (this.#answeredMs = performance.now());
    this.#settling = new Session({ address, onAnswer });
    this.#operating = new Session({ address, onAnswer });
    const heartbeating = new Session({
      address,
      onAnswer,
      onConnect: async (client) => {
        // A reaper waiting for an account's row would miss heartbeats; it retries later.
        await client.query(`listen ${returnChannel}; set lock_timeout = 300`);
      },
      onNotification: (payload) => {
        const balanceId = balanceCalled(payload, this.#membership.id);
        if (balanceId !== undefined) void this.leases.called(balanceId);
      },
    });
    this.#membership = new Membership({
      session: heartbeating,
      newId,
      onHeartbeat: (databaseMs, askedMs) => this.#clock.heard(databaseMs, askedMs),
      onExpired: () => {
        // The free and held amounts belonged to the earlier epoch.
        this.#free.forget();
        this.leases.forget();
        this.#settlements.forgetOpens();
        options.onExpired?.();
      },
    });
    const replica = (): Uint8Array => this.#membership.id;
    this.#settlements = new Settlements({ session: this.#settling, replica, onBatch: options.onBatch });
    this.#leaseServer = postgresLeaseServer(this.#operating, replica);
    this.leases = new Leases({ leaseServer: this.#leaseServer, free });
  }

  /** Starts the ledger. Requires that the database has its tables. Rejects with the driver's error. */
  async start(): Promise<void> {
    await this.#membership.start();
  }

  /** The database's time, used by all replicas; available once the ledger has started. */
  now(): number {
    return this.#clock.now();
  }

  get backlog(): number {
    return this.#settlements.backlog;
  }

  get silentMs(): number {
    return performance.now() - this.#answeredMs;
  }

  /** Until then the other replicas do not reclaim this process's leases; by `performance.now()`. */
  get safeUntilMs(): number {
    return this.#membership.safeUntilMs;
  }

  /** This process's replica id; a new one after it has expired. */
  get replicaId(): Uint8Array {
    return this.#membership.id;
  }

  settle(row: UsageRow): Promise<'billed' | 'lost'> {
    for (const balanceId of [row.accountId, ...balancesCharged(row)]) this.leases.spent(balanceId, row.costMicrocents);
    return this.#settlements.settle(row);
  }

  open(request: OpenRequest): void {
    this.#settlements.open(request);
  }

  async readBack(requestId: Uint8Array): Promise<{ costMicrocents: bigint; ending: Ending } | undefined> {
    const { rows } = await this.#inWords(
      this.#operating.query<{ cost: bigint; ending: Ending }>(readUsage, [[requestId]], operationTimeoutMs),
    );
    return rows[0] === undefined ? undefined : { costMicrocents: rows[0].cost, ending: rows[0].ending };
  }

  async probe(): Promise<void> {
    await this.#inWords(this.#settlements.probe());
  }

  async transfer(transfer: Transfer): Promise<boolean> {
    const { debitAccount, creditAccount } = transfer;
    const moved = await debiting(
      () => this.#transact((run) => move(run, transfer)),
      () => this.#callIn(debitAccount),
    );
    // A request that was refused a moment ago need not wait any longer.
    if (moved) this.#free.credit(creditAccount, 0n);
    return moved;
  }

  async reverse(request: Reversal): Promise<Reversed> {
    const { accountId } = request;
    const taken = await this.#returning(accountId, (run) => runSteps(run, reverse(request, 0n)));
    if (taken.owedMicrocents > 0n) await this.#callIn(accountId);
    return taken;
  }

  async reinstate(request: Reinstatement): Promise<Reinstated | undefined> {
    const { accountId } = request;
    const given = await this.#returning(accountId, (run) => runSteps(run, reinstate(request)));
    this.#free.credit(accountId, 0n);
    return given;
  }

  /** Serializes the returns of one account, so that their sum is known. */
  #returning<Value>(accountId: string, work: (run: Run) => Promise<Value>): Promise<Value> {
    return this.#transact(async (run) => {
      const text = 'select id from account where id = any($1::text[]) order by id for no key update';
      await run({ text }, [arrayText(accountsOfReturn(accountId))]);
      return await work(run);
    });
  }

  async createAccount(account: NewAccount): Promise<void> {
    await this.#transact((run) => runSteps(run, steps.createAccount(account)));
  }

  async setAccountStatus(accountId: string, status: AccountStatus, at: number, changeId: Uint8Array): Promise<void> {
    await this.#transact((run) => runSteps(run, steps.setAccountStatus(accountId, status, at, changeId)));
  }

  async setCreditLimit(accountId: string, toMicrocents: bigint, at: number, changeId: Uint8Array): Promise<void> {
    const set = (): Promise<void> =>
      this.#transact(async (run) => {
        await run({ text: 'select 1 from account where id = $1 and kind = 0 for update' }, [accountId]);
        await runSteps(run, steps.setCreditLimit(accountId, toMicrocents, { at, changeId, leasedMicrocents: 0n }));
      });
    await debiting(set, () => this.#callIn(accountId));
    this.#free.credit(accountId, 0n);
  }

  async setBudget(change: BudgetChange): Promise<void> {
    await this.#transact((run) => runSteps(run, steps.setBudget(change)));
    this.leases.budgetChanged(change.subject);
  }

  /** Writes what is queued, returns all leases, and leaves. Later calls are refused. */
  async close(): Promise<void> {
    if (this.#state === 'closed') return;
    this.#state = 'closed';
    await this.#settlements.close();
    await this.leases.close();
    await this.#settling.close();
    await this.#operating.close();
    await this.#membership.close();
  }

  /** Calls in the idle leases of an account: once returned to the balance they can be debited. */
  async #callIn(accountId: string): Promise<void> {
    await this.leases.called(accountId);
    await this.#leaseServer.callOthers(accountId).catch(() => {});
    await sleep(debitPauseMs * (0.75 + Math.random() / 2));
  }

  /** Runs `work` in a transaction; retries if it lost a race. After a lost connection the outcome is unknown. */
  async #transact<Value>(work: (run: Run) => Promise<Value>): Promise<Value> {
    if (this.#state === 'closed') throw new StoreError('failed', 'the ledger is closed');
    for (let conflicts = 0; ; conflicts++) {
      try {
        return await this.#operating.exclusively(operationTimeoutMs, async (run) => {
          await run({ text: 'begin' }, []);
          try {
            const value = await work(run);
            await run({ text: 'commit' }, []);
            return value;
          } catch (error) {
            if (!isConnectionLost(error)) await run({ text: 'rollback' }, []);
            throw error;
          }
        });
      } catch (error) {
        if (conflicts >= conflictTriesMax || !isWorthAnotherTry(error)) throw storeErrorOf(error);
        await sleep(Math.random() * 10 * 2 ** conflicts);
      }
    }
  }

  async #inWords<Value>(call: Promise<Value>): Promise<Value> {
    try {
      return await call;
    } catch (error) {
      throw storeErrorOf(error);
    }
  }
}
