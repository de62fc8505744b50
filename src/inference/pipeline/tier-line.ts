import type { Tier } from '../../generation/tier.ts';
import type { Model } from '../../catalog/model.ts';
import { Turns, type Turn } from './turns.ts';

/** What the queue has to know of a request: an `Order` is one. */
export interface Asking {
  readonly tier: Tier;
  readonly account: { readonly id: string; readonly plan?: string | undefined };
  readonly key: { readonly id: string };
  readonly model: Pick<Model, 'tiers'>;
  readonly promptTokensLikely: number;
  readonly completionTokensMax: number;
}

/** Tokens of an answer that a request counts as before its end is known. */
const answerTokensLikely = 512;

/** What a request counts as until its tokens are known. */
export const tokensAsked = ({ promptTokensLikely, completionTokensMax }: Asking): number =>
  Math.max(1, promptTokensLikely + Math.min(completionTokensMax, answerTokensLikely));

/** A request in a line. */
export interface Waiting {
  readonly asking: Asking;
  /** Gives it a slot, if there is one for it now; false: there is none. Throws nothing; one that can have none any more leaves. */
  grant(): boolean;
}

/**
 * Slots that go to tiers before it while somebody waits, until one of its own is due. So `default` has at least every fifth slot, `flex` at
 * least every seventeenth, in whatever numbers the others come; a batch has a day, and waits until nobody else does.
 */
const passesMax: Readonly<Record<Tier, number>> = { priority: Infinity, default: 3, flex: 15, batch: Infinity };

/** Those who wait in one tier: accounts take turns, in an account its keys, and of a key the first to come is the first to be served. */
export class TierLine<Of extends Waiting> {
  readonly tier: Tier;
  /** How often tiers before it got a slot since one of its own did. */
  passes = 0;
  #length = 0;
  readonly #turns = new Turns<AccountLine<Of>>();
  /** Those that wait, and those that have had too much; until nobody waits: then there is nobody to be fair to. */
  readonly #accounts = new Map<string, AccountLine<Of>>();

  constructor(tier: Tier) {
    this.tier = tier;
  }

  get length(): number {
    return this.#length;
  }

  get isDue(): boolean {
    return this.passes >= passesMax[this.tier];
  }

  lengthOf(accountId: string): number {
    return this.#accounts.get(accountId)?.length ?? 0;
  }

  /** How many requests of other accounts get their turns while this one has that many. */
  turnsOfOthers(accountId: string, turns: number): number {
    let sum = 0;
    for (const { id, length } of this.#turns.waiting) if (id !== accountId) sum += Math.min(length, turns);
    return sum;
  }

  /** The newest request of the account that has most waiting, if it has as many as that. */
  newestOfLongest(least: number): Of | undefined {
    let longest: AccountLine<Of> | undefined;
    for (const each of this.#turns.waiting)
      if (each.length >= Math.max(least, (longest?.length ?? 0) + 1)) longest = each;
    return longest?.newest();
  }

  add(waiting: Of, weight: number): void {
    const { id } = waiting.asking.account;
    let line = this.#accounts.get(id);
    if (line === undefined) {
      line = new AccountLine(id);
      this.#accounts.set(id, line);
    }
    line.weight = weight;
    if (this.#length === 0) this.passes = 0;
    if (line.length === 0) this.#turns.add(line);
    line.add(waiting);
    this.#length++;
  }

  remove(waiting: Of): void {
    const line = this.#accounts.get(waiting.asking.account.id)!;
    line.remove(waiting);
    this.#length--;
    if (line.length === 0) this.#turns.remove(line);
    if (this.#length === 0) this.#accounts.clear();
    else if (this.#accounts.size > 2 * this.#turns.waiting.length + 100) this.#forget();
  }

  /** Gives a slot to the first in turn who can use it; false: nobody can. */
  grant(): boolean {
    if (this.#turns.next((account) => account.grant()) === undefined) return false;
    this.passes = 0;
    return true;
  }

  /** A request of the account took more tokens than it was expected to, or fewer. */
  correct({ account, key }: Asking, moreTokens: number): void {
    const line = this.#accounts.get(account.id);
    if (line === undefined) return;
    this.#turns.charge(line, moreTokens);
    line.correct(key.id, moreTokens);
  }

  #forget(): void {
    for (const [id, line] of this.#accounts)
      if (line.length === 0 && this.#turns.isForgotten(line)) this.#accounts.delete(id);
  }
}

class AccountLine<Of extends Waiting> implements Turn {
  readonly id: string;
  weight = 1;
  had = 0;
  length = 0;
  readonly #turns = new Turns<KeyLine<Of>>();
  /** Those that wait, and those that have waited since the account is known here. */
  readonly #keys = new Map<string, KeyLine<Of>>();

  constructor(id: string) {
    this.id = id;
  }

  add(waiting: Of): void {
    const { id } = waiting.asking.key;
    let line = this.#keys.get(id);
    if (line === undefined) {
      line = new KeyLine();
      this.#keys.set(id, line);
    }
    if (line.waiting.size === 0) this.#turns.add(line);
    line.waiting.add(waiting);
    this.length++;
  }

  remove(waiting: Of): void {
    const line = this.#keys.get(waiting.asking.key.id)!;
    line.waiting.delete(waiting);
    this.length--;
    if (line.waiting.size === 0) this.#turns.remove(line);
    if (this.#keys.size > 2 * this.#turns.waiting.length + 100) this.#forget();
  }

  /** Returns the tokens that the request is expected to take. */
  grant(): number | undefined {
    return this.#turns.next(({ waiting }) => {
      for (const each of waiting) if (each.grant()) return tokensAsked(each.asking);
      return undefined;
    });
  }

  correct(keyId: string, moreTokens: number): void {
    const key = this.#keys.get(keyId);
    if (key !== undefined) this.#turns.charge(key, moreTokens);
  }

  newest(): Of {
    let longest: KeyLine<Of> | undefined;
    for (const each of this.#turns.waiting) if (each.waiting.size > (longest?.waiting.size ?? 0)) longest = each;
    return [...longest!.waiting].at(-1)!;
  }

  #forget(): void {
    for (const [id, line] of this.#keys)
      if (line.waiting.size === 0 && this.#turns.isForgotten(line)) this.#keys.delete(id);
  }
}

class KeyLine<Of extends Waiting> implements Turn {
  readonly weight = 1;
  had = 0;
  readonly waiting = new Set<Of>();
}
