import { withDeadline } from '../../platform/deadline.ts';
import type { FreeBalances } from '../ledger.ts';
import { leaseOf, type LeaseRequest } from '../leases.ts';
import { StoreError } from '../store-error.ts';

/** A process that spends out of balances that another one owns. */
export interface LeaseClient {
  /** Has it return what is idle of the balance; resolves when that has arrived. */
  releaseUnused(balanceId: string): Promise<unknown>;
}

/** A lease client that takes longer is not waited for, and not asked again until it has answered. */
const returnTimeoutMs = 1_000;

interface Balance {
  /** What is neither borrowed nor reserved. */
  free: bigint;
  loading: Promise<void> | undefined;
  isLoaded: boolean;
  /** The last of the requests that need missing money, one after the other. */
  turn: Promise<unknown>;
}

/**
 * Whole balances (store/budget.ts), in the one process that owns the ledger, and what it has lent of them to others
 * (docs/money.md, "Several workers"). Nothing is lent twice: what is free here plus what each lease client has is what the ledger
 * has. A budget that was lowered may have less than nothing free.
 */
export class Balances implements FreeBalances {
  /** The whole balance the first time, 0n from then on. */
  readonly #load: (balanceId: string) => Promise<bigint>;
  readonly #balances = new Map<string, Balance>();
  readonly #lent = new Map<LeaseClient, Map<string, bigint>>();
  readonly #silent = new Set<LeaseClient>();

  constructor(load: (balanceId: string) => Promise<bigint>) {
    this.#load = load;
  }

  join(leaseClient: LeaseClient): void {
    this.#lent.set(leaseClient, new Map());
  }

  /** It is gone, and none of its messages is under way: what it had is free again. */
  leave(leaseClient: LeaseClient): void {
    const lent = this.#lent.get(leaseClient);
    this.#lent.delete(leaseClient);
    this.#silent.delete(leaseClient);
    if (lent !== undefined) for (const [balanceId, microcents] of lent) this.#free(balanceId, microcents);
  }

  /**
   * Lends what the request asks for; 0n: there is not enough. Before it says so, all others have returned what is idle at them,
   * one request of a balance after the other: so no request is refused while the missing money lies unused, and of two that need
   * the last of it one gets it.
   */
  async lease(leaseClient: LeaseClient, input: LeaseRequest): Promise<bigint> {
    const { balanceId } = input;
    const balance = this.#balanceOf(balanceId);
    await this.#loaded(balanceId, balance);
    const there = this.#take(leaseClient, balance, input);
    if (there > 0n || input.missing === 0n) return there;
    const turn = balance.turn.then(async () => {
      const come = this.#take(leaseClient, balance, input);
      if (come > 0n) return come;
      // The database still has that of an account suspended at the first request, or of a budget that was set since.
      balance.free += await this.#load(balanceId);
      await this.#callIn(balanceId, leaseClient);
      return this.#take(leaseClient, balance, input);
    });
    balance.turn = turn.catch(() => {});
    return await turn;
  }

  /** Takes back what the lease client does not need. Throws when it has no such lease. */
  returnUnused(leaseClient: LeaseClient, balanceId: string, microcents: bigint): void {
    if (microcents < 0n || !this.spend(leaseClient, [balanceId], microcents))
      throw new StoreError('invalid', `more of ${balanceId} comes back than was lent`);
    this.#free(balanceId, microcents);
  }

  /** Takes a cost out of what was lent of each of these balances; false, and nothing is taken, when one of them has less. */
  spend(leaseClient: LeaseClient, balanceIds: readonly string[], microcents: bigint): boolean {
    if (microcents === 0n) return true;
    const lent = this.#lent.get(leaseClient);
    if (lent === undefined || balanceIds.some((balanceId) => (lent.get(balanceId) ?? 0n) < microcents)) return false;
    for (const balanceId of balanceIds) {
      const left = lent.get(balanceId)! - microcents;
      if (left === 0n) lent.delete(balanceId);
      else lent.set(balanceId, left);
    }
    return true;
  }

  /** Nothing was debited for what `spend` has taken. */
  unspend(leaseClient: LeaseClient, balanceIds: readonly string[], microcents: bigint): void {
    if (microcents === 0n) return;
    const lent = this.#lent.get(leaseClient);
    for (const balanceId of balanceIds) {
      if (lent === undefined) this.#free(balanceId, microcents);
      else lent.set(balanceId, (lent.get(balanceId) ?? 0n) + microcents);
    }
  }

  /** Forgets the balances that are over, unless a lease client has some of them; returns which. */
  forget(isOver: (balanceId: string) => boolean): readonly string[] {
    const over = [...this.#balances].filter(
      ([balanceId, { loading }]) =>
        isOver(balanceId) && loading === undefined && ![...this.#lent.values()].some((lent) => lent.has(balanceId)),
    );
    for (const [balanceId] of over) this.#balances.delete(balanceId);
    return over.map(([balanceId]) => balanceId);
  }

  credit(balanceId: string, microcents: bigint): void {
    this.#free(balanceId, microcents);
  }

  reserve(balanceId: string, microcents: bigint): boolean {
    const balance = this.#balances.get(balanceId);
    if (balance === undefined || balance.free < microcents) return false;
    balance.free -= microcents;
    return true;
  }

  /** Has all clients return what is idle of a balance, so that it can be debited. */
  callIn(balanceId: string): Promise<void> {
    return this.#callIn(balanceId, undefined);
  }

  /** The ledger reports credit that the first answer does not include, possibly in the same moment as it hands that out. */
  #free(balanceId: string, microcents: bigint): void {
    const balance = this.#balances.get(balanceId);
    if (balance !== undefined) balance.free += microcents;
  }

  #balanceOf(balanceId: string): Balance {
    let balance = this.#balances.get(balanceId);
    if (balance === undefined) {
      balance = { free: 0n, loading: undefined, isLoaded: false, turn: Promise.resolve() };
      this.#balances.set(balanceId, balance);
    }
    return balance;
  }

  async #loaded(balanceId: string, balance: Balance): Promise<void> {
    if (balance.isLoaded) return;
    balance.loading ??= this.#load(balanceId)
      .then((microcents) => {
        balance.free += microcents;
        balance.isLoaded = true;
      })
      .finally(() => (balance.loading = undefined));
    await balance.loading;
  }

  #take(leaseClient: LeaseClient, balance: Balance, input: LeaseRequest): bigint {
    const lent = this.#lent.get(leaseClient);
    if (lent === undefined) throw new StoreError('failed', 'this lease client is gone');
    const leased = leaseOf(balance.free, input);
    if (leased > 0n) {
      balance.free -= leased;
      lent.set(input.balanceId, (lent.get(input.balanceId) ?? 0n) + leased);
    }
    return leased;
  }

  async #callIn(balanceId: string, except: LeaseClient | undefined): Promise<void> {
    const others = [...this.#lent].filter(
      ([leaseClient, lent]) => leaseClient !== except && lent.has(balanceId) && !this.#silent.has(leaseClient),
    );
    await Promise.all(others.map(([leaseClient]) => this.#ask(leaseClient, balanceId)));
  }

  async #ask(leaseClient: LeaseClient, balanceId: string): Promise<void> {
    const answer = leaseClient
      .releaseUnused(balanceId)
      .catch(() => {})
      .then(() => void this.#silent.delete(leaseClient));
    await withDeadline(answer, returnTimeoutMs, () => void this.#silent.add(leaseClient));
  }
}
