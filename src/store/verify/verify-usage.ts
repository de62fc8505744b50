/** Checks whether the roll-ups of usage match its rows: hours with rows, a day at a time, and the days of accounts with their hours (verify-days.ts). */
import { sql, type Expression, type Kysely, type Selectable, type SqlBool } from 'kysely';
import type { Database } from '../database.ts';
import { latenciesOfDay, sumTiersByHour } from '../reports/tier-roll-ups.ts';
import { sumTagsByHour, sumUsageByHour } from '../reports/roll-ups.ts';
import { hourMs } from '../../platform/calendar/time-zone.ts';
import {
  addSums,
  closedBefore,
  dayOfAll,
  endedSince,
  hourOfAll,
  latencyDaysBefore,
  quarterColumns,
  sumColumns,
  type Sums,
} from '../reports/usage-expressions.ts';
import { compare, nameOf, type Row } from './compare-sums.ts';
import type { Report } from './difference.ts';
import { compareDays } from './verify-days.ts';

type Db = Kysely<Database>;

export interface RollUpOptions {
  /** Rows lie in unexpected months: all months are searched, which is slow. */
  readonly everywhere: boolean;
  /** Rows that ended earlier may be removed. */
  readonly keptSince: number;
  /** The sums of all rows that ended earlier. */
  readonly older: OlderUsage;
}

type OlderRow = Sums &
  Readonly<Record<'account_id' | 'model_id' | 'key_id', string>> & { readonly tags: string | null };

/** Usage that ended before the retention, by account, model and key, and by label: its distribution in time is only in the roll-ups. */
export class OlderUsage {
  readonly all = new Map<string, Row>();
  readonly labelled = new Map<string, Row>();

  add({ tags, account_id, model_id, key_id, ...row }: OlderRow): void {
    const sums = Object.fromEntries(sumColumns.map((column) => [column, row[column]])) as unknown as Sums;
    const add = (to: Map<string, Row>, one: Row): void => {
      const name = nameOf(one);
      const there = to.get(name);
      to.set(name, there === undefined ? one : addSums(there, one));
    };
    add(this.all, { ...sums, account_id, model_id, key_id });
    for (const tag of labelsIn(tags) ?? []) add(this.labelled, { ...sums, account_id, model_id, key_id, tag });
  }
}

/** undefined: they are not the labels of a request. */
export function labelsIn(text: string | null): readonly string[] | undefined {
  try {
    const list: unknown = JSON.parse(text ?? '[]');
    return Array.isArray(list) && list.every((one) => typeof one === 'string') ? list : undefined;
  } catch {
    return undefined;
  }
}

/** Resolves with the number of hours of usage_hour that were compared. */
export async function verifyRollUps(db: Db, options: RollUpOptions, report: Report): Promise<number> {
  const wrong = new Set<string | null>();
  const reportHour: Report = (difference) => {
    wrong.add(difference.accountId);
    report(difference);
  };
  let hours = 0;
  await whileReadable('usage_hour', report, async () => void (hours = await compareHours(db, options, reportHour)));
  if (options.keptSince > 0) await compareOlder(db, options, reportHour);
  await compareDays(db, wrong, report);
  await compareTiers(db, options, report);
  await whileReadable('usage_latency_day', report, () => compareLatencies(db, options, report));
  return hours;
}

/** A row whose JSON is broken ends one comparison, and no other. */
async function whileReadable(what: string, report: Report, comparing: () => Promise<void>): Promise<void> {
  try {
    await comparing();
  } catch (error) {
    if (!(error instanceof SyntaxError)) throw error;
    report({ accountId: null, what, expected: 'compared to its end', found: error.message });
  }
}

/** Compares closed hours of both tables, a day at a time. */
async function compareHours(db: Db, { everywhere, keptSince }: RollUpOptions, report: Report): Promise<number> {
  const closed = await closedBefore(db);
  let compared = 0;
  for (let start = Math.max(await firstHour(db), keptSince); start < closed; start += 24 * hourMs) {
    const end = Math.min(start + 24 * hourMs, closed);
    const seen = new Set<bigint>();
    const rows = await differingRows(db, {
      table: 'usage_hour',
      columns: ['account_id', 'hour', 'model_id', 'key_id', ...sumColumns, ...quarterColumns],
      expected: sumUsageByHour(db, start, end, { everywhere }),
      span: { start, end },
    });
    const stored = db.selectFrom('usage_hour').select('hour').distinct().where(hourIn(start, end));
    for (const { hour } of [...(await stored.execute()), ...rows.expected]) seen.add(hour!);
    compared += seen.size;
    compare('usage_hour', rows.expected, rows.found, report);
    const labelled = await sumTagsByHour(db, start, end, { everywhere });
    const found = db.selectFrom('usage_tag_hour').selectAll().where(hourIn(start, end));
    compare('usage_tag_hour', labelled, await found.execute(), report);
  }
  return compared;
}

const hourIn = (start: number, end: number) =>
  sql<SqlBool>`(${hourOfAll} >= ${BigInt(start)} and ${hourOfAll} < ${BigInt(end)})`;

