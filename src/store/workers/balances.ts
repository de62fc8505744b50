import type { FreeBalances } from '../ledger.ts';
import { leaseOf, type LeaseWish } from '../leases.ts';
import { StoreError } from '../store-error.ts';

/** A process that spends out of balances which another one owns. */
export interface Borrower {
  /** Has it give back what is idle of the purse; resolves when that has arrived. */
  returnFree(purseId: string): Promise<unknown>;
}

/** A borrower that takes longer is not waited for, and not asked again until it has answered. */
const returnTimeoutMs = 1_000;

interface Balance {
  /** What nobody has borrowed and nothing has reserved. */
  free: bigint;
  loading: Promise<void> | undefined;
  isLoaded: boolean;
  /** The last of those that need what is not there, one after the other. */
  turn: Promise<unknown>;
}

/**
 * Whole purses (store/budget.ts), in the one process that owns the books, and what it has lent of them to others
 * (docs/money.md, "Several workers"). Nothing is lent twice: what is free here, and what each borrower has, is together what
 * the ledger has. A budget that was lowered may have less than nothing free.
 */
export class Balances implements FreeBalances {
  /** The whole purse the first time, 0n from then on. */
  readonly #load: (purseId: string) => Promise<bigint>;
  readonly #balances = new Map<string, Balance>();
  readonly #lent = new Map<Borrower, Map<string, bigint>>();
  readonly #silent = new Set<Borrower>();

  constructor(load: (purseId: string) => Promise<bigint>) {
    this.#load = load;
  }

  join(borrower: Borrower): void {
    this.#lent.set(borrower, new Map());
  }

  /** It is gone, and nothing that it has said is under way: what it had is free again. */
  leave(borrower: Borrower): void {
    const lent = this.#lent.get(borrower);
    this.#lent.delete(borrower);
    this.#silent.delete(borrower);
    if (lent !== undefined) for (const [purseId, microcents] of lent) this.#free(purseId, microcents);
  }

  /**
   * Lends what the wish asks for; 0n: there is not enough. Before it says so, all others have given back what is idle at
   * them, one wish of a purse after the other: so nobody is refused while what is missing lies unused, and of two that
   * need the last of it one gets it.
   */
  async lend(borrower: Borrower, wish: LeaseWish): Promise<bigint> {
    const { purseId } = wish;
    const balance = this.#balanceOf(purseId);
    await this.#loaded(purseId, balance);
    const there = this.#take(borrower, balance, wish);
    if (there > 0n || wish.missing === 0n) return there;
    const turn = balance.turn.then(async () => {
      const come = this.#take(borrower, balance, wish);
      if (come > 0n) return come;
      // An account that was suspended at the first question, or a budget that was set since, is in the database still.
      balance.free += await this.#load(purseId);
      await this.#callIn(purseId, borrower);
      return this.#take(borrower, balance, wish);
    });
    balance.turn = turn.catch(() => {});
    return await turn;
  }

  /** Takes back what the borrower does not need. Throws when it has no such lease. */
  giveBack(borrower: Borrower, purseId: string, microcents: bigint): void {
    if (microcents < 0n || !this.spend(borrower, [purseId], microcents))
      throw new StoreError('invalid', `more of ${purseId} comes back than was lent`);
    this.#free(purseId, microcents);
  }

  /** Takes a cost out of what was lent of each of these purses; false, and nothing is taken, when one of them has less. */
  spend(borrower: Borrower, purseIds: readonly string[], microcents: bigint): boolean {
    if (microcents === 0n) return true;
    const lent = this.#lent.get(borrower);
    if (lent === undefined || purseIds.some((purseId) => (lent.get(purseId) ?? 0n) < microcents)) return false;
    for (const purseId of purseIds) {
      const left = lent.get(purseId)! - microcents;
      if (left === 0n) lent.delete(purseId);
      else lent.set(purseId, left);
    }
    return true;
  }

  /** Nothing was debited for what `spend` has taken. */
  unspend(borrower: Borrower, purseIds: readonly string[], microcents: bigint): void {
    if (microcents === 0n) return;
    const lent = this.#lent.get(borrower);
    for (const purseId of purseIds) {
      if (lent === undefined) this.#free(purseId, microcents);
      else lent.set(purseId, (lent.get(purseId) ?? 0n) + microcents);
    }
  }

  /** Forgets the purses that are over, as far as nobody has any of them; returns which. */
  forget(isOver: (purseId: string) => boolean): readonly string[] {
    const over = [...this.#balances].filter(
      ([purseId, { loading }]) =>
        isOver(purseId) && loading === undefined && ![...this.#lent.values()].some((lent) => lent.has(purseId)),
    );
    for (const [purseId] of over) this.#balances.delete(purseId);
    return over.map(([purseId]) => purseId);
  }

  credit(purseId: string, microcents: bigint): void {
    this.#free(purseId, microcents);
  }

  reserve(purseId: string, microcents: bigint): boolean {
    const balance = this.#balances.get(purseId);
    if (balance === undefined || balance.free < microcents) return false;
    balance.free -= microcents;
    return true;
  }

  /** Has all give back what is idle of a purse, so that it can be debited. */
  callIn(purseId: string): Promise<void> {
    return this.#callIn(purseId, undefined);
  }

  /** The ledger tells of credit that the first answer does not hold, maybe in the same moment as it hands that out. */
  #free(purseId: string, microcents: bigint): void {
    const balance = this.#balances.get(purseId);
    if (balance !== undefined) balance.free += microcents;
  }

  #balanceOf(purseId: string): Balance {
    let balance = this.#balances.get(purseId);
    if (balance === undefined) {
      balance = { free: 0n, loading: undefined, isLoaded: false, turn: Promise.resolve() };
      this.#balances.set(purseId, balance);
    }
    return balance;
  }

  async #loaded(purseId: string, balance: Balance): Promise<void> {
    if (balance.isLoaded) return;
    balance.loading ??= this.#load(purseId)
      .then((microcents) => {
        balance.free += microcents;
        balance.isLoaded = true;
      })
      .finally(() => (balance.loading = undefined));
    await balance.loading;
  }

  #take(borrower: Borrower, balance: Balance, wish: LeaseWish): bigint {
    const lent = this.#lent.get(borrower);
    if (lent === undefined) throw new StoreError('failed', 'this borrower is gone');
    const leased = leaseOf(balance.free, wish);
    if (leased > 0n) {
      balance.free -= leased;
      lent.set(wish.purseId, (lent.get(wish.purseId) ?? 0n) + leased);
    }
    return leased;
  }

  async #callIn(purseId: string, except: Borrower | undefined): Promise<void> {
    const others = [...this.#lent].filter(
      ([borrower, lent]) => borrower !== except && lent.has(purseId) && !this.#silent.has(borrower),
    );
    await Promise.all(others.map(([borrower]) => this.#ask(borrower, purseId)));
  }

  async #ask(borrower: Borrower, purseId: string): Promise<void> {
    let timer: NodeJS.Timeout | undefined;
    const silence = new Promise<void>((resolve) => {
      timer = setTimeout(() => {
        this.#silent.add(borrower);
        resolve();
      }, returnTimeoutMs);
    });
    const answer = borrower
      .returnFree(purseId)
      .catch(() => {})
      .then(() => void this.#silent.delete(borrower));
    await Promise.race([answer, silence]);
    clearTimeout(timer);
  }
}
