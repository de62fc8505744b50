import type { Meaning, Tokens } from './meaning.ts';

/**
 * The count of tokens by the rule (docs/money.md, "Tokens that nobody reports"), written down a second time: over whole texts, with
 * regular expressions. In twentieths of a token.
 */
export function estimate(text: string): number {
  // Second halves of pairs, and marks that change what is before them.
  const plain = text.replaceAll(/[\udc00-\udfff\ufe00-\ufe0f]/g, '');
  let sum = 0;
  for (const { 0: run, groups = {} } of plain.matchAll(kinds)) {
    const [kind] = Object.keys(groups).filter((name) => groups[name] !== undefined);
    sum += ofRun[kind as keyof typeof ofRun](run);
  }
  // The end of a line belongs to a sign before it, and what follows an apostrophe to the word before.
  for (const _ of plain.matchAll(/(?<=[!-/:-@[-`{-~\u0080-\u00bf\u2000-\u303f])[\n\r]+/g)) sum -= 20;
  for (const { 0: rest } of plain.matchAll(/(?<=')[A-Za-z\u00c0-\u024f]+/g)) {
    sum += ofRun.word(`x${rest}`) - ofRun.word(rest) - 20;
  }
  return sum;
}

const kinds =
  /(?<word>[A-Za-z\u00c0-\u024f]+)|(?<digits>[0-9]+)|(?<alphabet>[\u0370-\u06ff]+)|(?<lineEnd>[\n\r]+)|(?<blank>[\0-\t\v\f\x0e-\x20]+)|(?<ideograph>[\u3400-\u9fff\uac00-\ud7a3])|(?<kana>[\u3040-\u30ff])|(?<abugida>[\u0900-\u0dff])|(?<other>[\ud800-\udbff])|(?<sign>[\s\S]+?(?=[A-Za-z\u00c0-\u024f0-9\u0370-\u06ff\n\r\0-\x20\u3400-\u9fff\uac00-\ud7a3\u3040-\u30ff\u0900-\u0dff\ud800-\udbff]|$))/g;

const ofRun = {
  word: (run: string) => 20 + 20 * Math.max(0, Math.ceil((run.length - 8) / 5)),
  digits: (run: string) => 20 * Math.ceil(run.length / 3),
  alphabet: (run: string) => 20 * Math.ceil(run.length / 5),
  lineEnd: () => 20,
  blank: (run: string) => (run.length > 1 ? 20 : 0),
  ideograph: () => 12,
  kana: () => 9,
  abugida: () => 6,
  other: () => 20,
  sign: () => 20,
};

/** What is said of an answer, each part by itself: how it comes, and what stands between, changes nothing. */
export const partsOf = ({ reasoning, text, calls }: Meaning): readonly string[] => [
  reasoning,
  text,
  ...calls.flatMap((call) => [call.name, call.arguments === '' ? '{}' : call.arguments]),
];

/** Figures as they are written down; each may be anything at all, or missing. */
export interface Figures {
  readonly prompt?: unknown;
  readonly cached?: unknown;
  readonly completion?: unknown;
  readonly reasoning?: unknown;
}

export interface Counted {
  /** `undefined`: what the service makes of the prompt. */
  readonly prompt: number | undefined;
  readonly cached: number;
  readonly completion: number;
  /** `undefined`: some share of the completion. */
  readonly reasoning: number | undefined;
  /** A figure is missing, or is not believed. */
  readonly isMarked: boolean;
}

export const maxTokens = 2_000;
const promptTokensMax = 10_000;

const within = (value: unknown, min: number, max: number): number | undefined =>
  typeof value === 'number' && Number.isInteger(value) && value >= min && value <= max ? value : undefined;

/**
 * What is charged for an answer of several choices. `total`: figures of the request; `own`: of each choice. `undefined` where there are none.
 */
export function countOf(meanings: readonly Meaning[], total: Figures | undefined, own?: readonly Figures[]): Counted {
  const estimates = meanings.map((meaning) =>
    Math.ceil(partsOf(meaning).reduce((sum, part) => sum + estimate(part), 0) / 20),
  );
  const least = meanings.map((meaning) => Math.ceil(partsOf(meaning).join('').length / 1_024));
  const sum = (values: readonly number[]): number => values.reduce((before, value) => before + value, 0);
  const estimated = Math.min(sum(estimates), maxTokens * meanings.length);
  const figures = total ?? own?.[0] ?? {};
  const prompt = within(figures.prompt, 1, promptTokensMax);
  const cached = prompt === undefined ? undefined : within(figures.cached ?? 0, 0, prompt);
  const completions =
    own === undefined
      ? [within(figures.completion, sum(least), maxTokens * meanings.length + 64)]
      : own.map(({ completion }, choice) => within(completion, least[choice]!, maxTokens + 64));
  const isReported = completions.every((value) => value !== undefined);
  const completion = isReported
    ? Math.min(sum(completions as readonly number[]), maxTokens * meanings.length)
    : own === undefined
      ? estimated
      : sum(completions.map((value, choice) => value ?? estimates[choice]!));
  const reasonings = (own ?? [figures]).map(({ reasoning }, choice) =>
    completions[choice] === undefined ? undefined : within(reasoning ?? 0, 0, completions[choice]!),
  );
  const isPartDoubted =
    (prompt !== undefined && cached === undefined) || (isReported && reasonings.includes(undefined));
  const isNamed = isReported && reasonings.every((value) => value !== undefined && value > 0);
  return {
    prompt,
    cached: cached ?? 0,
    completion,
    reasoning: isNamed ? sum(reasonings as readonly number[]) : undefined,
    isMarked: prompt === undefined || !isReported || isPartDoubted,
  };
}

export const figuresOf = ({ prompt, cached, completion, reasoning }: Tokens): Figures => ({
  prompt,
  cached,
  completion,
  reasoning,
});
