import type { CachedPrefixes } from './cached-prefixes.ts';
import type { PromptPrefixes } from './prompt-prefixes.ts';

/** The presumed prompt cache of one backend: the prompt prefixes that were sent there. */
export interface CacheView {
  /** The backend's number in the index, from 1; 0: nothing was sent there yet. */
  cacheNumber: number;
  /** Capacity in tokens. */
  cacheTokensMax: number;
  readonly cached: CachedPrefixes;
  /** Sum of `tokens` in `cached`. */
  cacheTokens: number;
}

/**
 * The assumed size of a cache whose size is unknown: rather too large than too small. On a real trace, servers with four times the assumed
 * size found 20 instead of 32 % there, and servers with a quarter of it found what they would have found anyway (bench/results.md).
 */
export const cacheTokensUnknown = 1_048_576;

/** Maximum prefixes in all views of an index; each takes some 150 bytes. */
const prefixesMax = 1_000_000;

/**
 * Which backends of a model have which prompt prefixes in their caches, inferred from what was sent there. A lookup costs one step for each
 * prefix of the prompt and one for each backend, however many backends have it.
 *
 * A server drops the least recently used block first, and the last block of a prompt before its others, so a backend that has a prefix also
 * has the shorter ones.
 */
export class CacheIndex {
  /** Numbers of the views that have each prefix, by its hash. */
  readonly #holders = new Map<number, number[]>();
  /** The result of the last lookup, by view number. */
  #cachedTokens = new Float64Array(16);
  /** How many entries of the last result are above 0. */
  #looked = 0;
  /** One of the views with the longest part of the prompt, of the last result. */
  #longest = { number: 0, tokens: 0 };
  readonly #found: number[][] = [];
  #uses = 0;
  #prefixes = 0;
  #numbers = 0;
  readonly #freeNumbers: number[] = [];

  /** A view with the longest part of the prompt that was looked up last, by its number; 0 tokens: none has any of it. */
  get longest(): { readonly number: number; readonly tokens: number } {
    return this.#longest;
  }

  /**
   * Looks up the prefixes of a prompt. Returns how many of its tokens each view has, by the view's number, valid until the next call of any
   * method; entry 0 is 0.
   */
  look({ hashes, tokens }: PromptPrefixes): Float64Array {
    const cached = this.#cachedTokens;
    if (this.#looked > 0) cached.fill(0);
    let looked = 0;
    let count = 0;
    for (; count < hashes.length; count++) {
      const holders = this.#holders.get(hashes[count]!);
      if (holders === undefined) break;
      this.#found[count] = holders;
    }
    for (let index = count - 1; index >= 0; index--) {
      const holders = this.#found[index]!;
      // The holders of the longer prefixes are among them.
      if (holders.length === looked) continue;
      const tokensUpTo = tokens[index]!;
      for (let holder = 0; holder < holders.length; holder++) {
        const number = holders[holder]!;
        if (cached[number] !== 0) continue;
        cached[number] = tokensUpTo;
        looked++;
      }
    }
    this.#longest.number = count === 0 ? 0 : (this.#found[count - 1]![0] ?? 0);
    this.#longest.tokens = count === 0 ? 0 : tokens[count - 1]!;
    this.#found.length = 0;
    this.#looked = looked;
    return cached;
  }

  /** Records that a prompt is sent to the backend. Returns when its longest known prefix was last used there; 0: there was none. */
  use(view: CacheView, { hashes, tokens }: PromptPrefixes): number {
    let usedAt = 0;
    const now = ++this.#uses;
    const { cached } = view;
    // The longest first, so that it is evicted first.
    for (let index = hashes.length - 1; index >= 0; index--) {
      const hash = hashes[index]!;
      const before = cached.use(hash, now);
      if (before === 0) this.#add(view, hash, tokens[index]! - (tokens[index - 1] ?? 0), now);
      else if (usedAt === 0) usedAt = before;
    }
    this.#keepWithin(view);
    return usedAt;
  }

  /** Sets the capacity in tokens, and evicts what exceeds it. */
  resize(view: CacheView, cacheTokensMax: number): void {
    view.cacheTokensMax = cacheTokensMax;
    this.#keepWithin(view);
  }

  #keepWithin(view: CacheView): void {
    while (view.cacheTokens > view.cacheTokensMax || this.#prefixes > prefixesMax) {
      const { oldest } = view.cached;
      if (oldest === undefined) break;
      this.#remove(view, oldest.hash);
    }
  }

  /** Number of prompts sent. */
  get uses(): number {
    return this.#uses;
  }

  /**
   * Undoes `use` for the `sentAt`th prompt, which was not read to its end: prefixes that were new, and that no later prompt used, are not
   * in the cache.
   */
  reverse(view: CacheView, { hashes, tokens }: PromptPrefixes, sentAt: number, cachedTokens: number): void {
    for (let index = hashes.length - 1; index >= 0 && tokens[index]! > cachedTokens + 1; index--)
      if (view.cached.get(hashes[index]!)?.usedAt === sentAt) this.#remove(view, hashes[index]!);
  }

  /** Drops everything last used at or before `usedAt`: an entry last used then has turned out to be gone, so older ones are gone too. */
  dropUsedUntil(view: CacheView, usedAt: number): void {
    for (let { oldest } = view.cached; oldest !== undefined && oldest.usedAt <= usedAt; { oldest } = view.cached)
      this.#remove(view, oldest.hash);
  }

  /** Drops the view: its cache is empty, or its backend has left. */
  drop(view: CacheView): void {
    this.dropUsedUntil(view, Infinity);
    if (view.cacheNumber === 0) return;
    this.#cachedTokens[view.cacheNumber] = 0;
    this.#freeNumbers.push(view.cacheNumber);
    view.cacheNumber = 0;
  }

  #add(view: CacheView, hash: number, tokens: number, usedAt: number): void {
    if (view.cacheNumber === 0) view.cacheNumber = this.#newNumber();
    view.cached.add({ hash, tokens, usedAt });
    view.cacheTokens += tokens;
    this.#prefixes++;
    const holders = this.#holders.get(hash);
    if (holders === undefined) this.#holders.set(hash, [view.cacheNumber]);
    else holders.push(view.cacheNumber);
  }

  #newNumber(): number {
    const number = this.#freeNumbers.pop() ?? ++this.#numbers;
    if (number >= this.#cachedTokens.length) {
      const larger = new Float64Array(2 * this.#cachedTokens.length);
      larger.set(this.#cachedTokens);
      this.#cachedTokens = larger;
    }
    return number;
  }

  #remove(view: CacheView, hash: number): void {
    view.cacheTokens -= view.cached.remove(hash).tokens;
    this.#prefixes--;
    const holders = this.#holders.get(hash)!;
    if (holders.length === 1) this.#holders.delete(hash);
    else {
      const last = holders.pop()!;
      if (last !== view.cacheNumber) holders[holders.indexOf(view.cacheNumber)] = last;
    }
  }
}
