import assert from 'node:assert/strict';
import { copyFileSync } from 'node:fs';
import { join } from 'node:path';
import { test, type TestContext } from 'node:test';
import { issueKey } from '../../src/accounts/key.ts';
import { openSecret } from '../../src/accounts/secret.ts';
import { balanceAt } from '../../src/store/budget.ts';
import { closeConnection, openConnection } from '../../src/store/sqlite/connection.ts';
import { openReadOnly } from '../../src/store/sqlite/dialect.ts';
import type { Difference } from '../../src/store/verify/difference.ts';
import { uuidMaker } from '../../src/platform/ids/uuid.ts';
import { verifyLedger } from '../../src/store/verify/verify.ts';
import {
  chargeback,
  customer,
  differencesOf,
  openRequest,
  MemoryBalances,
  openStore,
  temporaryFolder,
  usage,
  uuid,
} from './fixture.ts';

const secret = openSecret({ fromEnvironment: 's'.repeat(32), dataFolder: '/nowhere', warn: assert.fail });
const hourMs = 3_600_000;
const now = Math.floor(Date.now() / hourMs) * hourMs + 5;
/** Above 2^53, and odd: a number in between would lose the last microcent. */
const balance = 10n ** 17n + 1n;

/** A ledger with a bit of everything, closed, and right. */
async function rightLedger(t: TestContext): Promise<string> {
  const file = join(temporaryFolder(t), 'right.db');
  const store = await openStore(t, file);
  await customer(store, 'acct_a', balance);
  await customer(store, 'acct_b', 100n);
  await store.ledger.transfer(chargeback('acct_b', 30n));
  for (const hoursAgo of [50, 5, 4, 3, 0]) {
    const at = now - hoursAgo * hourMs;
    await store.ledger.settle(usage('acct_a', 7n, { requestId: uuid(), startedAt: at, endedAt: at }));
  }
  await store.ledger.settle(
    usage('acct_b', 0n, { ending: 'failed', promptTokens: 9, unchargedMicrocents: 9n, holdMicrocents: 9n }),
  );
  await store.repositories.recomputeUsageHours({ now });
  await store.close();
  assert.deepEqual(await differencesOf(file, false), []);
  return file;
}

/** What is reported after somebody with the file in hand has run these statements. */
async function planted(right: string, statements: string): Promise<readonly Difference[]> {
  const file = `${right}.${Math.random()}`;
  copyFileSync(right, file);
  const connection = openConnection(file);
  for (const trigger of ['usage_no_update', 'usage_no_delete', 'transfer_no_update', 'transfer_no_delete']) {
    connection.exec(`drop trigger ${trigger}`);
  }
  connection.exec('pragma ignore_check_constraints = on; pragma foreign_keys = off');
  connection.exec(statements);
  closeConnection(connection);
  return differencesOf(file, false);
}

