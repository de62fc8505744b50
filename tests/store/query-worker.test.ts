import fc from 'fast-check';
import type { KyselyPlugin } from 'kysely';
import assert from 'node:assert/strict';
import { join } from 'node:path';
import { test } from 'node:test';
import type { NewKey } from '../../src/store/repositories/keys.ts';
import type { SumGroup, UsageSum } from '../../src/store/repositories/usage-totals.ts';
import { openConnection, openReadOnlyConnection } from '../../src/store/sqlite/connection.ts';
import { migrationNames } from '../../src/store/migrations/migrate.ts';
import { kyselyOn, openReadOnly } from '../../src/store/sqlite/dialect.ts';
import { recomputeUsageHours } from '../../src/store/reports/roll-ups.ts';
import { SqliteLedger } from '../../src/store/sqlite/ledger.ts';
import { QueryWorker } from '../../src/store/sqlite/query-client.ts';
import { repositoriesOn } from '../../src/store/repositories/repositories.ts';
import { StoreError } from '../../src/store/store-error.ts';
import { publicIdOf, uuidText } from '../../src/platform/ids/uuid.ts';
import type { UsageRow } from '../../src/store/ledger.ts';
import { customer, differencesOf, grant, MemoryBalances, openStore, temporaryFolder, usage, uuid } from './fixture.ts';

const refused = (code: StoreError['code']) => (error: unknown) => error instanceof StoreError && error.code === code;
const hourMs = 3_600_000;

function key(accountId: string, id: string): NewKey {
  const hash = new Uint8Array(32).fill(id.length);
  hash.set(Buffer.from(id));
  return {
    id,
    accountId,
    userId: null,
    name: id,
    display: 'tkh_…abcd',
    hash,
    pepperId: 'p',
    limits: null,
    models: null,
    createdAt: id.length,
    expiresAt: null,
  };
}

test('keys are made, listed, loaded and revoked; each change is on the feed', async (t) => {
  const file = join(temporaryFolder(t), 'x.db');
  const store = await openStore(t, file);
  await customer(store, 'acct_a', 0n);
  await customer(store, 'acct_b', 0n);
  await store.repositories.createKey({
    key: { ...key('acct_a', 'key_1'), limits: '{"rpm":5}', expiresAt: 77 },
    changeId: uuid(),
  });
  await store.repositories.createKey({ key: key('acct_b', 'key_22'), changeId: uuid() });
  await assert.rejects(
    store.repositories.createKey({ key: key('acct_none', 'key_3'), changeId: uuid() }),
    refused('not_found'),
  );
  await assert.rejects(
    store.repositories.createKey({ key: key('house_cash', 'key_3'), changeId: uuid() }),
    refused('not_found'),
  );
  await assert.rejects(
    store.repositories.createKey({
      key: { ...key('acct_a', 'key_3'), hash: key('acct_a', 'key_1').hash },
      changeId: uuid(),
    }),
    refused('conflict'),
  );
  assert.deepEqual(
    (await store.repositories.listKeys({})).map((one) => one.id),
    ['key_22', 'key_1'],
  );
  await store.ledger.setAccountStatus('acct_b', 'suspended', 5, uuid());
  const [first, second] = await store.repositories.loadKeys({});
  assert.deepEqual(Buffer.from(first!.hash), Buffer.from(key('acct_a', 'key_1').hash));
  assert.deepEqual([first!.limits, first!.expiresAt, first!.accountStatus], ['{"rpm":5}', 77, 'active']);
  assert.equal(second!.accountStatus, 'suspended');
  assert.deepEqual(
    (await store.repositories.loadKeys({ after: 'key_1', limit: 1 })).map((one) => one.id),
    ['key_22'],
  );

  const revoked = await store.repositories.revokeKey({ keyId: 'key_1', at: 9, changeId: uuid() });
  assert.deepEqual([revoked!.status, revoked!.revokedAt], ['revoked', 9]);
  assert.equal((await store.repositories.revokeKey({ keyId: 'key_1', at: 10, changeId: uuid() }))!.revokedAt, 9);
  assert.equal(await store.repositories.revokeKey({ keyId: 'key_none', at: 10, changeId: uuid() }), undefined);
  assert.deepEqual(
    (await store.repositories.loadKeys({})).map((one) => one.id),
    ['key_22'],
  );
  assert.deepEqual(
    (await store.repositories.listKeys({ accountId: 'acct_a' })).map((one) => [one.id, one.status]),
    [['key_1', 'revoked']],
  );

  const connection = openReadOnlyConnection(file);
  t.after(() => connection.close());
  const changes = connection.prepare('select kind, ref from change order by id').all() as {
    kind: string;
    ref: string;
  }[];
  assert.deepEqual(
    changes.map((change) => `${change.kind} ${change.ref}`),
    [
      'account_created acct_a',
      'account_created acct_b',
      'key_created key_1',
      'key_created key_22',
      'account_status acct_b',
      'key_revoked key_1',
    ],
  );
  assert.throws(() => connection.exec(`delete from change`), /readonly/);
});

