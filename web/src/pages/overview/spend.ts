import type { Got } from '../../api/use-api.ts';
import { monthIn } from '../../format/date.ts';

export type Costs = Got<'/v1/costs'>;

export const reportDays = 30;
/** From `reportStart` there are 33 days at most, the first and the last in parts. */
export const reportBuckets = 33;
const daySeconds = 86_400;
/** More colours than that are no help. */
const modelsMax = 5;

/**
 * Where the report begins, in unix seconds: a day earlier than the longest month needs, whatever the zone of the account is. The
 * same for a whole day, so that the report is one entry of the cache.
 */
export const reportStart = (nowMs: number): number => (Math.floor(nowMs / 1000 / daySeconds) - 31) * daySeconds;

interface Series {
  readonly name: string;
  /** One for each day. */
  readonly values: readonly number[];
}

interface Spend {
  /** In microcents, refunds taken off. */
  readonly today: number;
  readonly month: number;
  /** Beginnings of the last thirty days. */
  readonly days: readonly number[];
  /** Charges of each day by model, refunds left out. */
  readonly series: readonly Series[];
}

/** What the figures and the chart are made of; the last bucket is today. */
export function spendOf({ data, time_zone: zone }: Costs, others = ''): Spend {
  const sumOf = ({ results }: Costs['data'][number]): number =>
    results.reduce((sum, { amount_microcents: amount }) => sum + amount, 0);
  const now = data.at(-1);
  const monthOf = monthIn(zone);
  const ofMonth = data.filter(({ start_time: at }) => now !== undefined && monthOf(at) === monthOf(now.start_time));
  const shown = data.slice(-reportDays);
  return {
    today: now === undefined ? 0 : sumOf(now),
    month: ofMonth.reduce((sum, bucket) => sum + sumOf(bucket), 0),
    days: shown.map(({ start_time: at }) => at),
    series: seriesOf(shown, others),
  };
}

function seriesOf(days: Costs['data'], others: string): readonly Series[] {
  const byModel = new Map<string, number[]>();
  for (const [at, { results }] of days.entries())
    for (const { model, line_item: item, amount_microcents: amount } of results) {
      if (item !== 'usage') continue;
      const values = byModel.get(model ?? '') ?? days.map(() => 0);
      values[at]! += amount;
      byModel.set(model ?? '', values);
    }
  const sum = (values: readonly number[]): number => values.reduce((total, value) => total + value, 0);
  const sorted = [...byModel]
    .map(([name, values]) => ({ name, values }))
    .toSorted((a, b) => sum(b.values) - sum(a.values));
  const rest = sorted.slice(modelsMax);
  if (rest.length === 0) return sorted;
  const values = days.map((_, at) => sum(rest.map((one) => one.values[at]!)));
  return [...sorted.slice(0, modelsMax), { name: others, values }];
}