test('one microcent is found, wherever it is planted', async (t) => {
  const right = await rightLedger(t);
  const one = '(select request_id from usage where cost = 7 order by ended_at limit 1)';
  /** The request is missing at its ending, and is at one that has none. */
  const ofTwoEndings = [
    ...['requests', 'prompt_tokens', 'cost', 'requests', 'prompt_tokens', 'cost'].map(
      (column) => `tier_hour .*: ${column}`,
    ),
    ...['f1', 't2', 'f1', 't2'].map((range) => `latency_day .*: ${range}`),
  ].map((what): [string, RegExp] => ['acct_a', new RegExp(`^usage_${what}$`)]);
  const cases: readonly [statements: string, expected: readonly [accountId: string | null, what: RegExp][]][] = [
    [
      `update account set available = available - 1 where id = 'acct_a'`,
      [
        ['acct_a', /^balance$/],
        [null, /^all balances/],
      ],
    ],
    [
      `update account set available = available + 1 where id in ('acct_a', 'house_promo')`,
      [
        ['acct_a', /^balance$/],
        ['house_promo', /^balance$/],
        [null, /^all balances/],
      ],
    ],
    [
      `update account set available = available + 1 where id = 'acct_a'; update account set available = available - 1 where id = 'acct_b'`,
      [
        ['acct_a', /^balance$/],
        ['acct_b', /^balance$/],
      ],
    ],
    [
      `update transfer set amount = amount + 1 where amount = ${balance}`,
      [
        ['acct_a', /^balance$/],
        ['house_promo', /^balance$/],
      ],
    ],
    [
      `delete from transfer where kind = 'chargeback'`,
      [
        ['acct_b', /^balance$/],
        ['house_promo', /^balance$/],
      ],
    ],
    [
      `update usage set cost = 8 where request_id = ${one}`,
      [
        ['acct_a', /^usage .*: cost$/], // above the hold
        ['acct_a', /^usage .*: cost, from tokens and prices/],
        ['acct_a', /^balance$/],
        [null, /^all balances/],
        ['acct_a', /^usage_hour .*: cost$/],
        ['acct_a', /^usage_tier_hour .*: cost$/],
      ],
    ],
    [
      `update usage set prompt_tokens = 8, hold = 8 where request_id = ${one}`,
      [
        ['acct_a', /^usage .*: cost, from tokens and prices/],
        ['acct_a', /^usage_hour .*: prompt_tokens$/],
        ['acct_a', /^usage_tier_hour .*: prompt_tokens$/],
      ],
    ],
    [
      `update usage set input_price = input_price + 1, hold = 8 where request_id = ${one}`,
      [['acct_a', /^usage .*: cost, from/]],
    ],
    [
      `update usage set ending = 'failed' where request_id = ${one}`,
      [['acct_a', /^usage .*: cost, from/], ['acct_a', /^usage .*: uncharged, from/], ...ofTwoEndings],
    ],
    [
      `update usage set ending = 'vanished' where request_id = ${one}`,
      [
        ['acct_a', /^usage .*: ending/],
        ['acct_a', /^usage .*: cost, from/],
        ['acct_a', /^usage .*: uncharged, from/],
        ...ofTwoEndings,
      ],
    ],
    [`update usage set uncharged = 8 where account_id = 'acct_b'`, [['acct_b', /^usage .*: uncharged, from/]]],
    [
      `update usage set cached_tokens = 8 where request_id = ${one}`,
      [
        ['acct_a', /cached_tokens/],
        ['acct_a', /^usage_hour .*: cached_tokens$/],
        ['acct_a', /^usage_tier_hour .*: cached_tokens$/],
      ],
    ],
    [
      `update usage set reasoning_tokens = 1 where request_id = ${one}`,
      [
        ['acct_a', /reasoning_tokens/],
        ['acct_a', /^usage_hour .*: reasoning_tokens$/],
        ['acct_a', /^usage_tier_hour .*: reasoning_tokens$/],
      ],
    ],
    [`update usage set ended_at = started_at - 1 where account_id = 'acct_b'`, [['acct_b', /ended_at/]]],
    [
      `update usage_hour set cost = cost + 1 where hour = ${now - 5 - 4 * hourMs}`,
      [['acct_a', /^usage_hour .*: cost$/]],
    ],
    [
      `delete from usage_hour where hour = ${now - 5 - 50 * hourMs}`,
      [
        ['acct_a', /: requests$/],
        ['acct_a', /: prompt_tokens$/],
        ['acct_a', /: cost$/],
      ],
    ],
    [
      `insert into open_request (request_id, account_id, key_id, model_id, hold, started_at) values (zeroblob(16), 'acct_a', 'k', 'm', 1, 1)`,
      [['acct_a', /^open request/]],
    ],
    [
      `update account set available = available - 80 where id = 'acct_b'; update account set available = available + 80 where id = 'house_promo';
       insert into transfer select zeroblob(16), debit_account, credit_account, 80, kind, 'planted', null, "by", at from transfer where kind = 'chargeback'`,
      [['acct_b', /^balance$/]], // the sums are right, but it is below zero
    ],
    [
      `delete from account where id = 'acct_b'`,
      [
        ['acct_b', /^account$/],
        [null, /^all balances/],
      ],
    ],
  ];
  for (const [statements, expected] of cases) {
    const found = await planted(right, statements);
    assert.deepEqual(
      found.map((one) => one.accountId),
      expected.map(([accountId]) => accountId),
      `${statements}\n${JSON.stringify(found, printBigint)}`,
    );
    found.forEach((one, index) => assert.match(one.what, expected[index]![1], statements));
    for (const one of found) assert.notEqual(one.expected, one.found);
  }
});

