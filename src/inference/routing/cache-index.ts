import type { PromptPrefixes } from './prompt-prefixes.ts';

/** What is believed to be in the prompt cache of one backend: beginnings of prompts that were sent there, the last used last. */
export interface CacheView {
  /** Tokens at the beginning of the request that is being placed, set by `CacheIndex.look`. */
  cachedTokens: number;
  /** Tokens that the cache holds. */
  cacheTokensMax: number;
  readonly cached: Map<number, CachedPrefix>;
  /** Sum of `tokens` in `cached`. */
  cacheTokens: number;
}

interface CachedPrefix {
  /** Beyond the beginning before it. */
  tokens: number;
  /** Grows with each use, across the index. */
  usedAt: number;
}

/** A cache of unknown size: 262,144 tokens, which is what an 8B model in 16 bits leaves of a GPU with 80 GB and more. */
export const cacheTokensUnknown = 262_144;

/** Beginnings in all views of an index; each takes some 150 bytes. */
const prefixesMax = 1_000_000;

/**
 * Which backends of a model have which beginnings of prompts in their caches, as far as can be known from what was sent there.
 * Looking costs one step for each beginning of the prompt and one for each backend, however many backends have it.
 *
 * A server drops the least recently used block first, and of one prompt the last block first, so a backend that has a beginning has
 * the shorter ones too.
 */
export class CacheIndex<View extends CacheView> {
  readonly #holders = new Map<number, View[]>();
  /** Views with cached tokens from the last look. */
  readonly #looked: View[] = [];
  readonly #found: View[][] = [];
  #uses = 0;
  #prefixes = 0;

  /** Sets `cachedTokens` of all views for a request. */
  look({ hashes, tokens }: PromptPrefixes): void {
    for (const view of this.#looked) view.cachedTokens = 0;
    this.#looked.length = 0;
    let count = 0;
    for (; count < hashes.length; count++) {
      const holders = this.#holders.get(hashes[count]!);
      if (holders === undefined) break;
      this.#found[count] = holders;
    }
    for (let index = count - 1; index >= 0; index--) {
      const holders = this.#found[index]!;
      // Those of the longer beginnings are among them.
      if (holders.length === this.#looked.length) continue;
      for (const view of holders) {
        if (view.cachedTokens > 0) continue;
        view.cachedTokens = tokens[index]!;
        this.#looked.push(view);
      }
    }
    this.#found.length = 0;
  }

  /** A prompt is sent to the backend. Returns when the longest beginning that it was believed to have was used last; 0: none. */
  use(view: View, { hashes, tokens }: PromptPrefixes): number {
    let usedAt = 0;
    const now = ++this.#uses;
    // The longest first, so that it is dropped first.
    for (let index = hashes.length - 1; index >= 0; index--) {
      const hash = hashes[index]!;
      const known = view.cached.get(hash);
      if (known === undefined)
        this.#add(view, hash, { tokens: tokens[index]! - (tokens[index - 1] ?? 0), usedAt: now });
      else {
        if (usedAt === 0) usedAt = known.usedAt;
        known.usedAt = now;
        view.cached.delete(hash);
        view.cached.set(hash, known);
      }
    }
    while (view.cacheTokens > view.cacheTokensMax || this.#prefixes > prefixesMax) {
      const [oldest] = view.cached.keys();
      if (oldest === undefined) break;
      this.#remove(view, oldest);
    }
    return usedAt;
  }

  /** Number of prompts that were sent. */
  get uses(): number {
    return this.#uses;
  }

  /** A prompt that was sent as the `sentAt`th was not read to its end: what was new of it, and nobody has sent since, is not there. */
  reverse(view: View, { hashes, tokens }: PromptPrefixes, sentAt: number, cachedTokens: number): void {
    for (let index = hashes.length - 1; index >= 0 && tokens[index]! > cachedTokens + 1; index--)
      if (view.cached.get(hashes[index]!)?.usedAt === sentAt) this.#remove(view, hashes[index]!);
  }

  /** Something that was last used then has turned out to be gone, so what was used before it is gone too. */
  dropUsedUntil(view: View, usedAt: number): void {
    for (const [hash, prefix] of view.cached) {
      if (prefix.usedAt > usedAt) return;
      this.#remove(view, hash);
    }
  }

  /** Its cache is empty, or it has left. */
  drop(view: View): void {
    this.dropUsedUntil(view, Infinity);
  }

  #add(view: View, hash: number, prefix: CachedPrefix): void {
    view.cached.set(hash, prefix);
    view.cacheTokens += prefix.tokens;
    this.#prefixes++;
    const holders = this.#holders.get(hash);
    if (holders === undefined) this.#holders.set(hash, [view]);
    else holders.push(view);
  }

  #remove(view: View, hash: number): void {
    view.cacheTokens -= view.cached.get(hash)!.tokens;
    view.cached.delete(hash);
    this.#prefixes--;
    const holders = this.#holders.get(hash)!;
    if (holders.length === 1) this.#holders.delete(hash);
    else {
      const last = holders.pop()!;
      const index = holders.indexOf(view);
      if (last !== view) holders[index] = last;
    }
  }
}