/** Compares the hours of usage_tier_hour, which may end before those of usage_hour. */
async function compareTiers(db: Db, { everywhere, keptSince }: RollUpOptions, report: Report): Promise<void> {
  const closed = await closedBefore(db, 'usage_tier_hour');
  for (let start = Math.max(await firstHour(db), keptSince); start < closed; start += 24 * hourMs) {
    const end = Math.min(start + 24 * hourMs, closed);
    const { expected, found } = await differingRows(db, {
      table: 'usage_tier_hour',
      columns: ['account_id', 'hour', 'model_id', 'key_id', 'tier', 'ending', ...sumColumns],
      expected: sumTiersByHour(db, start, end, { everywhere }),
      span: { start, end },
    });
    compare('usage_tier_hour', expected, found, report);
  }
}

/** The rows that only one side has. The database compares, because nearly all are the same and each takes 50 µs here. */
async function differingRows(
  db: Db,
  {
    table,
    columns,
    expected,
    span: { start, end },
  }: {
    readonly table: 'usage_hour' | 'usage_tier_hour';
    readonly columns: readonly string[];
    readonly expected: Expression<unknown>;
    readonly span: { readonly start: number; readonly end: number };
  },
): Promise<{ readonly expected: readonly Row[]; readonly found: readonly Row[] }> {
  const all = sql.join(columns.map((column) => sql.ref(column)));
  const { rows } = await sql<Row & { readonly side: 'expected' | 'found' }>`
    with expected as ${expected}, found as (select ${all} from ${sql.table(table)} where ${hourIn(start, end)})
    select 'expected' as side, ${all} from (select ${all} from expected except select ${all} from found) as missing
    union all
    select 'found' as side, ${all} from (select ${all} from found except select ${all} from expected) as other`.execute(
    db,
  );
  const of = (side: 'expected' | 'found'): readonly Row[] => rows.filter((row) => row.side === side);
  return { expected: of('expected'), found: of('found') };
}

/** Compares the days of usage_latency_day whose rows are kept: how many requests took how long. */
async function compareLatencies(db: Db, { everywhere, keptSince }: RollUpOptions, report: Report): Promise<void> {
  const dayMs = 24 * hourMs;
  const closed = await latencyDaysBefore(db);
  const first = Math.floor((await firstHour(db)) / dayMs) * dayMs;
  for (let day = Math.max(first, Math.ceil(keptSince / dayMs) * dayMs); day < closed; day += dayMs) {
    const stored = await db.selectFrom('usage_latency_day').selectAll().where(dayOfAll, '=', BigInt(day)).execute();
    const made = (await latenciesOfDay(db, day, { everywhere })).map((row) => ({ ...row, day: BigInt(day) }));
    // Nearly all have the very text of the other side, which is cheaper to compare.
    const [expected, found] = [byRange(without(made, stored)), byRange(without(stored, made))];
    for (const [name, { accountId }] of new Map([...found, ...expected])) {
      const [one, other] = [expected.get(name)?.requests ?? 0, found.get(name)?.requests ?? 0];
      if (one !== other)
        report({ accountId, what: `usage_latency_day ${name}`, expected: BigInt(one), found: BigInt(other) });
    }
  }
}

type Latencies = Selectable<Database['usage_latency_day']>;

function without(rows: readonly Latencies[], others: readonly Latencies[]): readonly Latencies[] {
  const textOf = (row: Latencies): string =>
    JSON.stringify([row.account_id, row.model_id, row.key_id, row.tier, row.ending, row.counts]);
  const texts = new Set(others.map(textOf));
  return rows.filter((row) => !texts.has(textOf(row)));
}

function byRange(rows: readonly Latencies[]) {
  return new Map(
    rows.flatMap(({ counts, ...row }) =>
      Object.entries(JSON.parse(counts) as Readonly<Record<string, number>>).map(
        ([range, requests]) =>
          [`${nameOf({ ...nothing, ...row })}: ${range}`, { accountId: row.account_id, requests }] as const,
      ),
    ),
  );
}

const nothing = Object.fromEntries(sumColumns.map((column) => [column, 0n])) as unknown as Sums;

/** Compares all hours before the retention together, because their rows may be removed. */
async function compareOlder(db: Db, { keptSince, older }: RollUpOptions, report: Report): Promise<void> {
  for (const [table, expected, columns] of [
    ['usage_hour', older.all, ['account_id', 'model_id', 'key_id']],
    ['usage_tier_hour', older.all, ['account_id', 'model_id', 'key_id']],
    ['usage_tag_hour', older.labelled, ['account_id', 'model_id', 'key_id', 'tag']],
  ] as const) {
    const by = sql.join(columns.map((column) => sql.ref(column)));
    const { rows } = await sql<Row>`
      select ${by}, ${sql.join(sumColumns.map((column) => sql`sum(${sql.ref(column)}) as ${sql.ref(column)}`))}
      from ${sql.table(table)} where ${hourOfAll} < ${BigInt(keptSince)} group by ${by}`.execute(db);
    compare(table, [...expected.values()], rows, report);
  }
}

/** The earliest hour in any of the tables. */
async function firstHour(db: Db): Promise<number> {
  const times: (bigint | number | undefined)[] = [await endedSince(db)];
  for (const table of ['usage_hour', 'usage_tag_hour'] as const)
    times.push((await db.selectFrom(table).select('hour').orderBy(hourOfAll).limit(1).executeTakeFirst())?.hour);
  const known = times.filter((time) => time !== undefined).map(Number);
  return Math.floor(Math.min(...known) / hourMs) * hourMs; // Infinity if there is no hour: nothing is compared
}
