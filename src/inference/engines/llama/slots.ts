/** One sequence of the context and the tokens in its cache. */
export interface Slot<Run> {
  readonly index: number;
  readonly tokens: number[];
  scope: string;
  /** The step in which it last took part. */
  lastStep: number;
  /** The age of the caches (`SlotChoice`) at which this one may be given up. */
  keptUntil: number;
  run: Run | undefined;
}

/** The fields of a job that determine what it can reuse in a slot. */
export interface CacheUser {
  readonly prompt: readonly number[];
  /** A prefix in the cache is shared only between jobs of the same scope (reliability §3.5). */
  readonly cacheScope: string;
  /** `false`: takes nothing from the cache and leaves nothing in it. */
  readonly retain: boolean;
  /** Whether probabilities of the prompt's tokens are requested; then none of the prompt comes from the cache. */
  readonly scoresPrompt?: boolean;
}

/**
 * Chooses the slot of a job: the free one that holds most of its prompt, or else the one whose cache is the smallest loss: the fewer tokens
 * it has and the longer it was unused, the smaller. The age of the caches counts the tokens given up, so a cache stays until as many tokens
 * as it holds were given up after it, or no other slot is free. A long prompt whose client left, or that timed out before it was read, thus
 * waits for the client to return, and three short requests of others do not push it out.
 */
export class SlotChoice<Run> {
  readonly slots: readonly Slot<Run>[];
  /** Age in tokens. */
  #age = 0;

  constructor(count: number) {
    this.slots = Array.from({ length: count }, (_, index) => ({
      index,
      tokens: [],
      scope: '',
      lastStep: 0,
      keptUntil: 0,
      run: undefined,
    }));
  }

  /**
   * Chooses a slot; among equal losses one next to those in use, because llama.cpp computes only neighbours together (`inOrder` in
   * `step-plan.ts`). `undefined`: none is free.
   */
  choose(job: CacheUser): { readonly slot: Slot<Run>; readonly shared: number } | undefined {
    const places = this.slots
      .filter(({ run }) => run === undefined)
      .map((slot) => ({ slot, shared: sharedTokens(slot, job) }))
      .map((place) => ({ ...place, worth: this.#worthOf(place.shared, place.slot) }))
      .sort((a, b) => b.worth - a.worth || byLoss(a.slot, b.slot));
    const [first] = places;
    if (first === undefined || first.worth > 0) return first;
    const mostKept = first.slot.keptUntil + besideTokens;
    const alike = isEmpty(first.slot)
      ? places.filter(({ slot }) => isEmpty(slot))
      : places.slice(0, Math.ceil(places.length / 2)).filter(({ slot }) => slot.keptUntil <= mostKept);
    return alike.find(({ slot }) => this.#isBesideUsed(slot)) ?? first;
  }

  /** Returns the most tokens of a job's prompt that any slot holds, including slots in use. */
  cachedFor(job: CacheUser): number {
    return Math.max(...this.slots.map((slot) => sharedTokens(slot, job)));
  }

  /** Gives up what the slot holds beyond these tokens. */
  shorten(slot: Slot<Run>, length: number): void {
    if (length < slot.tokens.length) this.#age = Math.max(this.#age, slot.keptUntil - length);
    slot.tokens.length = length;
  }

  /** Frees a slot whose job has ended. */
  free(slot: Slot<Run>): void {
    slot.run = undefined;
    slot.keptUntil = this.#age + slot.tokens.length;
  }

  /**
   * Returns the tokens worth reusing. Every conversation begins with the same few template tokens, and many with the same instructions:
   * that does not justify giving up more of another cache.
   */
  #worthOf(shared: number, { tokens, keptUntil }: Slot<Run>): number {
    return shared >= Math.min(32, tokens.length / 2) && shared >= (keptUntil - this.#age) / 2 ? shared : 0;
  }

  #isBesideUsed({ index }: Slot<Run>): boolean {
    return [index - 1, index + 1].some((other) => this.slots[other]?.run !== undefined);
  }
}

/** What may be lost to place a job next to others: at most some seconds of reading. */
const besideTokens = 256;

/** Returns how many tokens can be reused. At least the last token of a prompt must be decoded, for its logits. */
function sharedTokens<Run>(slot: Slot<Run>, job: CacheUser): number {
  if (!job.retain || slot.scope !== job.cacheScope || job.scoresPrompt === true) return 0;
  const most = Math.min(slot.tokens.length, job.prompt.length - 1);
  let shared = 0;
  while (shared < most && slot.tokens[shared] === job.prompt[shared]) shared++;
  return shared;
}

/** Compares slots of equal worth: the one whose cache is the smaller loss comes first. */
function byLoss<Run>(slot: Slot<Run>, other: Slot<Run>): number {
  if (isEmpty(slot) !== isEmpty(other)) return isEmpty(slot) ? -1 : 1;
  return slot.keptUntil - other.keptUntil || slot.lastStep - other.lastStep;
}

const isEmpty = <Run>(slot: Slot<Run>): boolean => slot.tokens.length === 0;