test('threads that are closed while they start end after it, and not in the middle of a call of SQLite', async (t) => {
  const folder = temporaryFolder(t);
  const onFatal = (error: Error): void => assert.fail(error);
  for (let count = 0; count < 5; count++) {
    const file = join(folder, `${count}.db`);
    const queries = new QueryWorker({ file, onFatal });
    const [migrated] = await Promise.all([queries.start(), queries.close()]);
    assert.deepEqual(migrated, migrationNames());
    const ledger = new SqliteLedger({ file, free: new MemoryBalances(), onFatal });
    const [recovered] = await Promise.all([ledger.start(Date.now()), ledger.close()]);
    assert.equal(recovered, 0);
    await new SqliteLedger({ file, free: new MemoryBalances(), onFatal }).close();
  }
});

test('usage is listed newest first, page by page, and filtered', async (t) => {
  const file = join(temporaryFolder(t), 'x.db');
  const store = await openStore(t, file);
  await customer(store, 'acct_a', 1000n);
  await customer(store, 'acct_b', 1000n);
  const rows: UsageRow[] = [];
  for (let index = 0; index < 40; index++) {
    const endedAt = 1000 + Math.floor(index / 3); // several at one time: the cursor must not lose any
    rows.push(
      usage(index % 4 === 3 ? 'acct_b' : 'acct_a', 1n, {
        startedAt: 1000,
        endedAt,
        keyId: `key_${index % 2}`,
        modelId: `model_${index % 5}`,
      }),
    );
  }
  await Promise.all(rows.map((row) => store.ledger.settle(row)));
  const names = (found: readonly UsageRow[]) => found.map((row) => uuidText(row.requestId));
  const newest = (of: readonly UsageRow[]) =>
    names(of.toSorted((a, b) => b.endedAt - a.endedAt || Buffer.compare(b.requestId, a.requestId)));
  const pages = async (filter: object): Promise<string[]> => {
    const all: UsageRow[] = [];
    for (;;) {
      const before = all.at(-1);
      const page = await store.repositories.listUsage({
        ...filter,
        limit: 4,
        ...(before === undefined ? {} : { before }),
      });
      all.push(...page);
      if (page.length < 4) return names(all);
    }
  };
  const ofA = rows.filter((row) => row.accountId === 'acct_a');
  assert.deepEqual(await pages({ accountId: 'acct_a' }), newest(ofA));
  assert.deepEqual(await pages({}), names(rows.toReversed()));
  assert.deepEqual(
    await pages({ accountId: 'acct_a', keyId: 'key_0' }),
    newest(ofA.filter((row) => row.keyId === 'key_0')),
  );
  assert.deepEqual(
    await pages({ accountId: 'acct_a', modelId: 'model_2' }),
    newest(ofA.filter((row) => row.modelId === 'model_2')),
  );
  assert.deepEqual(
    await pages({ accountId: 'acct_a', from: 1004, to: 1008 }),
    newest(ofA.filter((row) => row.endedAt >= 1004 && row.endedAt < 1008)),
  );
  const db = openReadOnly(file);
  t.after(() => db.destroy());
  assert.deepEqual(
    names(await repositoriesOn(db).listUsage({ accountId: 'acct_a' })),
    newest(ofA),
    'the same beside the service',
  );
});

