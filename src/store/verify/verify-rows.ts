/**
 * Checks the rows of usage and adds them up. The database does both for very many rows at once, because reading a row here takes 20 µs and there
 * are a hundred million: it finds the rows that are not surely right, which are judged here with exact figures.
 */
import { sql, type Kysely, type RawBuilder, type SqlBool } from 'kysely';

import { hourMs } from '../../platform/calendar/time-zone.ts';
import { timeOfUuid, uuidText } from '../../platform/ids/uuid.ts';
import type { Database } from '../database.ts';
import type { Ending } from '../ledger.ts';
import { sumsOf, type SumColumn } from '../reports/usage-expressions.ts';
import { endedInMonthOf, isInMonthsOf, keyBound, monthOfKey } from '../reports/usage-months.ts';
import type { Difference, Report } from './difference.ts';
import { pagesByKey } from './pages.ts';
import type { BudgetTotals } from './verify-budgets.ts';
import { labelsIn, OlderUsage } from './verify-usage.ts';

type Db = Kysely<Database>;

export interface RowTotals {
  /** By account. */
  readonly cost: Map<string, bigint>;
  readonly count: number;
  /** Number of rows that a query by time does not find. */
  readonly strays: number;
  /** Usage that ended before the retention. */
  readonly older: OlderUsage;
}

const rowsAtOnceMax = 200_000;
const pageRows = 2000;
const dayMs = 24 * hourMs;

/** Keys from `first` to before `end`, all of one month. */
interface Span {
  readonly first: Uint8Array;
  readonly end: Uint8Array;
}

/** Adds up all rows, and reports what is wrong with any. `budgets` gets the cost of each. */
export async function sumRows(
  db: Db,
  {
    budgets,
    keptSince,
    report,
    rowsAtOnce = rowsAtOnceMax,
  }: {
    readonly budgets: Pick<BudgetTotals, 'add'>;
    readonly keptSince: number;
    readonly report: Report;
    readonly rowsAtOnce?: number;
  },
): Promise<RowTotals> {
  const cost = new Map<string, bigint>();
  const older = new OlderUsage();
  let [count, strays] = [0, 0];
  for await (const span of spansOf(db, rowsAtOnce)) {
    let doubtful = 0n;
    const misread = new Set<string>();
    for (const group of await chargesOf(db, span)) {
      add(cost, group.account_id, group.cost);
      budgets.add(group);
      count += Number(group.requests);
      doubtful += group.doubtful;
      if (labelsIn(group.tags) === undefined) misread.add(group.tags!);
    }
    if (keptSince > 0) for (const group of await olderOf(db, span, keptSince)) older.add(group);
    if (doubtful === 0n && misread.size === 0) continue;
    for await (const row of doubtfulRows(db, span, misread)) {
      const reportOf: Report = (fault) =>
        report({ ...fault, what: `usage ${uuidText(row.request_id)}: ${fault.what}` });
      refuseLabels(row, reportOf);
      if (!isInMonthsOf(Number(row.ended_at), timeOfUuid(row.request_id))) strays += 1;
      for (const fault of faultsOf(row)) reportOf({ accountId: row.account_id, ...fault });
    }
  }
  return { cost, count, strays, older };
}

/** Divides all rows by months and, within these, by number. */
async function* spansOf(db: Db, rowsAtOnce: number): AsyncGenerator<Span> {
  const keys = db.selectFrom('usage').select('request_id').orderBy('request_id').limit(1);
  let from: Uint8Array = new Uint8Array(0);
  for (;;) {
    const row = await keys.where('request_id', '>=', from).executeTakeFirst();
    if (row === undefined) return;
    const first = Uint8Array.from(row.request_id);
    const month = keyBound(monthOfKey(timeOfUuid(first)).toMs);
    const next = await keys
      .where('request_id', '>=', first)
      .where('request_id', '<', month)
      .offset(rowsAtOnce)
      .executeTakeFirst();
    const end = next === undefined ? month : Uint8Array.from(next.request_id);
    yield { first, end };
    from = end;
  }
}

