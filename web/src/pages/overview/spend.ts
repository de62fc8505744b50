import type { Got } from '../../api/use-api.ts';
import { topSeries } from '../../components/series.ts';
import type { ChartSeries } from '../../components/series.ts';
import { monthIn } from '../../format/date.ts';

export type Costs = Got<'/v1/costs'>;

export const reportDays = 30;
/** From `reportStart` there are 33 days at most, the first and the last in parts. */
export const reportBuckets = 33;
const daySeconds = 86_400;

/**
 * Where the report begins, in unix seconds: a day earlier than the longest month needs, whatever the zone of the account is. The
 * same for a whole day, so that the report is one entry of the cache.
 */
export const reportStart = (nowMs: number): number => (Math.floor(nowMs / 1000 / daySeconds) - 31) * daySeconds;

interface Spend {
  /** In microcents, refunds taken off. */
  readonly today: number;
  readonly month: number;
  /** Beginnings of the last thirty days. */
  readonly days: readonly number[];
  /** Charges of each day by model, refunds left out. */
  readonly series: readonly ChartSeries[];
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

function seriesOf(days: Costs['data'], others: string): readonly ChartSeries[] {
  const byModel = new Map<string, number[]>();
  for (const [at, { results }] of days.entries())
    for (const { model, line_item: item, amount_microcents: amount } of results) {
      if (item !== 'usage') continue;
      const values = byModel.get(model ?? '') ?? days.map(() => 0);
      values[at]! += amount;
      byModel.set(model ?? '', values);
    }
  const all = [...byModel].map(([name, values]) => ({ name, values }));
  return topSeries(all, others);
}
