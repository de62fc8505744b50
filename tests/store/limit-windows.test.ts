/** Counts of limits on SQLite (money.md, "Limits across replicas"); on PostgreSQL in `tests/suites/postgres/limits.test.ts`. */
import assert from 'node:assert/strict';
import { join } from 'node:path';
import { test } from 'node:test';

import { Windows } from '../../src/billing/rate-limits/windows.ts';
import type { WindowCount } from '../../src/store/repositories/limit-windows.ts';
import { openReadOnly } from '../../src/store/sqlite/dialect.ts';
import { customer, openStore, temporaryFolder, uuid } from './fixture.ts';

const dayMs = 86_400_000;
const count = (subject: string, startsAt: number, used: number): WindowCount => ({
  subject,
  kind: 'quota',
  lengthMs: dayMs,
  startsAt,
  used,
});

test('a later window takes the place of the one before; what comes late for that is dropped', async (t) => {
  const { repositories } = await openStore(t, join(temporaryFolder(t), 'x.db'));
  const add = async (startsAt: number, used: number): Promise<readonly number[]> => {
    const [row] = await repositories.addLimitWindows({ changes: [count('acct_a', startsAt, used)] });
    return [row!.startsAt / dayMs, row!.used];
  };
  assert.deepEqual(await add(5 * dayMs, 3), [5, 3]);
  assert.deepEqual(await add(5 * dayMs, 4), [5, 7]);
  assert.deepEqual(await add(6 * dayMs, 1), [6, 1]);
  assert.deepEqual(await add(5 * dayMs, 7), [6, 1]);
  assert.deepEqual(await add(6 * dayMs, -1), [6, 0]);
  // Of a clock that was far ahead.
  assert.deepEqual(await add(400 * dayMs, 9), [400, 9]);
  assert.deepEqual(await add(6 * dayMs, 2), [6, 2]);
  assert.deepEqual(await repositories.addLimitWindows({ changes: [] }), []);
});

test('more counts than one page and one batch are written and read whole', async (t) => {
  const { repositories } = await openStore(t, join(temporaryFolder(t), 'x.db'));
  const store = {
    load: (request: { readonly at: number; readonly after?: WindowCount }) => repositories.loadLimitWindows(request),
    add: (changes: readonly WindowCount[]) => repositories.addLimitWindows({ changes }),
  };
  const now = (): number => 1_800_000_000_000;
  const rules = Array.from({ length: 1234 }, (_, index) => ({
    subject: `acct_${index}`,
    kind: 'tokens' as const,
    lengthMs: dayMs,
    limit: 10,
  }));
  const first = new Windows({ store, now });
  for (const [index, rule] of rules.entries()) first.add(rule, index + 1);
  await first.write();
  const second = new Windows({ store, now });
  await second.load();
  assert.equal(second.size, rules.length);
  for (const [index, rule] of rules.entries()) assert.equal(second.used(rule), index + 1);
});

test('plans and limits are stored, loaded with the keys, and on the feed', async (t) => {
  const folder = temporaryFolder(t);
  const store = await openStore(t, join(folder, 'x.db'));
  await customer(store, 'acct_a', 0n);
  const key = {
    id: 'key_1',
    accountId: 'acct_a',
    userId: null,
    name: 'one',
    display: 'tkh_…abcd',
    hash: new Uint8Array(32).fill(1),
    pepperId: 'p',
    limits: '{"zdrOnly":true}',
    models: null,
    createdAt: 1,
    expiresAt: null,
  };
  await store.repositories.createKey({ key, changeId: uuid() });
  const at = 7;
  const { repositories: own } = store;
  assert.equal((await own.planAccount({ accountId: 'acct_a', plan: 'p', at, changeId: uuid() }))?.plan, 'p');
  const limits = '{"zdrRequired":true}';
  for (const [set, stored] of [
    [{ concurrencyMax: 3 }, '{"concurrencyMax":3}'],
    [{ zdrRequired: true }, '{"concurrencyMax":3,"zdrRequired":true}'],
    [{ concurrencyMax: null }, limits],
  ] as const)
    assert.equal((await own.limitAccount({ accountId: 'acct_a', limits: set, at, changeId: uuid() }))?.limits, stored);
  for (const [set, stored] of [
    [{ requestsPerMinute: 5, concurrencyMax: 2 }, '{"zdrOnly":true,"requestsPerMinute":5,"concurrencyMax":2}'],
    [{ requestsPerMinute: null }, '{"zdrOnly":true,"concurrencyMax":2}'],
    // What is nested is merged too, and is gone with its last limit.
    [
      { byModel: { m: { requestsPerDay: 5 } } },
      '{"zdrOnly":true,"concurrencyMax":2,"byModel":{"m":{"requestsPerDay":5}}}',
    ],
    [
      { byModel: { m: { tokensPerDay: 7 }, n: { tokensPerDay: 8 } } },
      '{"zdrOnly":true,"concurrencyMax":2,"byModel":{"m":{"requestsPerDay":5,"tokensPerDay":7},"n":{"tokensPerDay":8}}}',
    ],
    [
      { byModel: { m: { requestsPerDay: null }, n: null } },
      '{"zdrOnly":true,"concurrencyMax":2,"byModel":{"m":{"tokensPerDay":7}}}',
    ],
    [{ byModel: { m: { tokensPerDay: null } } }, '{"zdrOnly":true,"concurrencyMax":2}'],
  ] as const)
    assert.equal((await own.limitKey({ keyId: 'key_1', limits: set, at, changeId: uuid() }))?.limits, stored);
  const [loaded] = await own.loadKeys({});
  assert.deepEqual(
    [loaded?.accountPlan, loaded?.accountLimits, loaded?.limits],
    ['p', limits, '{"zdrOnly":true,"concurrencyMax":2}'],
  );
  const changes = openReadOnly(join(folder, 'x.db'));
  t.after(() => changes.destroy());
  const kinds = (await changes.selectFrom('change').select('kind').where('at', '=', 7n).execute()).map(
    ({ kind }) => kind,
  );
  assert.deepEqual(kinds.toSorted(), [
    'account_limits',
    'account_limits',
    'account_limits',
    'account_plan',
    ...Array.from({ length: 6 }, () => 'key_limits'),
  ]);
  // Nobody else's, and nobody who is not there.
  for (const accountId of ['acct_none', 'house_cash'])
    assert.equal(await own.planAccount({ accountId, plan: 'p', at, changeId: uuid() }), undefined);
  assert.equal(await own.limitKey({ keyId: 'key_none', limits: {}, at, changeId: uuid() }), undefined);
  await own.revokeKey({ keyId: 'key_1', at, changeId: uuid() });
  assert.equal(await own.limitKey({ keyId: 'key_1', limits: {}, at, changeId: uuid() }), undefined);
});
