/**
 * Databases as earlier versions of the program have left them, each after some requests, payments, keys and budgets: 100 is the
 * baseline, without any step. Of SQLite the file, of PostgreSQL what pg_dump printed.
 */
import assert from 'node:assert/strict';
import { createHmac } from 'node:crypto';
import { readFileSync, writeFileSync } from 'node:fs';
import { gunzipSync } from 'node:zlib';
import { inRepository } from '../support/repository.ts';
import type { TestService } from '../support/service.ts';

export const earlierDatabases = ['100'] as const;
export type EarlierDatabase = (typeof earlierDatabases)[number];

const read = (name: string): Buffer => gunzipSync(readFileSync(inRepository(`tests/fixtures/databases/${name}.gz`)));

export const writeEarlierFile = (name: EarlierDatabase, file: string): void => writeFileSync(file, read(`${name}.db`));

export const earlierDump = (name: EarlierDatabase): string => read(`${name}.sql`).toString();

/** Keys of the first account in a database that was `usedWith` a secret; the second has a budget. */
export const earlierKeys = {
  'first key': 'tkh_EarlierVersionsFirstKey0000000004DRmkP',
  budgeted: 'tkh_EarlierVersionsBudgetedKey0000003BdE04',
} as const;

/**
 * What brings an earlier database into the state in which kill -9 leaves a service: three requests that run, of the service itself
 * and of another process, which on PostgreSQL has leased credit and budget. Beside them keys that were made with this secret, and an
 * invoice. In the words of those versions.
 */
export function usedWith(secret: string, dialect: 'sqlite' | 'postgres'): string {
  const [schema, bytes] =
    dialect === 'sqlite' ? ['main', (hex: string) => `x'${hex}'`] : ['public', (hex: string) => `'\\x${hex}'::bytea`];
  const process = bytes('00'.repeat(15) + '01');
  const first = `(select id from ${schema}.account where name = 'first account')`;
  const pepper = createHmac('sha256', secret).update('tokenhouse api keys').digest();
  const pepperId = createHmac('sha256', pepper).update('tokenhouse pepper id').digest('hex').slice(0, 16);
  const hash = (key: string): string => bytes(createHmac('sha256', pepper).update(key).digest('hex'));
  const running = [dialect === 'sqlite' ? 'null' : process, process, process].map((replica, index) => {
    const id = bytes(`01a20a860000700080000000000000${index}0`);
    return `insert into ${schema}.open_request (request_id, account_id, key_id, model_id, hold, started_at, replica_id)
      select ${id}, account_id, id, 'tiny', 424500, 1795472812500, ${replica} from ${schema}.api_key where name = 'first key'`;
  });
  const leased = [
    `insert into ${schema}.credit_lease (replica_id, account_id, remaining) values (${process}, ${first}, 1000003)`,
    `update ${schema}.account set available = available - 1000003 where id = ${first}`,
    `insert into ${schema}.budget_lease (replica_id, balance_id, remaining) select ${process}, id, 500009 from ${schema}.budget_balance`,
    `update ${schema}.budget_balance set available = available - 500009`,
  ];
  return [
    `update ${schema}.api_key set pepper_id = '${pepperId}'`,
    ...Object.entries(earlierKeys).map(
      ([name, key]) => `update ${schema}.api_key set hash = ${hash(key)} where name = '${name}'`,
    ),
    ...running,
    `insert into ${schema}.invoice (id, account_id, kind, number, year, sequence, month, corrects, period_start, period_end, issued_at, total, closing, data)
       select 'inv_1', id, 'statement', 'TH-2026-000001', 2026, 1, '2026-09', '', 1788220800000, 1790812800000, 1790820000000, 3203, 1500000007,
         '{"totalMicrocents":"3203","account":{"id":"' || id || '"},"statement":${statement}}' from ${schema}.account where name = 'first account'`,
    `insert into ${schema}.replica (id, heartbeat_at) values (${process}, 1795472812600)`,
    ...(dialect === 'sqlite' ? [] : leased),
  ]
    .map((statement) => `${statement};`)
    .join('\n');
}

/** What the statement prints of sums. */
const statement = JSON.stringify({
  openingMicrocents: '1500003210',
  earlierMicrocents: '0',
  lines: [{ microcents: '3203' }],
  usageMicrocents: '3203',
  refundsMicrocents: '0',
  movements: [],
  closingMicrocents: '1500000007',
});

/** So many rows that nothing counts, for a migration that takes long enough to be killed in the middle. */
export const idleLeases = (schema: 'main' | 'public', zero: string): string =>
  `insert into ${schema}.credit_lease (replica_id, account_id, remaining)
     with recursive number (n) as (select 1 union all select n + 1 from number where n < 200000)
     select ${zero}, 'acct_' || n, 0 from number;`;

/** What nobody changes once it is written, or only a person. */
export const keptTables = [
  ...['usage', 'transfer', 'audit_log', 'budget', 'payment', 'payment_event', 'payment_return', 'topup', 'promotion'],
  ...['invoice', 'api_key'],
] as const;

export type Rows = readonly Readonly<Record<string, unknown>>[];

/** Each row is still there with all the values that it had. */
export function assertKept(table: string, before: Rows, now: Rows): void {
  const text = (value: unknown): unknown => (value instanceof Uint8Array ? Buffer.from(value).toString('hex') : value);
  const columns = Object.keys(before[0] ?? {});
  const line = (row: Rows[number]): string =>
    columns.map((column) => `${column}=${String(text(row[column]))}`).join(' ');
  const found = new Set(now.map(line));
  assert.deepEqual(
    before.map(line).filter((row) => !found.has(row)),
    [],
    table,
  );
}

/**
 * Several requests at once, with both keys, each time as long as it goes on; returns what they cost, by the tokens that the clients were
 * told.
 */
export async function costOfLoad(
  chat: (key: string) => Promise<Response>,
  goesOn: (request: number) => boolean,
): Promise<bigint> {
  const costs = Array.from({ length: 6 }, async (_, index) => {
    let cost = 0n;
    for (let request = 0; goesOn(request); request++) {
      const answer = await chat(index % 2 === 0 ? earlierKeys['first key'] : earlierKeys.budgeted);
      const text = await answer.text();
      assert.equal(answer.status, 200, text);
      const { usage } = JSON.parse(text) as { usage: { prompt_tokens: number; completion_tokens: number } };
      cost += BigInt(5 * usage.prompt_tokens + 20 * usage.completion_tokens);
    }
    return cost;
  });
  return (await Promise.all(costs)).reduce((sum, cost) => sum + cost, 0n);
}

/** How many steps each start of the service has run. */
export const migrationsOf = ({ log }: Pick<TestService, 'log'>): readonly unknown[] =>
  log.filter(({ migrations }) => migrations !== undefined).map(({ migrations }) => migrations);
