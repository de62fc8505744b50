/**
 * Checks whether the summed-up days of accounts match their hours, which verify-usage.ts has compared with the rows. Both are read in the order of their
 * keys, beside each other, so that a million accounts with a few days each take as few queries as one account with all of them.
 */
import { sql, type Kysely, type Selectable, type SqlBool } from 'kysely';

import { hourMs, nextDay, quarterMs, startOfDay } from '../../platform/calendar/time-zone.ts';
import type { Database } from '../database.ts';
import { addSums, quarters, sumColumns, type Sums } from '../reports/usage-expressions.ts';
import { compare, nameOf, type Row } from './compare-sums.ts';
import type { Report } from './difference.ts';
import { pagesByKey } from './pages.ts';

type Db = Kysely<Database>;
/** An account whose days are summed up to `until`, and its place in the order of the database, which may have rules of its own for text. */
type Account = Selectable<Database['usage_days']> & { readonly place: number };
type Accounts = ReadonlyMap<string, Account>;

/** The sums of one day of one account. */
interface Day {
  readonly account: Account;
  readonly day: bigint;
  readonly rows: readonly Row[];
}

const accountsAtOnce = 500;
const rowsAtOnce = 2000;

/** `wrong`: accounts with a wrong hour, which is reported; their days are not compared with it. */
export async function compareDays(db: Db, wrong: ReadonlySet<string | null>, report: Report): Promise<void> {
  const dayOf = keptDays();
  const pages = pagesByKey({
    first: '',
    size: accountsAtOnce,
    read: (after) => db.selectFrom('usage_days').selectAll().where('account_id', '>', after).orderBy('account_id'),
    keyOf: ({ account_id: id }) => id,
  });
  for await (const page of pages) {
    const judged = page.filter(({ account_id: id }) => !wrong.has(id));
    if (judged.length === 0) continue;
    const accounts = new Map(judged.map((account, place) => [account.account_id, { ...account, place }]));
    for (const [days, hours] of [
      ['usage_day', 'usage_hour'],
      ['usage_tag_day', 'usage_tag_hour'],
    ] as const) {
      const found = daysOf(rowsOf(db, days, accounts));
      const expected = daysOfHours(rowsOf(db, hours, accounts), dayOf);
      for await (const [one, other] of sideBySide(expected, found))
        compare(days, one?.rows ?? [], other?.rows ?? [], report);
    }
  }
}

type Table = 'usage_hour' | 'usage_tag_hour' | 'usage_day' | 'usage_tag_day';

/** The rows of the accounts in the order of the key: by account and time. */
async function* rowsOf(db: Db, table: Table, accounts: Accounts): AsyncGenerator<readonly [Account, Row]> {
  const ids = [...accounts.keys()];
  const time = table.endsWith('hour') ? 'hour' : 'day';
  const columns = ['account_id', time, ...(table.includes('tag') ? ['tag'] : []), 'model_id', 'key_id'] as const;
  const key = sql.join(columns.map((column) => sql.ref(column)));
  const pages = pagesByKey({
    first: undefined as Row | undefined,
    size: rowsAtOnce,
    read: (after) =>
      (db.selectFrom(table as 'usage_hour') as unknown as { selectAll(): RowQuery })
        .selectAll()
        .where(sql<SqlBool>`account_id <= ${ids.at(-1)!}`)
        .where(
          after === undefined
            ? sql<SqlBool>`account_id >= ${ids[0]!}`
            : sql<SqlBool>`(${key}) > (${sql.join(columns.map((column) => after[column as keyof Row]))})`,
        )
        .orderBy(key),
    keyOf: (row) => row,
  });
  for await (const page of pages)
    for (const row of page) {
      const account = accounts.get(row.account_id);
      if (account !== undefined && (time === 'hour' || row.day! < account.until)) yield [account, row];
    }
}

/** All four tables have the columns of `Row`. */
interface RowQuery {
  where(condition: unknown): RowQuery;
  orderBy(key: unknown): RowQuery;
  limit(rows: number): { execute(): Promise<Row[]> };
}

