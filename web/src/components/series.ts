export interface ChartSeries {
  readonly name: string;
  /** One value for each label; in a chart of lines NaN where there is none. */
  readonly values: readonly number[];
}

/** More colours than that are no help. */
export const seriesMax = 6;

/** The largest series first; beyond the fifth they are one. */
export function topSeries(all: readonly ChartSeries[], others: string): readonly ChartSeries[] {
  const sum = ({ values }: ChartSeries): number => values.reduce((total, value) => total + value, 0);
  const sorted = all.toSorted((a, b) => sum(b) - sum(a));
  const most = seriesMax - 1;
  const rest = sorted.slice(most);
  if (rest.length === 0) return sorted;
  const values = rest[0]!.values.map((_, at) => rest.reduce((total, one) => total + (one.values[at] ?? 0), 0));
  return [...sorted.slice(0, most), { name: others, values }];
}

export const seriesColor = (at: number): string => `var(--chart-${(at % seriesMax) + 1})`;
