/** Rows of usage as a faulty program or a person with the file could leave them, judged by the database together and here one by one. */
import assert from 'node:assert/strict';
import { sql, type Insertable, type Kysely } from 'kysely';

import { timeOfUuid, uuidText } from '../../src/platform/ids/uuid.ts';
import type { Database } from '../../src/store/database.ts';
import { sumColumns, type Sums } from '../../src/store/reports/usage-expressions.ts';
import { isInMonthsOf } from '../../src/store/reports/usage-months.ts';
import type { Difference } from '../../src/store/verify/difference.ts';
import { faultsOf, sumRows } from '../../src/store/verify/verify-rows.ts';
import { mulberry32 } from '../support/random.ts';

type Db = Kysely<Database>;
type Charge = Parameters<Parameters<typeof sumRows>[1]['budgets']['add']>[0];
type Row = Insertable<Database['usage']> & {
  readonly request_id: Uint8Array;
  readonly tags: string | null;
} & Readonly<Record<(typeof figures)[number], bigint>>;

const dayMs = 86_400_000n;
const month = Date.UTC(2026, 4, 1);
const figures = [
  ...(['started_at', 'ended_at', 'prompt_tokens', 'cached_tokens', 'completion_tokens', 'reasoning_tokens'] as const),
  ...(['cost', 'uncharged', 'hold', 'input_price', 'output_price', 'cache_read_price'] as const),
];
const endings = ['finished', 'client_left', 'revoked', 'failed', 'lost', 'crashed', 'given', ''];
const labels = ['["a"]', '["a","b"]', '[]', '["a"', '{"a":1}', '[1]', 'null', ''];
/** Around every bound that the database's judgement has, and the largest that it stores. */
const bounds = [0n, 1n, 999_999n, 2n ** 24n, 2n ** 37n, 2n ** 53n, 2n ** 62n];

/** The `usage` of an empty database without its checks; a row with a fault is then accepted. */
export async function withoutChecks(db: Db, createTable: 'as select * from usage' | '(like usage)'): Promise<void> {
  await sql`create table bare ${sql.raw(createTable)}`.execute(db);
  await sql`drop table usage`.execute(db);
  await sql`alter table bare rename to usage`.execute(db);
  await sql`create unique index bare_key on usage (request_id)`.execute(db);
}

/** The sums and the reports of `sumRows` are those of each row by itself. */
export async function rowsAreJudgedAlike(db: Db): Promise<void> {
  const rows = madeRows(1_500);
  for (let at = 0; at < rows.length; at += 20)
    await db
      .insertInto('usage')
      .values(rows.slice(at, at + 20))
      .execute();
  const keptSince = month + 10 * Number(dayMs);
  const expected = judged(rows, keptSince);
  assert.ok(expected.reports.length > 500 && expected.strays > 20 && expected.right > 300);
  for (const rowsAtOnce of [4, 100_000]) {
    const reports: Difference[] = [];
    const charges = new Map<string, bigint>();
    const { cost, count, strays, older } = await sumRows(db, {
      budgets: { add: (charge) => addCharge(charges, charge) },
      keptSince,
      report: (difference) => void reports.push(difference),
      rowsAtOnce,
    });
    assert.deepEqual([...reports.map(textOf)].sort(), expected.reports);
    assert.deepEqual([count, strays], [rows.length, expected.strays]);
    assert.deepEqual(new Map([...cost].sort()), expected.cost);
    assert.deepEqual(new Map([...charges].sort()), expected.charges);
    assert.deepEqual(
      [...older.all.values()].reduce((sum, row) => sum + row.requests, 0n),
      expected.older.requests,
    );
    for (const column of sumColumns)
      assert.equal(
        [...older.all.values()].reduce((sum, row) => sum + row[column], 0n),
        expected.older[column],
      );
  }
}