test('one microcent is found in a budget, and a charge to none', async (t) => {
  const file = join(temporaryFolder(t), 'right.db');
  const free = new MemoryBalances();
  const store = await openStore(t, file, { free });
  await customer(store, 'acct_a', 1000n);
  const { row: key } = issueKey({ accountId: 'acct_a', name: 'x', secret, now: 0 });
  await store.repositories.createKey({ key, budget: { amountMicrocents: 100n, per: 'total' }, changeId: uuid() });
  await store.ledger.settle(usage('acct_a', 7n, { keyId: key.id, accountBudget: null }));
  await store.ledger.setBudget({
    kind: 'account_budget',
    subject: 'acct_a',
    budget: { amountMicrocents: 50n, per: 'month' },
    spentBeforeMicrocents: 7n,
    at: Date.now(),
    changeId: uuid(),
  });
  const [ofKey, ofAccount] = [`${key.id}:total`, balanceAt('acct_a', 'month', Date.now()).id];
  for (const id of [ofKey, ofAccount]) free.credit(id, await store.ledger.leases.lease(id, 1n));
  assert.deepEqual([free.freeMicrocents(ofKey), free.freeMicrocents(ofAccount)], [100n, 43n]);
  const charged = { keyId: key.id, keyBudget: 'total', accountBudget: 'month' } as const;
  await store.ledger.settle(usage('acct_a', 5n, charged));
  await store.close();
  assert.deepEqual(await differencesOf(file, false), []);
  for (const [statements, ...expected] of [
    [`update budget_balance set available = available - 1 where id = '${ofKey}'`, `budget ${ofKey}: left`],
    [
      `update budget_balance set amount = amount + 1 where id = '${ofAccount}'`,
      `budget ${ofAccount}: amount`,
      `budget ${ofAccount}: left`,
    ],
    [
      `update budget_balance set spent_before = 8, available = available - 1 where id = '${ofAccount}'`,
      `budget ${ofAccount}: spent before it was set`,
    ],
    [`update usage set key_budget = null where cost = 5`, `budget ${ofKey}: left`],
    [`update usage set key_budget = 'total' where cost = 7`, `budget ${ofKey}: left`],
    [
      `update usage set account_budget = 'day' where cost = 5`,
      `budget ${ofAccount}: left`,
      `budget ${balanceAt('acct_a', 'day', Date.now()).id}`,
    ],
    [
      `insert into budget_lease (replica_id, balance_id, remaining) values (zeroblob(16), '${ofKey}', 1)`,
      `budget ${ofKey}: left`,
    ],
    [`delete from budget_balance where id = '${ofKey}'`, `budget ${ofKey}`],
  ] as const) {
    const found = await planted(file, statements);
    assert.deepEqual(found.map(({ what }) => what).toSorted(), expected.toSorted(), statements);
  }
});

test('differences are exact above 2^53', async (t) => {
  const right = await rightLedger(t);
  const [first] = await planted(right, `update account set available = available - 1 where id = 'acct_a'`);
  assert.equal(first!.expected, balance - 35n);
  assert.equal(first!.found, balance - 36n);
});

test('beside a running service, open requests are no fault', async (t) => {
  const file = join(temporaryFolder(t), 'x.db');
  const store = await openStore(t, file);
  await customer(store, 'acct_a', 10n);
  store.ledger.open(openRequest('acct_a', 5n));
  await store.ledger.settle(usage('acct_a', 1n));
  const db = openReadOnly(file);
  t.after(() => db.destroy());
  const { differences, accounts, transfers, usageRows } = await verifyLedger(db, { owned: true });
  assert.deepEqual(
    { differences, accounts, transfers, usageRows },
    { differences: [], accounts: 5, transfers: 1, usageRows: 1 },
  );
});

function printBigint(_key: string, value: unknown): unknown {
  return typeof value === 'bigint' ? value.toString() : value;
}

test('one wrong row of a roll-up is found and named', async (t) => {
  const file = join(temporaryFolder(t), 'right.db');
  const store = await openStore(t, file);
  await customer(store, 'acct_a', balance);
  for (const hoursAgo of [100, 75, 3, 0]) {
    const at = now - hoursAgo * hourMs;
    const tags = '["red","blue"]';
    await store.ledger.settle(usage('acct_a', 7n, { requestId: uuid(), startedAt: at, endedAt: at, tags }));
  }
  await store.repositories.recomputeUsageHours({ now });
  while ((await store.repositories.recomputeUsageDays({})).isMore);
  await store.close();
  assert.deepEqual(await differencesOf(file, false), []);
  const cases: readonly [statement: string, what: RegExp][] = [
    [`update usage_hour set cost_q1 = 8 where hour = ${now - 5 - 100 * hourMs}`, /^usage_hour .*acct_a.*: cost_q1$/],
    [
      `update usage_tag_hour set requests = 2 where tag = 'red' and hour = ${now - 5 - 75 * hourMs}`,
      /^usage_tag_hour .* red: requests$/,
    ],
    [
      `update usage_day set cost = cost + 1 where day = (select min(day) from usage_day)`,
      /^usage_day .*acct_a.*: cost$/,
    ],
    [
      `update usage_tag_day set cost = cost - 1 where tag = 'blue' and day = (select min(day) from usage_day)`,
      /^usage_tag_day .* blue: cost$/,
    ],
    [
      `update usage_tier_hour set cost = cost + 1 where hour = ${now - 5 - 75 * hourMs}`,
      /^usage_tier_hour .*acct_a.* finished: cost$/,
    ],
    [
      `update usage_latency_day set counts = replace(counts, ':1}', ':2}') where day = (select min(day) from usage_latency_day)`,
      /^usage_latency_day .*acct_a.* finished: t\d+$/,
    ],
    [
      `update usage_day set uncharged = 1 where day = (select max(day) from usage_day)`,
      /^usage_day .*acct_a.*: uncharged$/,
    ],
  ];
  for (const [statement, what] of cases) {
    const [difference, ...others] = await planted(file, statement);
    assert.match(difference?.what ?? 'nothing', what, statement);
    assert.equal(difference?.accountId, 'acct_a');
    assert.deepEqual(others, [], statement);
  }
  const gone = await planted(
    file,
    `delete from usage_tag_day where tag = 'red' and day = (select min(day) from usage_day)`,
  );
  assert.ok(gone.length > 0 && gone.every(({ what }) => /^usage_tag_day .* red: /.test(what)));
});

