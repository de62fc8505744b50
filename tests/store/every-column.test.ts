/** Whoever has the file can change it: a change of one value is found, in every column of every table that speaks of money but those named here. */
import assert from 'node:assert/strict';
import { join } from 'node:path';
import { test } from 'node:test';
import { sql, type Kysely } from 'kysely';
import type { Database } from '../../src/store/database.ts';
import type { Kind } from '../../src/store/schema/column.ts';
import { tables, type TableName } from '../../src/store/schema/tables.ts';
import { openConnection } from '../../src/store/sqlite/connection.ts';
import { kyselyOn } from '../../src/store/sqlite/dialect.ts';
import { verifyLedger } from '../../src/store/verify/verify.ts';
import { uuidText } from '../../src/platform/ids/uuid.ts';
import { MemoryBalances, openStore, temporaryFolder } from './fixture.ts';
import { makeMoneyLedger, moneyNow } from './money-ledger.ts';

/** Tables without amounts that the signed days consist of. */
const ofHeads = ['signing_key', 'day_head', 'usage_leaves', 'usage_latency_day', 'closed_until', 'usage_retention'];

const setting = 'a setting: what it was is in the audit log';
const running = 'of what runs: nothing is charged by it';
const described = 'says who, what for and where: no sum is made of it';
const timed = 'a time: no sum is made of it';

/** Of each table, or of its columns, why a change is not found. */
const outside: Readonly<Record<string, string | Readonly<Record<string, string>>>> = {
  account_price: setting,
  auto_topup: setting,
  alert: setting,
  open_request: running,
  account: {
    name: described,
    status: setting,
    credit_limit: setting,
    version: setting,
    created_at: timed,
    models: setting,
    plan: setting,
    limits: setting,
    time_zone: setting,
    legal_name: described,
    address_lines: described,
    country: setting,
    tax_id: described,
    invoice_email: described,
    deleted_at: timed,
    tax_status: setting,
  },
  transfer: { id: described, idempotency_key: described, reference: described, by: described, at: timed },
  usage_retention: { kept_since: timed, removed_at: timed },
  pruned_usage: { id: described, day: timed },
  credit_lease: { replica_id: running },
  budget: { subject: setting, per: setting, set_at: timed, owner: setting, model_id: setting },
  budget_lease: { replica_id: running },
  topup: {
    origin: described,
    checkout_id: described,
    checkout_url: described,
    idempotency_key: described,
    success_url: described,
    cancel_url: described,
    created_at: timed,
    paid_at: timed,
    by: described,
  },
  payment: { at: timed },
  payment_return: { at: timed },
  promotion: { granted_at: timed, expires_at: timed, closed_at: timed },
  // What it says in words is in `data`, of which only the sums and numbers are compared.
  invoice: { id: described, month: timed, period_start: timed, period_end: timed, issued_at: timed },
  receipt: { id: described, issued_at: timed },
  closed_until: { account_id: timed, at: timed },
  signing_key: { number: 'says which key is the newest: no signature depends on it', created_at: timed },
};

type Value = bigint | string | Uint8Array | null;
type Row = Readonly<Record<string, Value>>;

/** Another value, by as little as there is: one, or one bit of the last byte. */
function changed(value: Value, kind: Kind): Value {
  if (value === null) return kind === 'text' || kind === 'json' ? 'x' : kind === 'bytes' ? Uint8Array.of(1) : 1n;
  if (typeof value === 'bigint') return kind === 'flag' ? 1n - value : value + 1n;
  if (value.length === 0) return kind === 'bytes' ? Uint8Array.of(1) : 'x';
  const bytes = Buffer.from(value as string);
  bytes[bytes.length - 1]! ^= 1;
  return typeof value === 'string' ? bytes.toString() : Uint8Array.from(bytes);
}

const keyOf = (name: TableName): readonly string[] =>
  tables[name].facts.key ??
  Object.entries(tables[name].columns).flatMap(([column, { facts }]) => (facts.isPrimary === true ? [column] : []));

/** Which rows are meant, where not all say the same: the requests that are signed, the customer, and a return that stands. */
const wheres: Readonly<Partial<Record<TableName, string>>> = {
  usage: 'where key_budget is null',
  account: 'where kind = 0',
  payment_return: `where id = 'return_refunded'`,
};

/** The newest row: before the retention, sums have no rows that tell their place in time. */
async function lastRow(db: Kysely<Database>, name: TableName): Promise<Row> {
  const key = 'sequence' in tables[name].columns ? ['sequence'] : keyOf(name);
  const byTime = key.toSorted((one) => (['hour', 'day'].includes(one) ? -1 : 0));
  const order = sql.join(byTime.map((column) => sql`${sql.ref(column)} desc`));
  const where = sql.raw(wheres[name] ?? '');
  const { rows } = await sql<Row>`select * from ${sql.table(name)} ${where} order by ${order} limit 1`.execute(db);
  assert.equal(rows.length, 1, `the ledger has no row of ${name}`);
  return rows[0]!;
}

async function setValue(db: Kysely<Database>, name: TableName, row: Row, column: string, value: Value): Promise<void> {
  const where = keyOf(name).map((part) => sql`${sql.ref(part)} = ${row[part]}`);
  const { numAffectedRows } =
    await sql`update ${sql.table(name)} set ${sql.ref(column)} = ${value} where ${sql.join(where, sql` and `)}`.execute(
      db,
    );
  assert.equal(numAffectedRows, 1n, `${name}.${column}`);
}

test('one value that was changed in the file is found, and of a request it is named', async (t) => {
  const file = join(temporaryFolder(t), 'right.db');
  const store = await openStore(t, file, { free: new MemoryBalances(), now: () => moneyNow });
  const connection = openConnection(file);
  const db = kyselyOn(connection);
  t.after(() => db.destroy());
  await makeMoneyLedger(store, db);
  await store.close();
  const { rows: triggers } = await sql<{ name: string }>`select name from sqlite_master where type = 'trigger'`.execute(
    db,
  );
  for (const { name } of triggers) await sql`drop trigger ${sql.ref(name)}`.execute(db);
  connection.exec('pragma ignore_check_constraints = on; pragma foreign_keys = off; pragma synchronous = off');
  const found = async (): Promise<readonly string[]> =>
    (await verifyLedger(db, { owned: true })).differences.map(({ what }) => what);
  assert.deepEqual(await found(), []);
  const missed: Record<string, string[]> = {};
  for (const [name, { columns }] of Object.entries(tables) as [TableName, (typeof tables)[TableName]][]) {
    const kinds = Object.values(columns).map(({ kind }) => kind);
    if (!kinds.includes('money') && !kinds.includes('price') && !ofHeads.includes(name)) continue;
    if (typeof outside[name] === 'string') continue;
    const row = await lastRow(db, name);
    for (const [column, { kind }] of Object.entries(columns)) {
      const value = changed(row[column]!, kind);
      await setValue(db, name, row, column, value);
      const what = await found();
      await setValue(db, name, { ...row, [column]: value }, column, row[column]!);
      if (what.length === 0) (missed[name] ??= []).push(column);
      else if (name === 'usage' && column !== 'request_id')
        assert.ok(
          what.some((one) => one.startsWith(`usage ${uuidText(row['request_id'] as Uint8Array)}`)),
          `${column}: ${what.join('; ')}`,
        );
    }
  }
  assert.deepEqual(await found(), [], 'all of it is as it was');
  const named = Object.entries(outside).filter(([, of]) => typeof of !== 'string');
  assert.deepEqual(missed, Object.fromEntries(named.map(([name, of]) => [name, Object.keys(of)])));
});