test('a request is found by any id that its user may hold, within the account only', async (t) => {
  const store = await openStore(t, join(temporaryFolder(t), 'x.db'));
  await customer(store, 'acct_a', 1000n);
  await customer(store, 'acct_b', 1000n);
  const requestId = uuid();
  // Another request of the same millisecond whose id ends alike: public ids are not unique.
  const alike = Uint8Array.from(requestId);
  alike[9] = (alike[9] ?? 0) ^ 1;
  const publicId = publicIdOf(requestId);
  const row = usage('acct_a', 1n, { requestId, publicId, clientId: 'mine' });
  const twin = usage('acct_a', 1n, { requestId: alike, publicId });
  await store.ledger.settle(row);
  await store.ledger.settle(twin);
  const find = async (accountId: string, id: string) =>
    (await store.repositories.findUsage({ accountId, id })).map((one) => uuidText(one.requestId));
  const [id, twinId] = [uuidText(row.requestId), uuidText(twin.requestId)];
  assert.deepEqual(await find('acct_a', publicId), [id, twinId].toSorted().toReversed());
  for (const one of ['mine', 'client_mine', id, id.toUpperCase()]) {
    assert.deepEqual(await find('acct_a', one), [id], one);
    assert.deepEqual(await find('acct_b', one), [], one);
  }
  assert.deepEqual(await find('acct_b', publicId), []);
  assert.deepEqual(await find('acct_a', `' or 1=1 --`), []);
});

test('sums come out the same from hours and from rows, for any span and grouping', async (t) => {
  const file = join(temporaryFolder(t), 'x.db');
  const store = await openStore(t, file);
  await customer(store, 'acct_a', 10n ** 17n);
  await customer(store, 'acct_b', 10n ** 17n);
  const start = Date.UTC(2026, 0, 1);
  const rows: UsageRow[] = [];
  for (let index = 0; index < 400; index++) {
    const endedAt = start + Math.floor((index / 400) ** 2 * 60 * hourMs) + index;
    rows.push(
      usage(index % 3 === 0 ? 'acct_b' : 'acct_a', BigInt(index + 1), {
        startedAt: endedAt,
        endedAt,
        modelId: `model_${index % 3}`,
        keyId: `key_${index % 4}`,
        completionTokens: 0,
        tags: [null, '["red"]', '["red","blue"]'][index % 5] ?? null,
        ...(index % 7 === 0 ? {} : { tier: index % 2 === 0 ? 'flex' : 'default' }),
        ending: index % 6 === 0 ? 'credit' : 'finished',
      }),
    );
  }
  await Promise.all(rows.map((row) => store.ledger.settle(row)));
  const now = start + 60 * hourMs;
  const ask = fc.record({
    from: fc.integer({ min: start - hourMs, max: now + hourMs }),
    span: fc.integer({ min: 0, max: 62 * hourMs }),
    by: fc
      .uniqueArray(fc.constantFrom<SumGroup>('model', 'key', 'account', 'day', 'tag', 'tier', 'ending'), {
        maxLength: 3,
      })
      .filter((groups) => !groups.includes('tag') || !(groups.includes('tier') || groups.includes('ending'))),
    accountId: fc.constantFrom(undefined, 'acct_a'),
    modelId: fc.constantFrom(undefined, 'model_1'),
  });
  for (const runsAfter of [undefined, 0, 2]) {
    if (runsAfter !== undefined)
      assert.ok((await store.repositories.recomputeUsageHours({ now: now + runsAfter * hourMs })).written > 0);
    await fc.assert(
      fc.asyncProperty(ask, async ({ from, span, by, accountId, modelId }) => {
        const to = from + span;
        const request = {
          from,
          to,
          ...(by.length === 0 ? {} : { by }),
          ...(accountId === undefined ? {} : { accountId }),
          ...(modelId === undefined ? {} : { modelId }),
        };
        const meant = rows.filter(
          (row) =>
            row.endedAt >= from &&
            row.endedAt < to &&
            (accountId === undefined || row.accountId === accountId) &&
            (modelId === undefined || row.modelId === modelId),
        );
        assert.deepEqual(await store.repositories.sumUsage(request), sums(meant, by));
      }),
      { numRuns: 60, includeErrorInReport: true },
    );
    assert.deepEqual(await differencesOf(file), []);
  }
  const connection = openReadOnlyConnection(file);
  t.after(() => connection.close());
  const { n } = connection.prepare('select sum(requests) as n from usage_hour').get() as { n: bigint };
  assert.equal(n, 400n);
});