function judged(rows: readonly Row[], keptSince: number) {
  const cost = new Map<string, bigint>();
  const charges = new Map<string, bigint>();
  const older = Object.fromEntries(sumColumns.map((column) => [column, 0n])) as Record<keyof Sums, bigint>;
  const reports: string[] = [];
  let [strays, right] = [0, 0];
  for (const row of rows) {
    cost.set(row.account_id, (cost.get(row.account_id) ?? 0n) + row.cost);
    addCharge(charges, {
      ...(row as unknown as Charge),
      started_at: row.started_at - (row.started_at % dayMs),
      cost: row.cost,
    });
    const isStray = !isInMonthsOf(Number(row.ended_at), timeOfUuid(row.request_id));
    if (isStray) strays += 1;
    if (row.ended_at < keptSince)
      for (const column of sumColumns) older[column] += column === 'requests' ? 1n : row[column];
    const faults = [...faultsOf(row)];
    if (!isList(row.tags)) faults.push({ what: 'tags', expected: 'a list of texts', found: row.tags! });
    if (faults.length === 0 && !isStray) right += 1;
    for (const { what, ...fault } of faults)
      reports.push(textOf({ ...fault, accountId: row.account_id, what: `usage ${uuidText(row.request_id)}: ${what}` }));
  }
  return {
    cost: new Map([...cost].sort()),
    charges: new Map([...charges].sort()),
    older,
    reports: reports.sort(),
    strays,
    right,
  };
}

const textOf = ({ accountId, what, expected, found }: Difference): string =>
  [accountId, what, expected, found].join(' | ');

function addCharge(charges: Map<string, bigint>, charge: Charge): void {
  const { account_id, key_id, model_id, key_budget, account_budget, member_budget, started_at } = charge;
  const name = [account_id, key_id, model_id, key_budget, account_budget, member_budget, started_at].join(' ');
  charges.set(name, (charges.get(name) ?? 0n) + charge.cost);
}

function isList(text: string | null): boolean {
  if (text === null) return true;
  try {
    const list: unknown = JSON.parse(text);
    return Array.isArray(list) && list.every((one) => typeof one === 'string');
  } catch {
    return false;
  }
}

/** Right rows, of which most then get one or two other values. Sums of all of them stay below 2^63. */
function madeRows(count: number): readonly Row[] {
  const random = mulberry32(45);
  const below = (end: number): number => Math.floor(random() * end);
  const one = <Value>(values: readonly Value[]): Value => values[below(values.length)]!;
  return Array.from({ length: count }, (_, index) => {
    // Three months, their edges, and keys of clocks that were far off.
    const at = one([
      month + below(80 * Number(dayMs)),
      month - 1,
      month,
      Date.UTC(2026, 5, 1) - below(3),
      5,
      2 ** 48 - 7,
    ]);
    const ended = one([at + below(60_000), at, at + 7 * Number(dayMs), Date.UTC(2026, 4, 1) - 3_600_000 - below(2)]);
    const [prompt, completion, price] = [BigInt(below(9_000)), BigInt(below(900)), BigInt(below(9) * 1_000_000)];
    const list = (prompt * price + completion * 4n * price + 999_999n) / 1_000_000n;
    const ending = one(endings.slice(0, 6));
    const hold = one([list, list + 5n, list / 2n]);
    const cost = ['finished', 'client_left', 'revoked'].includes(ending) ? (list < hold ? list : hold) : 0n;
    const row = {
      request_id: Uint8Array.from(
        Buffer.from(`${at.toString(16).padStart(12, '0')}7${index.toString(16).padStart(19, '0')}`, 'hex'),
      ),
      ...{ public_id: 'req_0', api: 'chat', streamed: 1n, counted: 0n, total_ms: 9n },
      account_id: `acct_${below(5)}`,
      key_id: `key_${below(2)}`,
      model_id: `model-${below(2)}`,
      key_budget: one([null, 'day', '@month']),
      account_budget: one([null, 'month']),
      member_budget: null,
      tags: below(6) === 0 ? one(labels) : null,
      ending,
      ...{ started_at: BigInt(Math.min(at, ended)), ended_at: BigInt(ended) },
      ...{ prompt_tokens: prompt, cached_tokens: 0n, completion_tokens: completion, reasoning_tokens: 0n },
      ...{ cost, hold, uncharged: ending === 'crashed' ? hold : list - cost },
      ...{ input_price: price, output_price: 4n * price, cache_read_price: price / 2n },
    } as unknown as Row;
    const changes = Object.fromEntries(
      Array.from({ length: below(3) }, () => {
        const column = one([...figures, 'ending'] as const);
        if (column === 'ending') return [column, one(endings)];
        const near = row[column] + one([-1n, 1n]);
        // No two of the largest in a sum.
        const isSummed = sumColumns.includes(column as 'cost') || column.endsWith('_at');
        return [column, one([near, near, isSummed ? -1n : one(bounds) - one([0n, 1n])])];
      }),
    );
    const changed = { ...row, ...changes } as Row;
    if (index % 300 !== 0) return changed;
    return { ...changed, prompt_tokens: one(bounds.slice(0, 6)), completion_tokens: 2n ** 24n, input_price: 2n ** 37n };
  });
}
