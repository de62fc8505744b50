import { setImmediate as nextTurn } from 'node:timers/promises';
import type { Feed, Follows } from '../feed.ts';
import { nothingFree, type AccountLedger, type Ending, type FreeBalances, type NewAccount } from '../ledger.ts';
import { type OpenRequest, type Transfer, type UsageRow } from '../ledger.ts';
import type { Peers } from '../../platform/peers/peers.ts';
import { Leases } from '../leases.ts';
import { forwardedRepositories } from '../repositories/forwarded.ts';
import type { Repositories } from '../repositories/repositories.ts';
import { StoreError } from '../store-error.ts';
import { balancesCharged, usageValues } from '../reports/usage-columns.ts';
import type { OwnerPort } from './protocol.ts';
import { RemoteLimitLeases } from './remote-limits.ts';
import { RemoteFeed } from './remote-feed.ts';

/** Far above what admission lets through (`backlog`): a bound, not a plan. */
const queueMax = 100_000;

export interface RemoteStoreOptions {
  readonly port: OwnerPort;
  /** The id that the owner of the ledger has given this process. */
  readonly replicaId: Uint8Array;
  /** The clock by which the owner times the windows of limits. */
  readonly limitClock: () => number;
  readonly free?: FreeBalances;
  readonly log?: (level: 'info' | 'warn', message: string, fields: Readonly<Record<string, unknown>>) => void;
}

export interface RemoteStore {
  readonly ledger: AccountLedger;
  readonly repositories: Repositories;
  readonly limits: RemoteLimitLeases;
  readonly peers: Peers;
  readonly limitClock: () => number;
  readonly migrated: readonly string[];
  now(): number;
  follow(follower: Follows): Promise<Feed>;
  alone<Value>(work: () => Promise<Value>): Promise<Value>;
  tidy(): Promise<void>;
  close(): Promise<void>;
}

/** A ledger that another process on this machine owns (`openLedgerServer`). Its end is the end of this one. */
export function openRemoteStore({
  port,
  replicaId,
  limitClock,
  free = nothingFree(),
  log,
}: RemoteStoreOptions): RemoteStore {
  const repositories = forwardedRepositories((name, request) => port.call('repositories', { name, request }));
  const feed = new RemoteFeed(port, repositories, (level, message) => log?.(level, message, {}));
  const ledger = new RemoteLedger(port, replicaId, free, () => feed.silentMs);
  return {
    ledger,
    repositories,
    limits: new RemoteLimitLeases(port),
    peers: { exchange: (text) => port.call('exchange_messages', text) },
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

/** Spends out of leases, like a replica on PostgreSQL; everything else goes to the owner. */
class RemoteLedger implements AccountLedger {
  readonly replicaId: Uint8Array;
  readonly #port: OwnerPort;
  readonly leases: Leases;
  readonly #silentMs: () => number;
  #settling = 0;

  constructor(port: OwnerPort, replicaId: Uint8Array, free: FreeBalances, silentMs: () => number) {
    this.replicaId = replicaId;
    this.#port = port;
    this.#silentMs = silentMs;
    this.leases = new Leases({
      free,
      leaseServer: {
        // The owner has called on all others before it refuses, and begins balances by itself.
        grant: async (input) => ({ leased: await port.call('grant', input), isElsewhere: false, isThere: true }),
        returnUnused: (balanceId, microcents) => port.call('return_unused', { balanceId, microcents }),
        callOthers: () => Promise.resolve(),
      },
    });
    port.handle({
      return_free: async (balanceId) => {
        // What has arrived before this call is in the free balance in the next turn.
        await nextTurn();
        await this.leases.called(balanceId);
      },
      credited: (balanceId) => free.credit(balanceId, 0n),
    });
  }

  get backlog(): number {
    return this.#settling;
  }

  get silentMs(): number {
    return this.#silentMs();
  }

  async settle(row: UsageRow): Promise<'billed' | 'lost'> {
    if (this.#settling >= queueMax) throw new StoreError('busy', 'too much waits to be written');
    const values = usageValues(row);
    for (const balanceId of [row.accountId, ...balancesCharged(row)]) this.leases.spent(balanceId, row.costMicrocents);
    this.#settling++;
    try {
      return await this.#port.call('settle', { requestId: row.requestId, values });
    } finally {
      this.#settling--;
    }
  }

  open({ requestId, accountId, keyId, modelId, holdMicrocents, startedAt }: OpenRequest): void {
    this.#port.note('open', { requestId, accountId, keyId, modelId, holdMicrocents, startedAt });
  }

  readBack(requestId: Uint8Array): Promise<{ costMicrocents: bigint; ending: Ending } | undefined> {
    return this.#port.call('read_back', requestId);
  }

  probe(): Promise<void> {
    return this.#port.call('probe', null);
  }

  transfer(transfer: Transfer): Promise<boolean> {
    return this.#port.call('transfer', transfer);
  }

  createAccount(_account: NewAccount): Promise<void> {
    return Promise.reject(notHere());
  }

  reverse(): Promise<never> {
    return Promise.reject(notHere());
  }

  reinstate(): Promise<never> {
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
    return this.leases.close();
  }
}

const notHere = (): StoreError => new StoreError('invalid', 'accounts are changed by the owner of the ledger');