async function* daysOf(rows: AsyncIterable<readonly [Account, Row]>): AsyncGenerator<Day> {
  let [account, together]: [Account | undefined, Row[]] = [undefined, []];
  for await (const [of, row] of rows) {
    if (together.length > 0 && (of !== account || row.day !== together[0]!.day)) {
      yield { account: account!, day: together[0]!.day!, rows: together };
      together = [];
    }
    account = of;
    together.push(row);
  }
  if (together.length > 0) yield { account: account!, day: together[0]!.day!, rows: together };
}

/** The days that hours add up to; an hour in which a day ends is divided by its quarters. */
async function* daysOfHours(rows: AsyncIterable<readonly [Account, Row]>, dayOf: DayOf): AsyncGenerator<Day> {
  const open = new Map<number, Map<string, Row>>();
  let account: Account | undefined;
  const before = function* (at: number): Generator<Day> {
    for (const [day, sums] of open)
      if (day < at) {
        open.delete(day);
        if (day < account!.until) yield { account: account!, day: BigInt(day), rows: [...sums.values()] };
      }
  };
  const add = (day: number, row: Row, part: Sums): void => {
    if (part.requests === 0n) return;
    const { account_id, model_id, key_id, tag } = row;
    const one: Row = { ...part, account_id, day: BigInt(day), model_id, key_id, ...(tag === undefined ? {} : { tag }) };
    const sums = open.get(day) ?? new Map<string, Row>();
    const there = sums.get(nameOf(one));
    open.set(day, sums.set(nameOf(one), there === undefined ? one : addSums(there, one)));
  };
  for await (const [of, row] of rows) {
    if (of !== account) yield* before(Infinity);
    account = of;
    const hour = Number(row.hour);
    const { day, end } = dayOf(of.time_zone, hour);
    yield* before(day);
    const first = end < hour + hourMs ? firstOf(row, end - hour) : sumsOf(row);
    add(day, row, first);
    if (end < hour + hourMs) add(end, row, less(sumsOf(row), first));
  }
  yield* before(Infinity);
}

const sumsBy = (value: (column: (typeof sumColumns)[number]) => bigint): Sums =>
  Object.fromEntries(sumColumns.map((column) => [column, value(column)])) as unknown as Sums;
const sumsOf = (row: Sums): Sums => sumsBy((column) => row[column]);
const less = (row: Sums, other: Sums): Sums => sumsBy((column) => row[column] - other[column]);
/** The part of an hour that ended in its first milliseconds, which are whole quarters. */
const firstOf = (row: Row, firstMs: number): Sums =>
  sumsBy((column) =>
    quarters
      .filter((quarter) => quarter * quarterMs <= firstMs)
      .reduce((sum, quarter) => sum + (row[`${column}_q${quarter}`] ?? 0n), 0n),
  );

/** Pairs of the same day of the same account; undefined where one side has none. */
async function* sideBySide(
  left: AsyncGenerator<Day>,
  right: AsyncGenerator<Day>,
): AsyncGenerator<readonly [Day | undefined, Day | undefined]> {
  const next = async (side: AsyncGenerator<Day>): Promise<Day | undefined> => {
    const { value, done } = await side.next();
    return done === true ? undefined : (value as Day);
  };
  let [one, other] = [await next(left), await next(right)];
  while (one !== undefined || other !== undefined) {
    const order = one === undefined ? 1 : other === undefined ? -1 : orderOf(one, other);
    yield [order <= 0 ? one : undefined, order >= 0 ? other : undefined];
    if (order <= 0) one = await next(left);
    if (order >= 0) other = await next(right);
  }
}

const orderOf = (one: Day, other: Day): number =>
  one.account.place - other.account.place || Number(one.day - other.day);

/** The day of an hour, and where it ends, in ms since 1970. */
type DayOf = (timeZone: string, hour: number) => { readonly day: number; readonly end: number };

/** Each is computed once for all accounts of a zone: it takes 10 µs. */
function keptDays(): DayOf {
  const kept = new Map<string, ReturnType<DayOf>>();
  return (timeZone, hour) => {
    const name = `${timeZone} ${hour}`;
    let found = kept.get(name);
    if (found === undefined) {
      const day = startOfDay(timeZone, hour);
      found = { day, end: nextDay(timeZone, day) };
      if (kept.size < 100_000) kept.set(name, found);
    }
    return found;
  };
}