const rowsIn = (db: Db, { first, end }: Span) =>
  db.selectFrom('usage').where('request_id', '>=', first).where('request_id', '<', end);

/** What is charged to budgets, by the UTC day of the request's start, in which each period begins, and by label. One scan: it is most of the work. */
async function chargesOf(db: Db, span: Span) {
  const day = sql<bigint>`started_at - started_at % ${sql.lit(dayMs)}`;
  const columns = [
    'account_id',
    'key_id',
    'model_id',
    'key_budget',
    'account_budget',
    'member_budget',
    'tags',
  ] as const;
  return await rowsIn(db, span)
    .select(columns)
    .select(day.as('started_at'))
    .select([sql<bigint>`sum(cost)`.as('cost'), sql<bigint>`count(*)`.as('requests')])
    .select(sql<bigint>`sum(${isDoubtful(span)})`.as('doubtful'))
    .groupBy([...columns, day])
    .execute();
}

async function olderOf(db: Db, span: Span, keptSince: number) {
  const columns = ['account_id', 'model_id', 'key_id', 'tags'] as const;
  return await rowsIn(db, span)
    .where('ended_at', '<', BigInt(keptSince))
    .select(columns)
    .select(sumsOf(sql`count(*)`))
    .groupBy(columns)
    .execute();
}

/** 1 for every row with a fault but for its labels, and for some others; else 0. */
const isDoubtful = ({ first }: Span): RawBuilder<number> =>
  sql`(case when ${isRight} and ${endedInMonthOf(timeOfUuid(first))} then 0 else 1 end)`;

/** Those rows, and those with these labels. */
async function* doubtfulRows(db: Db, span: Span, misread: ReadonlySet<string>) {
  const pages = pagesByKey({
    first: span.first,
    size: pageRows,
    read: (after) =>
      rowsIn(db, { first: after, end: span.end })
        .select(['request_id', 'account_id', 'tags', 'started_at', 'ended_at'])
        .select(['prompt_tokens', 'cached_tokens', 'completion_tokens', 'reasoning_tokens', 'cost', 'uncharged'])
        .select(['hold', 'ending', 'input_price', 'output_price', 'cache_read_price'])
        .where((is) =>
          is.or([
            sql<SqlBool>`${isDoubtful(span)} = 1`,
            ...(misread.size === 0 ? [] : [is('tags', 'in', [...misread])]),
          ]),
        )
        .orderBy('request_id'),
    keyOf: ({ request_id: id }) => Uint8Array.from([...id, 0]),
  });
  for await (const page of pages) yield* page;
}

/** `what` of the report is of the row alone. */
export function refuseLabels(
  { account_id: accountId, tags }: { readonly account_id: string; readonly tags: string | null },
  report: Report,
): void {
  if (labelsIn(tags) === undefined) report({ accountId, what: 'tags', expected: 'a list of texts', found: tags! });
}

/** The part of the table of endings (docs/money.md) that applies to an ending. */
const chargeOf: Readonly<Record<Ending, 'list' | 'nothing' | 'hold'>> = {
  finished: 'list',
  credit: 'list',
  client_left: 'list',
  reader_stalled: 'list',
  revoked: 'list',
  failed: 'nothing',
  deadline: 'nothing',
  drained: 'nothing',
  cancelled: 'nothing',
  lost: 'nothing',
  crashed: 'hold',
};

const endings = (charge: 'list' | 'nothing' | 'hold'): RawBuilder<unknown> =>
  sql.join(
    Object.entries(chargeOf)
      .filter(([, of]) => of === charge)
      .map(([ending]) => sql.lit(ending)),
  );