test('hours that a stopped service has missed are written at its next run, each hour once it is complete', async (t) => {
  const file = join(temporaryFolder(t), 'x.db');
  const store = await openStore(t, file);
  await customer(store, 'acct_a', 1000n);
  const start = Date.UTC(2026, 0, 1);
  const settleAt = (at: number) => store.ledger.settle(usage('acct_a', 1n, { startedAt: at, endedAt: at }));
  await settleAt(start);
  const runAt = async (now: number) => (await store.repositories.recomputeUsageHours({ now })).written;
  assert.equal(await runAt(start + 2 * hourMs - 1), 0, 'charges of its last minutes may be missing');
  await settleAt(start + 120_000);
  await settleAt(start + 5 * hourMs);
  assert.equal(await runAt(start + 100 * hourMs), 2);
  assert.equal(await runAt(start + 100 * hourMs), 0);
  const [total] = await store.repositories.sumUsage({ from: start, to: start + 100 * hourMs });
  assert.equal(total!.requests, 3);

  // A quiet service, and one whose clock was ahead: the time that was looked at is not read again, whatever comes after it is.
  let statements = 0;
  const counting: KyselyPlugin = {
    transformQuery: ({ node }) => (statements++, node),
    transformResult: ({ result }) => Promise.resolve(result),
  };
  const db = kyselyOn(openReadOnlyConnection(file)).withPlugin(counting);
  t.after(() => db.destroy());
  const statementsOf = async (since: number | undefined): Promise<number> => {
    statements = 0;
    const { until } = await recomputeUsageHours(db, { now: start + 1000 * hourMs, since });
    assert.equal(until, start + 999 * hourMs);
    return statements;
  };
  const all = await statementsOf(undefined);
  assert.ok((await statementsOf(start + 998 * hourMs)) < all / 10, `${all} without`);
  assert.equal(await statementsOf(start + 1001 * hourMs), all);
  await settleAt(start + 1000 * hourMs);
  const later = await store.repositories.recomputeUsageHours({
    now: start + 1100 * hourMs,
    since: start + 999 * hourMs,
  });
  assert.equal(later.written, 1);
  assert.deepEqual(await differencesOf(file), []);
});

test('every query on usage walks an index, or reads from the end of the table', async (t) => {
  const file = join(temporaryFolder(t), 'x.db');
  const store = await openStore(t, file);
  const connection = openConnection(file);
  t.after(() => connection.close());
  const asked: string[] = [];
  const watched = new Proxy(connection, {
    get(target, name) {
      const value: unknown = Reflect.get(target, name, target);
      if (name === 'prepare') return (sql: string) => (asked.push(sql), target.prepare(sql));
      return typeof value === 'function' ? (value.bind(target) as unknown) : value;
    },
  });
  const repositories = repositoriesOn(kyselyOn(watched));
  const plansOf = async (query: Promise<unknown>, table = 'usage'): Promise<readonly string[]> => {
    await query;
    const plans = asked
      .splice(0)
      .filter((sql) => /^select/i.test(sql) && sql.includes(`"${table}"`))
      .map((sql) =>
        (connection.prepare(`explain query plan ${sql}`).all() as { detail: string }[])
          .map((row) => row.detail)
          .join('; '),
      );
    assert.ok(plans.length > 0);
    return plans;
  };
  const accountId = 'acct_a';
  const before = { endedAt: 5, requestId: uuid() };
  assert.deepEqual(await plansOf(repositories.listUsage({ accountId, before })), [
    'SEARCH usage USING INDEX usage_account (account_id=? AND (ended_at,request_id)<(?,?))',
  ]);
  assert.deepEqual(await plansOf(repositories.listUsage({})), ['SCAN usage']);
  assert.deepEqual(await plansOf(repositories.listUsage({ before })), [
    'SEARCH usage USING PRIMARY KEY (request_id<?)',
  ]);
  const found = await plansOf(repositories.findUsage({ accountId, id: 'req_aabbccddeeff' }));
  const clientId = found.at(-1);
  const publicId = found.at(-2);
  assert.match(publicId!, /^SEARCH usage USING PRIMARY KEY \(request_id>\? AND request_id<\?\)/);
  assert.match(clientId!, /^SEARCH usage USING INDEX usage_client_id \(account_id=\? AND client_id=\?\)/);
  for (const plan of [
    ...(await plansOf(repositories.sumUsage({ accountId, from: 1, to: 99, by: ['model'] }))),
    ...(await plansOf(repositories.sumUsage({ from: 1, to: 99, by: ['account'] }))),
    ...(await plansOf(repositories.sumUsage({ from: 1, to: 99 }))),
  ]) {
    assert.match(plan, /SEARCH usage USING INDEX usage_account \(account_id=\? AND ended_at>\? AND ended_at<\?\)/);
  }
  const plans = await plansOf(repositories.recomputeUsageHours({ now: Date.now() }));
  // The first row of all, from which hours, tiers and days of latencies are added up: one statement, compiled once.
  const others = plans.filter((plan) => !plan.includes('account_id=? AND ended_at>? AND ended_at<?'));
  assert.deepEqual(others, ['SCAN usage']);

  // The hours of an account lie together, also where those of all are summed.
  await customer(store, accountId, 10n);
  const now = Date.now();
  await store.ledger.settle(usage(accountId, 1n, { startedAt: now - 5 * hourMs, endedAt: now - 5 * hourMs }));
  await store.repositories.recomputeUsageHours({ now });
  for (const of of [{}, { accountId }]) {
    const span = { ...of, from: 0, to: now, by: ['model', 'account'] as const };
    const [plan] = (await plansOf(repositories.sumUsage(span), 'usage_hour')).slice(-1);
    assert.match(plan!, /SEARCH usage_hour USING PRIMARY KEY \(account_id=\? AND hour>\? AND hour<\?\)/);
  }
});

