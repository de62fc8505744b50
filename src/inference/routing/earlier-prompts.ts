import type { PromptPrefixes } from './prompt-prefixes.ts';

/** Entries of one generation; each takes some 40 bytes, and there are two. */
const entriesMax = 50_000;
/** News for other processes; the oldest are dropped. */
const newsMax = 4_000;

/** How a prompt and the nearest earlier one of its account compare: the one that begins with most of the same messages. */
export interface Compared {
  /** Tokens of the messages that both begin with. */
  readonly sharedTokens: number;
  /** Number of these messages, or -1: their tools differ; `undefined`: this prompt goes on where that one ended, or ends before. */
  readonly differsAt: number | undefined;
}

/** The hashes of a prompt up to the ends of its parts that no earlier prompt has. The last one is the end of the prompt. */
export type NewEnds = readonly number[];

/**
 * With which messages the recent prompts of a model began, as hashes: all that is needed to say which message of a prompt is the first that
 * differs from the nearest earlier one. Prompts under zero data retention have none.
 */
export class EarlierPrompts {
  /** Whether a prompt ended there, by the hash of everything up to the end of a part. Two generations, instead of an order of use. */
  #recent = new Map<number, boolean>();
  #older = new Map<number, boolean>();
  #news: NewEnds[] | undefined;

  /** Compares a prompt with the earlier ones, and adds it to them; `undefined`: its account has none. */
  compare({ messages }: PromptPrefixes): Compared | undefined {
    if (messages === undefined) return undefined;
    const { hashes, tokens } = messages;
    let known = 0;
    while (known < hashes.length && this.#ended(hashes[known]!) !== undefined) known++;
    const last = hashes[known - 1];
    const goesOn = known === hashes.length || (last !== undefined && this.#ended(last) === true);
    // The last end is always told, because a prompt ends there now.
    const fresh = hashes.slice(Math.min(known, hashes.length - 1));
    this.#news?.push(fresh);
    if (this.#news !== undefined && this.#news.length > newsMax) this.#news.splice(0, newsMax / 2);
    // Those that are known move to the recent generation.
    for (let index = 0; index < known; index++) this.#add(hashes[index]!, false);
    this.add(fresh);
    if (known === 0) return undefined;
    return { sharedTokens: tokens[known - 1]!, differsAt: goesOn ? undefined : known - 2 };
  }

  /** Adds a prompt, of which only the ends that are new are known. */
  add(ends: NewEnds): void {
    for (let index = 0; index < ends.length; index++) this.#add(ends[index]!, index === ends.length - 1);
  }

  /** Returns the ends that are new since the last call; they are recorded from the first call on. */
  takeNews(): readonly NewEnds[] {
    const news = this.#news ?? [];
    this.#news = [];
    return news;
  }

  #ended(hash: number): boolean | undefined {
    return this.#recent.get(hash) ?? this.#older.get(hash);
  }

  #add(hash: number, isEnd: boolean): void {
    const before = this.#recent.get(hash);
    if (before === true || before === isEnd) return;
    if (before === undefined && this.#recent.size >= entriesMax) {
      this.#older = this.#recent;
      this.#recent = new Map();
    }
    this.#recent.set(hash, isEnd || this.#older.get(hash) === true);
  }
}