/** `listCost` where it is sure that 64 bits hold it, else null. */
const listCostInSql = sql`(case when prompt_tokens < ${sql.lit(2 ** 24)} and completion_tokens < ${sql.lit(2 ** 24)}
    and input_price < ${sql.lit(2 ** 37)} and output_price < ${sql.lit(2 ** 37)} and cache_read_price < ${sql.lit(2 ** 37)}
    and cached_tokens >= 0 and cached_tokens <= prompt_tokens and completion_tokens >= 0
    and input_price >= 0 and output_price >= 0 and cache_read_price >= 0
  then ((prompt_tokens - cached_tokens) * input_price + cached_tokens * cache_read_price + completion_tokens * output_price + 999999) / 1000000
  end)`;

/** Null or false for every row that `faultsOf` finds a fault of. */
const isRight = sql<SqlBool>`cost >= 0 and cost <= hold
  and reasoning_tokens >= 0 and reasoning_tokens <= completion_tokens and ended_at >= started_at
  and case
    when ending in (${endings('list')})
      then cost = (case when ${listCostInSql} < hold then ${listCostInSql} else hold end) and uncharged = ${listCostInSql} - cost
    when ending in (${endings('nothing')}) then cost = 0 and uncharged = ${listCostInSql}
    when ending in (${endings('hold')}) then cost = 0 and uncharged = hold and ${listCostInSql} is not null
    else false
  end`;

type Figure = 'started_at' | 'ended_at' | 'hold' | 'input_price' | 'output_price' | 'cache_read_price';
type UsageFigures = Readonly<Record<Figure | Exclude<SumColumn, 'requests'>, bigint>> & {
  readonly ending: string;
};

/** The faults of a single usage row. */
export function* faultsOf(row: UsageFigures): Generator<Omit<Difference, 'accountId'>> {
  const charge = chargeOf[row.ending as Ending];
  if (charge === undefined) yield { what: 'ending', expected: 'one of the table of endings', found: row.ending };
  if (row.cost < 0n) yield { what: 'cost', expected: 'at least 0', found: row.cost };
  if (row.cost > row.hold) yield { what: 'cost', expected: `at most the hold of ${row.hold}`, found: row.cost }; // M2
  if (row.uncharged < 0n) yield { what: 'uncharged', expected: 'at least 0', found: row.uncharged };
  for (const column of ['prompt_tokens', 'cached_tokens', 'completion_tokens', 'reasoning_tokens'] as const) {
    if (row[column] < 0n) yield { what: column, expected: 'at least 0', found: row[column] };
  }
  if (row.cached_tokens > row.prompt_tokens) {
    yield {
      what: 'cached_tokens',
      expected: `at most the ${row.prompt_tokens} of the prompt`,
      found: row.cached_tokens,
    };
  }
  if (row.reasoning_tokens > row.completion_tokens) {
    yield {
      what: 'reasoning_tokens',
      expected: `at most the ${row.completion_tokens} of the completion`,
      found: row.reasoning_tokens,
    };
  }
  if (row.ended_at < row.started_at) {
    yield { what: 'ended_at', expected: `not before the start at ${row.started_at}`, found: row.ended_at };
  }
  // For a crashed request only the hold is known.
  const list = charge === 'hold' ? row.hold : listCost(row);
  const cost = charge === 'list' ? (list < row.hold ? list : row.hold) : 0n;
  if (row.cost !== cost) yield { what: 'cost, from tokens and prices', expected: cost, found: row.cost };
  if (row.uncharged !== list - cost)
    yield { what: 'uncharged, from tokens and prices', expected: list - cost, found: row.uncharged };
}

/** ceil(Σ tokens × price / 10⁶), cached tokens at their own price. Deliberately reimplemented here, because it checks the pricing. */
function listCost(row: UsageFigures): bigint {
  const millionths =
    (row.prompt_tokens - row.cached_tokens) * row.input_price +
    row.cached_tokens * row.cache_read_price +
    row.completion_tokens * row.output_price;
  return (millionths + 999_999n) / 1_000_000n;
}

export function add(sums: Map<string, bigint>, key: string, value: bigint): void {
  sums.set(key, (sums.get(key) ?? 0n) + value);
}