test('days of many accounts are compared in the zone of each, also where clocks change and days end within an hour', async (t) => {
  const file = join(temporaryFolder(t), 'right.db');
  const store = await openStore(t, file);
  const zones = ['UTC', 'Asia/Kolkata', 'Asia/Kathmandu', 'Australia/Lord_Howe', 'America/New_York'];
  const [from, to] = [Date.UTC(2026, 9, 2), Date.UTC(2026, 10, 4)];
  let clock = from;
  const idAtClock = uuidMaker(() => clock);
  for (const zone of zones) await customer(store, accountOf(zone), balance);
  // More than are read at once, without a request.
  for (let number = 0; number < 600; number++) await customer(store, `acct_idle${number}`, 1n);
  for (const step = 13 * 900_000; clock < to; clock += step)
    for (const zone of zones)
      await store.ledger.settle(
        usage(accountOf(zone), 7n, { requestId: idAtClock(), startedAt: clock, endedAt: clock, tags: '["red"]' }),
      );
  await store.close();
  const connection = openConnection(file);
  for (const zone of zones) connection.exec(`update account set time_zone = '${zone}' where id = '${accountOf(zone)}'`);
  closeConnection(connection);
  const again = await openStore(t, file);
  await again.repositories.recomputeUsageHours({ now: to });
  while ((await again.repositories.recomputeUsageDays({})).isMore);
  await again.close();
  assert.deepEqual(await differencesOf(file, false), []);
  for (const table of ['usage_day', 'usage_tag_day']) {
    const ofDay = (order: string): string =>
      `where (account_id, day) in (select account_id, ${order}(day) from ${table} group by account_id)`;
    for (const statement of [
      `update ${table} set cost = cost + 1 ${ofDay('min')}`,
      `update ${table} set completion_tokens = completion_tokens + 1 ${ofDay('max')}`,
      `update ${table} set day = day + 900000 ${ofDay('min')}`,
      `delete from ${table} ${ofDay('min')}`,
    ]) {
      const differences = await planted(file, statement);
      for (const { what } of differences) assert.match(what, new RegExp(`^${table} `), statement);
      const named = new Set(differences.map(({ accountId }) => accountId));
      assert.deepEqual([...named].sort(), zones.map(accountOf).sort(), statement);
    }
  }
});

test('requests that end before the first one began, on a clock that was set back, are in every sum', async (t) => {
  const file = join(temporaryFolder(t), 'right.db');
  const store = await openStore(t, file);
  await customer(store, 'acct_a', balance);
  // Noon of a day that is over, whatever time it is.
  const hour = Math.floor(now / (24 * hourMs)) * 24 * hourMs - 60 * hourMs;
  for (const [startedAt, endedAt] of [
    [hour + 3_000, hour + 4_000],
    [hour - 5_000, hour - 4_000],
    [hour - 9 * hourMs, hour - 9 * hourMs + 1_000],
    // Another day, so that the days before it are summed.
    [hour + 17 * hourMs, hour + 17 * hourMs + 1],
  ] as const)
    await store.ledger.settle(usage('acct_a', 7n, { requestId: uuid(), startedAt, endedAt, tags: '["red"]' }));
  await store.repositories.recomputeUsageHours({ now });
  while ((await store.repositories.recomputeUsageDays({})).isMore);
  await store.close();
  assert.deepEqual(await differencesOf(file, false), []);
  const connection = openConnection(file);
  for (const [table, sum] of Object.entries({
    usage_hour: 28,
    usage_tag_hour: 28,
    usage_tier_hour: 28,
    usage_day: 21,
    usage_tag_day: 21,
  })) {
    const [{ cost }] = connection.prepare(`select sum(cost) as cost from ${table}`).all() as [{ cost: unknown }];
    assert.equal(String(cost), String(sum), table);
  }
  closeConnection(connection);
});

const accountOf = (zone: string): string => `acct_${zone.replaceAll(/\W/g, '')}`;
