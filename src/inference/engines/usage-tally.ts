import type { UsageReport } from '../../generation/event.ts';
import { TextTokens, twentieths } from './text-tokens.ts';

/** The parts of an answer that are counted: the types of the events that carry them. */
export type SaidPart = 'text' | 'reasoning' | 'tool-call' | 'tool-arguments';

/** Usage as a backend wrote it: values of any type. */
export interface RawUsage {
  readonly promptTokens: unknown;
  readonly cachedTokens: unknown;
  readonly completionTokens: unknown;
  readonly reasoningTokens: unknown;
  /** Total of prompt and answer; only shows whether reasoning is counted separately from the completion. */
  readonly totalTokens?: unknown;
}

/** The limits of what is possible for a request; a figure beyond them is rejected. */
export interface UsageBounds {
  readonly choices: number;
  /** Choices of one prompt (`n`): choice = prompt × n + i. */
  readonly choicesPerPrompt: number;
  /** Smallest possible length of one prompt: 1, unless it may be empty. Default 1. */
  readonly promptTokensMin?: number;
  /** Largest possible sum over all prompts. */
  readonly promptTokensMax: number;
  /** Generated tokens of one choice. */
  readonly completionTokensMax: number;
  /** Whether the model reasons: then a total beyond prompt and completion is reasoning. Default false. */
  readonly reasons?: boolean;
  /** Whether each delta is one token, so that deltas are counted, except for long ones. Default false. */
  readonly hasTokenPerDelta?: boolean;
}

/** A backend that counts an end token beyond `max_tokens` is not faulty; its figure is lowered to the limit. */
const overshootTokens = 64;

/** A longer delta is not counted as one token. */
const ordinaryTokenCharacters = 32;

/** No token of any vocabulary is longer: Command R has one of 512 blanks. */
export const tokenCharactersMax = 1_024;

/**
 * Keeps the token counts of one request, based on what its backend reports (reliability U10). One rule holds for each figure: an impossible
 * one counts as not reported. A figure is impossible if it is not a count (negative, fractional, not a number), exceeds the bounds, has
 * fewer tokens than a prompt or the generated text must have, or is a part larger than its whole. Missing figures are estimated from the
 * length of the generated text (`TextTokens`), never from the number of deltas, unless the server reports the tokens of a delta. The text,
 * the reasoning, and each name and its arguments are counted separately, so that the order of their pieces makes no difference.
 *
 * Counts are cumulative and never decrease. Usage with an estimate in it is marked `counted`, and so is usage with a reported figure that
 * was rejected (`isDoubted`).
 */
