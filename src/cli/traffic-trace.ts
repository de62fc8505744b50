import { recordedBlockCharacters } from '../inference/routing/prompt-prefixes.ts';
import type { RecordedRequest } from '../inference/pipeline/traffic-recorder.ts';

/** Tokens of a block in the published traces that others read. */
const blockTokens = 512;
/** More than a Map can have would fail; what comes later begins like nothing before it. */
const nodesMax = 16_000_000;

/** A request in the form that Mooncake published (FAST'25), and in the second half what readers of that form ignore. */
export interface TracedLine {
  /** In milliseconds, from the first request. */
  readonly timestamp: number;
  readonly input_length: number;
  readonly output_length: number;
  /** A block of 512 tokens has one number with everything before it. Numbers count up, so they say nothing beyond this trace. */
  readonly hash_ids: readonly number[];
  readonly model: string;
  /** Accounts are numbered as they appear. */
  readonly account: number;
  readonly tier: string;
  /** Prompt tokens that the server reported as cached. */
  readonly cached_length: number;
}

/**
 * Makes a trace of recorded requests, in the order of their times. Hashes were made of equal numbers of characters; in a tree of them each
 * request takes over the blocks of the one that it shares its beginning with, as far as both count whole blocks of tokens there.
 */
export function* traceOf(requests: readonly RecordedRequest[]): Generator<TracedLine> {
  const accounts = new Map<number, number>();
  const numberOf = (account: number): number => {
    const number = accounts.get(account) ?? accounts.size;
    accounts.set(account, number);
    return number;
  };
  const beginnings = new Beginnings();
  const firstMs = requests[0]?.atMs ?? 0;
  for (const request of requests)
    yield {
      timestamp: request.atMs - firstMs,
      input_length: request.promptTokens,
      output_length: request.completionTokens,
      hash_ids: beginnings.blocksOf(request),
      model: request.model,
      account: numberOf(request.account),
      tier: request.tier,
      cached_length: request.cachedTokens,
    };
}

/** The request that first began so. */
interface Owner {
  readonly ids: readonly number[];
  readonly tokensPerCharacter: number;
}

/** Which prompts begin alike. A node is a beginning of one or more prompts; its number is its place in `#owners`. */
class Beginnings {
  readonly #nodes = new Map<number, number>();
  readonly #owners: (Owner | undefined)[] = [];
  readonly #roots = new Map<string, number>();
  #blocks = 0;

  blocksOf({ model, promptTokens, characters, blocks }: RecordedRequest): readonly number[] {
    const hashes = hashesIn(blocks);
    const tokensPerCharacter = characters === 0 ? 0 : promptTokens / characters;
    let at = this.#root(model);
    let known = 0;
    for (; known < hashes.length; known++) {
      const next = this.#nodes.get(keyOf(at, hashes[known]!));
      if (next === undefined) break;
      at = next;
    }
    const ids: number[] = [];
    const before = this.#owners[at];
    if (before !== undefined) {
      const shared = known * recordedBlockCharacters * Math.min(tokensPerCharacter, before.tokensPerCharacter);
      ids.push(...before.ids.slice(0, Math.floor(shared / blockTokens)));
    }
    while (ids.length * blockTokens < promptTokens) ids.push(this.#blocks++);
    const owner: Owner = { ids, tokensPerCharacter };
    for (; known < hashes.length && this.#owners.length < nodesMax; known++) {
      const node = this.#add(owner);
      this.#nodes.set(keyOf(at, hashes[known]!), node);
      at = node;
    }
    return ids;
  }

  /** The caches of two models have nothing in common. */
  #root(model: string): number {
    const known = this.#roots.get(model);
    if (known !== undefined) return known;
    const root = this.#add(undefined);
    this.#roots.set(model, root);
    return root;
  }

  #add(owner: Owner | undefined): number {
    this.#owners.push(owner);
    return this.#owners.length - 1;
  }
}

/** Children of a node differ in 28 bits of their hashes; the number of a node has at most 24. */
const keyOf = (node: number, hash: number): number => node * 2 ** 28 + (hash >>> 4);

function hashesIn(base64: string): Int32Array {
  const bytes = Buffer.from(base64, 'base64');
  return new Int32Array(Uint8Array.from(bytes).buffer);
}