test('transfers and accounts are listed', async (t) => {
  const store = await openStore(t, join(temporaryFolder(t), 'x.db'));
  await customer(store, 'acct_a', 1n);
  await store.ledger.transfer({ ...grant('acct_a', 2n), at: Date.now() + 1, reference: 'gift' });
  const transfers = await store.repositories.listTransfers({ accountId: 'acct_a' });
  assert.deepEqual(
    transfers.map((one) => [one.amountMicrocents, one.reference]),
    [
      [2n, 'gift'],
      [1n, null],
    ],
  );
  assert.equal(await store.repositories.getAccount({ accountId: 'acct_none' }), undefined);
  const isSystem = await store.repositories.getAccount({ accountId: 'house_promo' });
  assert.deepEqual([isSystem!.isSystem, isSystem!.balanceMicrocents], [true, -3n]);
});

function sums(rows: readonly UsageRow[], by: readonly SumGroup[]): readonly UsageSum[] {
  const groups = new Map<string, UsageRow[]>();
  const day = 24 * hourMs;
  for (const row of rows) {
    const tags = by.includes('tag') ? (JSON.parse(row.tags ?? '[]') as readonly string[]) : [''];
    for (const tag of tags) {
      const names = {
        model: row.modelId,
        key: row.keyId,
        account: row.accountId,
        day: String(row.endedAt - (row.endedAt % day)),
        tag,
        tier: row.tier ?? '',
        ending: row.ending,
      };
      const group = JSON.stringify(by.map((one) => names[one]));
      groups.set(group, [...(groups.get(group) ?? []), row]);
    }
  }
  const add = (
    of: readonly UsageRow[],
    field: 'promptTokens' | 'cachedTokens' | 'completionTokens' | 'reasoningTokens',
  ) => of.reduce((sum, row) => sum + row[field], 0);
  return [...groups]
    .map(([group, of]) => ({
      groups: JSON.parse(group) as string[],
      requests: of.length,
      promptTokens: add(of, 'promptTokens'),
      cachedTokens: add(of, 'cachedTokens'),
      completionTokens: add(of, 'completionTokens'),
      reasoningTokens: add(of, 'reasoningTokens'),
      costMicrocents: of.reduce((sum, row) => sum + row.costMicrocents, 0n),
      unchargedMicrocents: of.reduce((sum, row) => sum + row.unchargedMicrocents, 0n),
    }))
    .sort((a, b) => (JSON.stringify(a.groups) < JSON.stringify(b.groups) ? -1 : 1));
}

test('changes that are old are deleted, a batch at a time; the young ones stay', async (t) => {
  const file = join(temporaryFolder(t), 'x.db');
  let now = Date.now();
  const store = await openStore(t, file, { now: () => now });
  await customer(store, 'acct_a', 0n);
  for (const id of ['key_1', 'key_2'])
    await store.repositories.createKey({ key: { ...key('acct_a', id), createdAt: now }, changeId: uuid() });
  const changes = (): number => {
    const connection = openReadOnlyConnection(file);
    const { n } = connection.prepare('select count(*) as n from change').get() as { n: bigint };
    connection.close();
    return Number(n);
  };
  const connection = openConnection(file);
  const insert = connection.prepare('insert into change (id, at, kind, ref) values (?, ?, ?, ?)');
  connection.exec('begin');
  for (let index = 0; index < 1_500; index++) insert.run(uuid(), now - 2 * hourMs, 'key_models', 'key_1');
  connection.exec('commit');
  connection.close();
  const young = changes() - 1_500;
  assert.ok(young >= 2);
  await store.tidy();
  assert.equal(changes(), young + 500);
  await store.tidy();
  await store.tidy();
  assert.equal(changes(), young);
  now += 2 * hourMs;
  await store.tidy();
  assert.equal(changes(), 0);
});
