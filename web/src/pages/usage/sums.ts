import type { Got } from '../../api/use-api.ts';
import { groupings, type Figure, type Grouping } from './groupings.ts';

export type Report = Got<'/v1/usage'>;
type Result = Report['data'][number]['results'][number];

export interface Sums extends Readonly<Record<Figure, number>> {
  readonly cached: number;
  readonly reasoning: number;
}

const none: Sums = { requests: 0, input: 0, cached: 0, output: 0, reasoning: 0, cost: 0 };

/** `cost` is in microcents: what was charged, refunds not taken off. */
const sumsOfResult = (of: Result): Sums => ({
  requests: of.num_model_requests,
  input: of.input_tokens,
  cached: of.input_cached_tokens,
  output: of.output_tokens,
  reasoning: of.output_reasoning_tokens,
  cost: of.cost_microcents,
});

const plus = (one: Sums, other: Sums): Sums => ({
  requests: one.requests + other.requests,
  input: one.input + other.input,
  cached: one.cached + other.cached,
  output: one.output + other.output,
  reasoning: one.reasoning + other.reasoning,
  cost: one.cost + other.cost,
});

/** All of a report. */
export const sumsOf = ({ data }: Report): Sums =>
  data.flatMap(({ results }) => results.map(sumsOfResult)).reduce(plus, none);

export interface Group {
  /** null: of no person, or of a tier or ending that is not known. */
  readonly id: string | null;
  readonly sums: Sums;
  /** One for each bucket of the report. */
  readonly buckets: readonly Sums[];
}

/** The first bucket with any usage, or an earlier one, so that there is more than a bar or two. */
export function firstUsed(groups: readonly Group[]): number {
  const count = groups[0]?.buckets.length ?? 0;
  const first = Math.min(count, ...groups.map(({ buckets }) => buckets.findIndex(({ requests }) => requests > 0)));
  return Math.max(0, Math.min(first, count - barsMin));
}

/** A chart has at least so many bars. */
const barsMin = 7;

/** The groups of a report, those with the largest figure first. */
export function groupsOf({ data }: Report, by: Grouping, figure: Figure): readonly Group[] {
  const buckets = new Map<string | null, Sums[]>();
  for (const [at, { results }] of data.entries())
    for (const result of results) {
      const id = result[groupings[by]];
      const own = buckets.get(id) ?? data.map(() => none);
      own[at] = plus(own[at]!, sumsOfResult(result));
      buckets.set(id, own);
    }
  return [...buckets]
    .map(([id, own]) => ({ id, buckets: own, sums: own.reduce(plus, none) }))
    .toSorted((a, b) => b.sums[figure] - a.sums[figure]);
}
