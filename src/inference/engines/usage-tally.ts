import type { UsageReport } from '../../generation/event.ts';

/** Figures as a backend wrote them: values of any type. */
export interface RawUsage {
  readonly promptTokens: unknown;
  readonly cachedTokens: unknown;
  readonly completionTokens: unknown;
  readonly reasoningTokens: unknown;
}

/** What is possible for a request; a figure beyond it is rejected. */
export interface UsageBounds {
  readonly choices: number;
  /** Choices of one prompt (`n`): choice = prompt × n + i. */
  readonly choicesPerPrompt: number;
  /** Largest possible sum over all prompts. */
  readonly promptTokensMax: number;
  /** Generated tokens of one choice. */
  readonly completionTokensMax: number;
}

/** A backend that counts an end token beyond `max_tokens` is not broken; its figure is lowered to the limit. */
const overshootTokens = 64;

/**
 * Keeps the token counts of one request from whatever a backend reports (reliability U10). A figure that cannot be true
 * (negative, fractional, not a number, far beyond the bounds) counts as not reported; missing figures are counted here, one token
 * per delta. Counts are cumulative and never shrink. Usage based on our own count is marked `counted`, and so is usage with a
 * reported figure that was not believed (`isDoubted`).
 */
export class UsageTally {
  readonly #bounds: UsageBounds;
  readonly #perChoice: ChoiceTally[];
  readonly #prompts: (number | undefined)[];
  readonly #cached: number[];
  #totalPrompt: number | undefined;
  #totalCached: number | undefined;
  #totalCompletion: number | undefined;
  #totalReasoning: number | undefined;
  /** Deltas since the last report on the whole request. */
  #later = 0;
  #isDoubted = false;

  constructor(bounds: UsageBounds) {
    this.#bounds = bounds;
    this.#perChoice = [];
    for (let choice = 0; choice < bounds.choices; choice++) this.#perChoice.push(newChoiceTally());
    const prompts = Math.ceil(bounds.choices / bounds.choicesPerPrompt);
    this.#prompts = new Array<undefined>(prompts).fill(undefined);
    this.#cached = new Array<number>(prompts).fill(0);
  }

  /** Counts one delta of a choice, which stands for `tokens` tokens. */
  delta(choice: number, isReasoning: boolean, tokens = 1): void {
    const tally = this.#perChoice[choice]!;
    tally.later += tokens;
    tally.deltas += tokens;
    if (isReasoning) tally.reasoningDeltas += tokens;
    this.#later += tokens;
  }

  /** Number of deltas of a choice so far, reported or not. */
  deltas(choice: number): number {
    return this.#perChoice[choice]!.deltas;
  }

