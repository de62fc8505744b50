/**
 * Ranges of milliseconds, four to a doubling: a percentile is right to 9 % at worst, and of many requests to some 2 %, because it is
 * interpolated. Stored counts name a range by its number, so the bounds never change.
 */
import { sql, type RawBuilder } from 'kysely';

/** Range `n` ends before `bounds[n]` and begins at the bound before; the last one has no end. Up to two and a half hours. */
export const latencyBounds: readonly number[] = [
  ...new Set(Array.from({ length: 94 }, (_, step) => Math.round(2 ** (step / 4)))),
];

/** The number of the range of a column's milliseconds: a search by halves, of seven comparisons. */
export function latencyRange(column: string): RawBuilder<number> {
  const within = (low: number, high: number): RawBuilder<number> => {
    if (low === high) return sql<number>`${sql.lit(low)}`;
    const middle = Math.floor((low + high) / 2);
    return sql<number>`case when ${sql.ref(column)} < ${sql.lit(latencyBounds[middle]!)} then ${within(low, middle)} else ${within(middle + 1, high)} end`;
  };
  return within(0, latencyBounds.length);
}

/** Requests by the number of their range. */
export type LatencyCounts = ReadonlyMap<number, number>;

/** The milliseconds that a share of the requests took at most; null: there are none. */
export function percentile(counts: LatencyCounts, share: number): number | null {
  const ranges = [...counts].sort(([one], [other]) => one - other);
  const wanted = share * ranges.reduce((sum, [, count]) => sum + count, 0);
  let before = 0;
  for (const [range, count] of ranges) {
    if (before + count < wanted) {
      before += count;
      continue;
    }
    const from = latencyBounds[range - 1] ?? 0;
    // Milliseconds are whole: a range of one has that one.
    const last = (latencyBounds[range] ?? from + 1) - 1;
    return Math.round(from + ((last - from) * (wanted - before)) / count);
  }
  return null;
}
