import { setImmediate as nextTurn } from 'node:timers/promises';
import type { Feed, Follows } from '../feed.ts';
import { nothingFree, type AccountLedger, type Ending, type LeasedBalances, type NewAccount } from '../ledger.ts';
import { type OpenRequest, type Transfer, type UsageRow } from '../ledger.ts';
import { Leases } from '../leases.ts';
import type { Desk } from '../operations.ts';
import { StoreError } from '../store-error.ts';
import { pursesCharged, usageValues } from '../usage-columns.ts';
import type { Port } from './port.ts';
import { RemoteLimitLeases } from './remote-limits.ts';
import { RemoteFeed } from './remote-feed.ts';

/** Far above what admission lets through (`backlog`): a bound, not a plan. */
const queueMax = 100_000;

export interface RemoteStoreOptions {
  readonly port: Port;
  /** What the owner of the books calls this process. */
  readonly replicaId: Uint8Array;
  /** The one by which the owner times the windows of limits. */
  readonly limitClock: () => number;
  readonly free?: LeasedBalances;
  readonly log?: (level: 'info' | 'warn', message: string, fields: Readonly<Record<string, unknown>>) => void;
}

export interface RemoteStore {
  readonly ledger: AccountLedger;
  readonly desk: Desk;
  readonly limits: RemoteLimitLeases;
  readonly limitClock: () => number;
  readonly migrated: readonly string[];
  now(): number;
  follow(follower: Follows): Promise<Feed>;
  alone<Value>(work: () => Promise<Value>): Promise<Value>;
  tidy(): Promise<void>;
  close(): Promise<void>;
}

/** Books that another process on this machine owns (`openSharedBooks`). Its end is the end of this one. */
export function openRemoteStore({
  port,
  replicaId,
  limitClock,
  free = nothingFree(),
  log,
}: RemoteStoreOptions): RemoteStore {
  const desk = new Proxy({} as Desk, {
    // `then` would make it look like a promise to `await`.
    get: (_target, name) => (name === 'then' ? undefined : (request: unknown) => port.call('desk', { name, request })),
  });
  const feed = new RemoteFeed(port, desk, (level, message) => log?.(level, message, {}));
  const ledger = new RemoteLedger(port, replicaId, free, () => feed.silentMs);
  return {
    ledger,
    desk,
    limits: new RemoteLimitLeases(port),
    limitClock,
    migrated: [],
    // The owner is on this machine.
    now: Date.now,
    follow: async (follower) => {
      await feed.start(follower);
      return feed;
    },
    alone: () => Promise.reject(notHere()),
    // The owner does it.
    tidy: () => Promise.resolve(),
    close: () => ledger.close(),
  };
}

/** Spends out of leases, as a replica on PostgreSQL does; all else goes to the owner. */
class RemoteLedger implements AccountLedger {
  readonly replicaId: Uint8Array;
  readonly #port: Port;
  readonly #leases: Leases;
  readonly #silentMs: () => number;
  #settling = 0;

  constructor(port: Port, replicaId: Uint8Array, free: LeasedBalances, silentMs: () => number) {
    this.replicaId = replicaId;
    this.#port = port;
    this.#silentMs = silentMs;
    this.#leases = new Leases({
      free,
      lender: {
        // The owner has called on all others before it says no, and begins purses by itself.
        grant: async (wish) => ({
          leased: (await port.call('grant', wish)) as bigint,
          isElsewhere: false,
          isThere: true,
        }),
        giveBack: (purseId, microcents) => port.call('give_back', { purseId, microcents }),
        callOthers: () => Promise.resolve(),
      },
    });
    port.on('return_free', async (purseId) => {
      // What has arrived before this call is in the free balance in the next turn.
      await nextTurn();
      await this.#leases.called(purseId as string);
    });
    port.on('credited', (purseId) => free.credit(purseId as string, 0n));
  }

  get backlog(): number {
    return this.#settling;
  }

  get silentMs(): number {
    return this.#silentMs();
  }

  slice(purseId: string, needMicrocents: bigint): Promise<bigint> {
    return this.#leases.slice(purseId, needMicrocents);
  }

  left(purseId: string, freeMicrocents: bigint): void {
    this.#leases.left(purseId, freeMicrocents);
  }

  release(purseId: string): void {
    this.#leases.release(purseId);
  }

  budgetChanged(subject: string | undefined): void {
    this.#leases.returnBudget(subject);
  }

  async settle(row: UsageRow): Promise<'billed' | 'lost'> {
    if (this.#settling >= queueMax) throw new StoreError('busy', 'too much waits to be written');
    const values = usageValues(row);
    for (const purseId of [row.accountId, ...pursesCharged(row)]) this.#leases.spent(purseId, row.costMicrocents);
    this.#settling++;
    try {
      return (await this.#port.call('settle', { requestId: row.requestId, values })) as 'billed' | 'lost';
    } finally {
      this.#settling--;
    }
  }

  open({ requestId, accountId, keyId, modelId, holdMicrocents, startedAt }: OpenRequest): void {
    this.#port.note('open', { requestId, accountId, keyId, modelId, holdMicrocents, startedAt });
  }

  readBack(requestId: Uint8Array): Promise<{ costMicrocents: bigint; ending: Ending } | undefined> {
    return this.#port.call('read_back', requestId) as Promise<{ costMicrocents: bigint; ending: Ending } | undefined>;
  }

  async probe(): Promise<void> {
    await this.#port.call('probe', null);
  }

  transfer(transfer: Transfer): Promise<boolean> {
    return this.#port.call('transfer', transfer) as Promise<boolean>;
  }

  createAccount(_account: NewAccount): Promise<void> {
    return Promise.reject(notHere());
  }

  setAccountStatus(): Promise<void> {
    return Promise.reject(notHere());
  }

  setCreditLimit(): Promise<void> {
    return Promise.reject(notHere());
  }

  setBudget(): Promise<void> {
    return Promise.reject(notHere());
  }

  /** What is still leased goes back when this process is gone. */
  close(): Promise<void> {
    return this.#leases.close();
  }
}

const notHere = (): StoreError => new StoreError('invalid', 'accounts are changed by the owner of the books');
