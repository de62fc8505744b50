/** What the service has done, over time: the steps that it is kept in, and the figures of one. */
import { hourMs, minuteMs, quarterMs } from '../platform/calendar/time-zone.ts';

interface Step {
  readonly stepMs: number;
  /** Steps that are kept before the one that runs. */
  readonly kept: number;
}

/** By what a reader asks for: the last hour, day or week. */
export const historySpans = {
  hour: { stepMs: minuteMs, kept: 60 },
  day: { stepMs: quarterMs, kept: 96 },
  week: { stepMs: hourMs, kept: 168 },
} as const satisfies Readonly<Record<string, Step>>;
export type HistorySpan = keyof typeof historySpans;

export const begunAt = (at: number, stepMs: number): number => at - (at % stepMs);

/** A minute that has just ended is not written by all processes yet. */
const writingMs = 5_000;

/** What is shown of a span: from the beginning of its first step to the end of the last minute. */
export function shownSpan(span: HistorySpan, now: number): { readonly from: number; readonly to: number } {
  const { stepMs, kept } = historySpans[span];
  const to = begunAt(now - writingMs, minuteMs);
  return { from: begunAt(to - 1, stepMs) - (kept - 1) * stepMs, to };
}

/** Figures that add up over time, backends and processes. */
export const addedFigures = [
  'requests',
  'refused',
  'failed',
  'promptTokens',
  'completionTokens',
  'answerTokens',
  'answerMs',
  'waits',
  'waitMs',
] as const;

/** Upper ends, in milliseconds, of the buckets that times to the first token are counted in; a last one has those above. */
export const firstTokenBounds = [25, 50, 100, 250, 500, 1_000, 2_500, 5_000, 10_000, 30_000, 60_000] as const;

export type HistoryFigures = Readonly<Record<(typeof addedFigures)[number], number>> & {
  readonly waitLongestMs: number;
  /** Answers in each bucket of `firstTokenBounds`, so that what several processes measured can be put together. */
  readonly firstTokens: readonly number[];
};

/** What happened in a step. */
export interface HistoryRow extends HistoryFigures {
  /** When the step began. */
  readonly at: number;
  /** Empty: refused before a model was found. */
  readonly model: string;
  /** Empty: the model as a whole. */
  readonly backend: string;
}

/** The model and the backend of what is not kept apart. */
export const others = 'other';

export const noFigures: HistoryFigures = {
  ...(Object.fromEntries(addedFigures.map((name) => [name, 0])) as Record<(typeof addedFigures)[number], number>),
  waitLongestMs: 0,
  firstTokens: [...firstTokenBounds, 0].map(() => 0),
};

export const together = (one: HistoryFigures, other: HistoryFigures): HistoryFigures => ({
  ...(Object.fromEntries(addedFigures.map((name) => [name, one[name] + other[name]])) as Record<
    (typeof addedFigures)[number],
    number
  >),
  waitLongestMs: Math.max(one.waitLongestMs, other.waitLongestMs),
  firstTokens: one.firstTokens.map((count, index) => count + other.firstTokens[index]!),
});

/** The rows that have the same step, model and backend are put together; in the order of these. */
export function merged(rows: readonly HistoryRow[]): readonly HistoryRow[] {
  const found = new Map<string, HistoryRow>();
  for (const row of rows) {
    const { at, model, backend } = row;
    const name = JSON.stringify([at, model, backend]);
    const known = found.get(name);
    found.set(name, known === undefined ? row : { at, model, backend, ...together(known, row) });
  }
  return [...found].toSorted(([one], [other]) => (one < other ? -1 : 1)).map(([, row]) => row);
}