export class UsageTally {
  readonly #bounds: UsageBounds;
  readonly #perChoice: ChoiceTally[];
  readonly #prompts: (number | undefined)[];
  readonly #cached: number[];
  /** Figures reported for the whole request. */
  readonly #total: Total = {
    prompt: undefined,
    cached: undefined,
    completion: undefined,
    reasoning: undefined,
    later: 0,
  };
  #isDoubted = false;
  /** Whether a figure was too small; servers that know it only at the end report 0 until then. */
  #isTooSmall = false;
  #hasNews = false;

  constructor(bounds: UsageBounds) {
    this.#bounds = bounds;
    this.#perChoice = [];
    for (let choice = 0; choice < bounds.choices; choice++) this.#perChoice.push(newChoiceTally());
    const prompts = Math.ceil(bounds.choices / bounds.choicesPerPrompt);
    this.#prompts = new Array<undefined>(prompts).fill(undefined);
    this.#cached = new Array<number>(prompts).fill(0);
  }

  /** Takes text of a choice, which counts by its length until its `delta` ends. */
  said(choice: number, part: SaidPart, text: string): void {
    const tally = this.#perChoice[choice]!;
    tally.characters += text.length;
    tally.openCharacters += text.length;
    if (part === 'text' || part === 'reasoning')
      return this.#add(tally, part === 'reasoning', tally.estimates[part].add(text));
    const { call } = tally.estimates;
    if (part === 'tool-call') call.end();
    this.#add(tally, false, call.add(text));
    if (part === 'tool-call') call.end();
  }

  /** Ends a delta. `tokens`: its number of tokens, if the server reports it; it replaces the estimate. */
  delta(choice: number, tokens?: number): void {
    const tally = this.#perChoice[choice]!;
    const isToken = this.#bounds.hasTokenPerDelta === true && tally.openCharacters <= ordinaryTokenCharacters;
    const known = tokens ?? (isToken ? 1 : undefined);
    if (known !== undefined) this.#add(tally, tally.isThinking, known * twentieths - tally.open);
    tally.isKnown = known !== undefined;
    tally.deltas += known ?? 1;
    tally.open = 0;
    tally.openCharacters = 0;
  }

  /** From here on a choice only releases held text. That is already counted if its tokens are known, or if a report came after it. */
  releases(choice: number): void {
    const tally = this.#perChoice[choice]!;
    const reported = this.#total.completion ?? tally.reported ?? 0;
    tally.isCounted = tally.isKnown || (reported > 0 && tally.deltas === tally.deltasReported);
  }

  #add(tally: ChoiceTally, isReasoning: boolean, added: number): void {
    this.#hasNews = true;
    if (tally.isCounted) return;
    tally.open += added;
    tally.later += added;
    this.#total.later += added;
    if (isReasoning) tally.reasoningLater += added;
    tally.isThinking = isReasoning;
  }

  /** Records that something is sent to the client. */
  given(): void {
    this.#hasNews = true;
  }

  /** Returns whether the usage must be sent again: something was generated, sent or reported since the last call. */
  takeNews(): boolean {
    const hasNews = this.#hasNews;
    this.#hasNews = false;
    return hasNews;
  }

  /** Returns the number of deltas of a choice so far, reported or not; a delta of several known tokens counts as several. */
  deltas(choice: number): number {
    return this.#perChoice[choice]!.deltas;
  }

  /** Sets the prompt length of a choice, reported before its answer. */
  prompt(choice: number, promptTokens: unknown, cachedTokens: unknown): void {
    const index = Math.floor(choice / this.#bounds.choicesPerPrompt);
    const { promptTokensMin = 1, promptTokensMax } = this.#bounds;
    const tokens = this.#figure(promptTokens, promptTokensMin, promptTokensMax);
    if (tokens === undefined) return;
    this.#prompts[index] = tokens;
    this.#cached[index] = this.#part(cachedTokens, tokens) ?? this.#cached[index]!;
  }

  /** Reads the backend's figures about one choice. */
  reportChoice(choice: number, reported: RawUsage): void {
    const raw = this.#withReasoning(reported, 1);
    this.prompt(choice, raw.promptTokens, raw.cachedTokens);
    this.#hasNews = true;
    const tally = this.#perChoice[choice]!;
    const completion = this.#completion(raw.completionTokens, 1, leastTokens(tally));
    if (completion === undefined) return;
    const before = tally.reported ?? 0;
    if (completion < before) this.#isDoubted = true;
    tally.reported = Math.max(before, completion);
    tally.deltasReported = tally.deltas;
    settleReasoning(tally, tally.reported - before);
    tally.reasoning = this.#part(raw.reasoningTokens, completion) ?? tally.reasoning;
  }

  /** Reads the backend's figures about the whole request. */
  reportTotal(reported: RawUsage): void {
    const { choices, promptTokensMin = 1, promptTokensMax } = this.#bounds;
    const raw = this.#withReasoning(reported, choices);
    this.#hasNews = true;
    const prompt = this.#figure(raw.promptTokens, promptTokensMin * this.#prompts.length, promptTokensMax);
    if (prompt !== undefined) {
      if (prompt < (this.#total.prompt ?? 0)) this.#isDoubted = true;
      this.#total.prompt = Math.max(this.#total.prompt ?? 0, prompt);
      this.#total.cached = this.#part(raw.cachedTokens, prompt) ?? this.#total.cached;
    }
    const completion = this.#completion(raw.completionTokens, choices, this.#sum(leastTokens));
    if (completion === undefined) return;
    if (completion < (this.#total.completion ?? 0)) this.#isDoubted = true;
    const before = Math.max(
      this.#total.completion ?? 0,
      this.#sum(({ reported: own }) => own ?? 0),
    );
    this.#total.completion = Math.max(this.#total.completion ?? 0, completion);
    this.#total.later = 0;
    const grown = Math.max(0, completion - before);
    const later = this.#sum((tally) => tally.later);
    for (const tally of this.#perChoice) {
      settleReasoning(tally, grown * (later > 0 ? tally.later / later : 1 / choices));
      tally.deltasReported = tally.deltas;
    }
    this.#total.reasoning = this.#part(raw.reasoningTokens, completion) ?? this.#total.reasoning;
  }

  /** Whether the backend has reported an impossible figure and has not corrected it. */
  get isDoubted(): boolean {
    return this.#isDoubted || (this.#isTooSmall && !this.isReported);
  }

  /** Whether the backend's reports cover everything that was generated. */
  get isReported(): boolean {
    if (this.promptTokens === undefined) return false;
    if (this.#total.completion !== undefined) return this.#total.later === 0;
    return this.#perChoice.every((tally) => tally.reported !== undefined && tally.later === 0);
  }

  get promptTokens(): number | undefined {
    if (this.#total.prompt !== undefined) return this.#total.prompt;
    let sum = 0;
    for (const tokens of this.#prompts) {
      if (tokens === undefined) return undefined;
      sum += tokens;
    }
    return Math.min(sum, this.#bounds.promptTokensMax);
  }

  get cachedTokens(): number {
    const cached = this.#total.cached ?? this.#cached.reduce((sum, tokens) => sum + tokens, 0);
    return Math.min(cached, this.promptTokens ?? 0);
  }

  /** Returns the counts so far, each of them possible. */
  usage(): UsageReport {
    let completion = 0;
    let reasoning = 0;
    let reported = 0;
    for (const tally of this.#perChoice) {
      reported += tally.reported ?? 0;
      completion += (tally.reported ?? 0) + Math.ceil(tally.later / twentieths);
      // A backend that does not count reasoning reports nothing, or 0.
      reasoning +=
        tally.reasoning !== undefined && tally.reasoning > 0
          ? tally.reasoning
          : tally.reasoningBefore + Math.ceil(tally.reasoningLater / twentieths);
    }
    if (this.#total.completion !== undefined)
      completion = Math.max(this.#total.completion, reported) + Math.ceil(this.#total.later / twentieths);
    const completionTokens = Math.min(completion, this.#bounds.completionTokensMax * this.#bounds.choices);
    if (this.#total.reasoning !== undefined && this.#total.reasoning > 0) reasoning = this.#total.reasoning;
    return {
      promptTokens: this.promptTokens,
      cachedTokens: this.cachedTokens,
      completionTokens,
      reasoningTokens: Math.min(reasoning, completionTokens),
    };
  }

  /**
   * Adds reasoning that a server counts separately from the completion, as its total shows, to the completion (§2.4: output includes
   * reasoning).
   */
  #withReasoning(raw: RawUsage, choices: number): RawUsage {
    const { promptTokens, completionTokens, reasoningTokens, totalTokens } = raw;
    if (!isCount(promptTokens) || !isCount(completionTokens) || !isCount(totalTokens)) return raw;
    const beside = totalTokens - promptTokens - completionTokens;
    const most = this.#bounds.completionTokensMax * choices + overshootTokens;
    if (beside <= 0 || completionTokens + beside > most) return raw;
    const isUnnamed = this.#bounds.reasons === true && (reasoningTokens ?? 0) === 0;
    if (reasoningTokens !== beside && !isUnnamed) return raw;
    return { ...raw, completionTokens: completionTokens + beside, reasoningTokens: beside };
  }

  #sum(of: (tally: ChoiceTally) => number): number {
    return this.#perChoice.reduce((sum, tally) => sum + of(tally), 0);
  }

  #completion(value: unknown, choices: number, least: number): number | undefined {
    const max = this.#bounds.completionTokensMax * choices;
    const tokens = this.#figure(value, Math.min(least, max), max + overshootTokens);
    return tokens === undefined ? undefined : Math.min(tokens, max);
  }

  #part(value: unknown, whole: number): number | undefined {
    return this.#figure(value, 0, whole);
  }

  /** Returns a possible count; any other reported value is doubted. */
  #figure(value: unknown, min: number, max: number): number | undefined {
    if (value === undefined || value === null) return undefined;
    const tokens = countWithin(value, min, max);
    if (tokens !== undefined) return tokens;
    if (countWithin(value, 0, max) === undefined) this.#isDoubted = true;
    else this.#isTooSmall = true;
    return undefined;
  }
}

/** Returns an external figure if it is a possible whole number, otherwise `undefined`. The one rule for such figures. */
export const countWithin = (value: unknown, min: number, max: number): number | undefined =>
  isCount(value) && value >= min && value <= max ? value : undefined;

const isCount = (value: unknown): value is number => Number.isSafeInteger(value) && (value as number) >= 0;

/** Returns the minimum possible tokens for the generated characters. */
const leastTokens = ({ characters }: ChoiceTally): number => Math.ceil(characters / tokenCharactersMax);

/** Settles reasoning at a report, which covers the text since the last one: reasoning has the same share of its tokens as of that text. */
function settleReasoning(tally: ChoiceTally, grown: number): void {
  const share = tally.later > 0 ? tally.reasoningLater / tally.later : tally.isThinking ? 1 : 0;
  tally.reasoningBefore += Math.ceil(grown * share);
  tally.reasoningLater = 0;
  tally.later = 0;
}

interface Total {
  prompt: number | undefined;
  cached: number | undefined;
  completion: number | undefined;
  reasoning: number | undefined;
  /** Twentieths of tokens since the last report. */
  later: number;
}

interface ChoiceTally {
  reported: number | undefined;
  reasoning: number | undefined;
  deltas: number;
  /** Whether the server reported the number of tokens of the last delta. */
  isKnown: boolean;
  /** Number of deltas when the completion was last reported. */
  deltasReported: number | undefined;
  /** Whether all text still to be sent was already counted by a report. */
  isCounted: boolean;
  characters: number;
  readonly estimates: Readonly<Record<'text' | 'reasoning' | 'call', TextTokens>>;
  /** Twentieths of tokens, and characters, of the current delta. */
  open: number;
  openCharacters: number;
  /** Whether the last text was reasoning. */
  isThinking: boolean;
  /** Twentieths of tokens since the last report on this choice: in total, and of reasoning. */
  later: number;
  reasoningLater: number;
  /** Tokens of reasoning before that report. */
  reasoningBefore: number;
}

const newChoiceTally = (): ChoiceTally => ({
  reported: undefined,
  reasoning: undefined,
  deltas: 0,
  isKnown: false,
  deltasReported: undefined,
  isCounted: false,
  characters: 0,
  estimates: { text: new TextTokens(), reasoning: new TextTokens(), call: new TextTokens() },
  open: 0,
  openCharacters: 0,
  isThinking: false,
  later: 0,
  reasoningLater: 0,
  reasoningBefore: 0,
});
