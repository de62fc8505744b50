/** Compares sums of usage that a roll-up has with those that it should have. */
import {
  quarterColumns,
  sumColumns,
  type QuarterColumn,
  type QuarterSums,
  type SumColumn,
  type Sums,
} from '../reports/usage-expressions.ts';
import type { Report } from './difference.ts';

/** A row of a roll-up. */
export type Row = Sums &
  Partial<QuarterSums> & {
    readonly account_id: string;
    readonly hour?: bigint;
    readonly day?: bigint;
    readonly tag?: string;
    readonly model_id: string;
    readonly key_id: string;
    readonly tier?: string;
    readonly ending?: string;
  };

export function compare(table: string, expected: readonly Row[], found: readonly Row[], report: Report): void {
  const should = new Map(expected.map((row) => [nameOf(row), row]));
  const is = new Map(found.map((row) => [nameOf(row), row]));
  for (const name of new Set([...should.keys(), ...is.keys()])) {
    const [one, other] = [should.get(name), is.get(name)];
    const differs = (column: SumColumn | QuarterColumn): boolean => (one?.[column] ?? 0n) !== (other?.[column] ?? 0n);
    const wrong = sumColumns.filter(differs);
    // A wrong hour has wrong quarters, too, so it is reported once. Days have no quarters.
    const quarters = wrong.length === 0 ? quarterColumns.filter(differs) : [];
    for (const column of [...wrong, ...quarters])
      report({
        accountId: (one ?? other)!.account_id,
        what: `${table} ${name}: ${column}`,
        expected: one?.[column] ?? 0n,
        found: other?.[column] ?? 0n,
      });
  }
}

export function nameOf({
  account_id: account,
  hour,
  day,
  model_id: model,
  key_id: key,
  tag,
  tier,
  ending,
}: Row): string {
  const at = hour ?? day;
  const words = [at === undefined ? 'before the retention' : new Date(Number(at)).toISOString(), account, model, key];
  return [...words, tag, tier, ending].filter((word) => word !== undefined).join(' ');
}