  /** Sets the prompt length of a choice, reported before its answer. */
  prompt(choice: number, promptTokens: unknown, cachedTokens: unknown): void {
    const index = Math.floor(choice / this.#bounds.choicesPerPrompt);
    const tokens = this.#figure(promptTokens, this.#bounds.promptTokensMax);
    if (tokens === undefined) return;
    this.#prompts[index] = tokens;
    this.#cached[index] = this.#part(cachedTokens, tokens, this.#bounds.promptTokensMax) ?? this.#cached[index]!;
  }

  /** Reads the backend's figures about one choice. */
  reportChoice(choice: number, raw: RawUsage): void {
    this.prompt(choice, raw.promptTokens, raw.cachedTokens);
    const tally = this.#perChoice[choice]!;
    const completion = this.#completion(raw.completionTokens, 1);
    if (completion !== undefined) {
      if (completion < (tally.reported ?? 0)) this.#isDoubted = true;
      tally.reported = Math.max(tally.reported ?? 0, completion);
      tally.later = 0;
    }
    const { completionTokensMax } = this.#bounds;
    tally.reasoning = this.#part(raw.reasoningTokens, completion, completionTokensMax) ?? tally.reasoning;
  }

  /** Reads the backend's figures about the whole request. */
  reportTotal(raw: RawUsage): void {
    const prompt = this.#figure(raw.promptTokens, this.#bounds.promptTokensMax);
    if (prompt !== undefined) {
      if (prompt < (this.#totalPrompt ?? 0)) this.#isDoubted = true;
      this.#totalPrompt = Math.max(this.#totalPrompt ?? 0, prompt);
      this.#totalCached = this.#part(raw.cachedTokens, prompt, this.#bounds.promptTokensMax) ?? this.#totalCached;
    }
    const completion = this.#completion(raw.completionTokens, this.#bounds.choices);
    if (completion !== undefined) {
      if (completion < (this.#totalCompletion ?? 0)) this.#isDoubted = true;
      this.#totalCompletion = Math.max(this.#totalCompletion ?? 0, completion);
      this.#later = 0;
    }
    const reasoningMax = this.#bounds.completionTokensMax * this.#bounds.choices;
    this.#totalReasoning = this.#part(raw.reasoningTokens, completion, reasoningMax) ?? this.#totalReasoning;
  }

  /** Whether the backend has reported a figure that cannot be true. */
  get isDoubted(): boolean {
    return this.#isDoubted;
  }

  /** Whether the backend's reports cover everything that was generated. */
  get isReported(): boolean {
    if (this.promptTokens === undefined) return false;
    if (this.#totalCompletion !== undefined) return this.#later === 0;
    return this.#perChoice.every((tally) => tally.reported !== undefined && tally.later === 0);
  }

  get promptTokens(): number | undefined {
    if (this.#totalPrompt !== undefined) return this.#totalPrompt;
    let sum = 0;
    for (const tokens of this.#prompts) {
      if (tokens === undefined) return undefined;
      sum += tokens;
    }
    return Math.min(sum, this.#bounds.promptTokensMax);
  }

  get cachedTokens(): number {
    const cached = this.#totalCached ?? this.#cached.reduce((sum, tokens) => sum + tokens, 0);
    return Math.min(cached, this.promptTokens ?? 0);
  }

  /** The counts so far, each of them possible. */
  usage(): UsageReport {
    let reported = 0;
    let later = 0;
    let reasoning = 0;
    for (const tally of this.#perChoice) {
      reported += tally.reported ?? 0;
      later += tally.later;
      // A backend that does not count reasoning reports nothing, or 0.
      reasoning += tally.reasoning !== undefined && tally.reasoning > 0 ? tally.reasoning : tally.reasoningDeltas;
    }
    const completion =
      this.#totalCompletion === undefined ? reported + later : Math.max(this.#totalCompletion, reported) + this.#later;
    const completionTokens = Math.min(completion, this.#bounds.completionTokensMax * this.#bounds.choices);
    if (this.#totalReasoning !== undefined && this.#totalReasoning > 0) reasoning = this.#totalReasoning;
    return {
      promptTokens: this.promptTokens,
      cachedTokens: this.cachedTokens,
      completionTokens,
      reasoningTokens: Math.min(reasoning, completionTokens),
    };
  }

  #completion(value: unknown, choices: number): number | undefined {
    const max = this.#bounds.completionTokensMax * choices;
    const tokens = this.#figure(value, max + overshootTokens);
    return tokens === undefined ? undefined : Math.min(tokens, max);
  }

  /** A count of a part of `whole`: lowered to it, and doubted, when it is larger. */
  #part(value: unknown, whole: number | undefined, max: number): number | undefined {
    const tokens = this.#figure(value, max);
    if (tokens === undefined || whole === undefined || tokens <= whole) return tokens;
    this.#isDoubted = true;
    return whole;
  }

  /** A count between 0 and `max`; any other reported value is doubted. */
  #figure(value: unknown, max: number): number | undefined {
    if (value === undefined || value === null) return undefined;
    if (Number.isInteger(value) && (value as number) >= 0 && (value as number) <= max) return value as number;
    this.#isDoubted = true;
    return undefined;
  }
}

interface ChoiceTally {
  reported: number | undefined;
  reasoning: number | undefined;
  /** Deltas since the last report on this choice. */
  later: number;
  deltas: number;
  reasoningDeltas: number;
}

const newChoiceTally = (): ChoiceTally => ({
  reported: undefined,
  reasoning: undefined,
  later: 0,
  deltas: 0,
  reasoningDeltas: 0,
});
