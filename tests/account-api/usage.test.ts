import assert from 'node:assert/strict';
import { test, type TestContext } from 'node:test';

import { errorRoutes } from '../../src/account-api/routes/errors.ts';
import { exportRoutes } from '../../src/account-api/routes/export.ts';
import { limitRoutes } from '../../src/account-api/routes/limits.ts';
import { modelRoutes } from '../../src/account-api/routes/models.ts';
import { usageRoutes } from '../../src/account-api/routes/usage.ts';
import { issueKey } from '../../src/accounts/key.ts';
import { operate } from '../../src/accounts/operations.ts';
import type { Config } from '../../src/config/config.ts';
import { errorTable } from '../../src/platform/errors.ts';
import { publicIdOf, uuidText } from '../../src/platform/ids/uuid.ts';
import { windowStart } from '../../src/billing/rate-limits/windows.ts';
import { systemAccounts } from '../../src/store/ledger.ts';
import type { UsageRow } from '../../src/store/ledger.ts';
import type { RemovalCursor } from '../../src/store/retention/removal.ts';
import { grant, usage, uuid } from '../store/fixture.ts';
import { openHost } from './host.ts';
import type { TestHost } from './host.ts';

const hourMs = 3_600_000;
const routes = [...usageRoutes, ...limitRoutes, ...modelRoutes, ...exportRoutes, ...errorRoutes];
const seconds = (text: string): number => Date.parse(text) / 1000;

interface Scene {
  readonly host: TestHost;
  settle(accountId: string, cost: bigint, endedAt: string, changes?: Partial<UsageRow>): Promise<UsageRow>;
  get(path: string, key?: string): Promise<Record<string, unknown>>;
  text(path: string, key?: string): Promise<string>;
}

/** Two accounts with credit, and an owner's key of the first. */
async function scene(t: TestContext, now: () => number = Date.now): Promise<Scene & { readonly owner: string }> {
  const host = await openHost(t, routes, now);
  const { ledger } = host.services.operations;
  for (const id of ['acct_a', 'acct_b']) {
    await host.account(id);
    await ledger.transfer(grant(id, 10n ** 12n));
  }
  const owner = await host.key('acct_a', 'owner');
  const text = async (path: string, key = owner): Promise<string> => {
    const { status, body } = await host.ask('GET', path, { key });
    assert.equal(status, 200, `${path}: ${body}`);
    assert.deepEqual(host.failures, []);
    return body;
  };
  return {
    host,
    owner,
    settle: async (accountId, cost, endedAt, changes = {}) => {
      const at = Date.parse(endedAt);
      const row = usage(accountId, cost, { startedAt: at - 100, endedAt: at, ...changes });
      assert.equal(await ledger.settle(row), 'billed');
      return row;
    },
    text,
    get: async (path, key) => JSON.parse(await text(path, key)) as Record<string, unknown>,
  };
}

test('a receipt has its arithmetic, its hold, its refund and why it is the charge, by any of its ids', async (t) => {
  const { host, settle, get, owner } = await scene(t);
  const { ledger } = host.services.operations;
  const row = await settle('acct_a', 1_235n, '2026-05-05T10:00:00Z', {
    clientId: 'mine',
    promptTokens: 1_000,
    cachedTokens: 400,
    completionTokens: 250,
    reasoningTokens: 50,
    inputPrice: 1_000_001n,
    cacheReadPrice: 250_000n,
    outputPrice: 2_139_597n,
    holdMicrocents: 5_000n,
    ending: 'client_left',
    finish: null,
    firstTokenMs: 30,
    totalMs: 100,
    zdr: true,
  });
  const refund = uuid();
  await ledger.transfer({
    ...grant('acct_a', 35n, `refund:${Buffer.from(row.requestId).toString('hex')}`),
    id: refund,
    debitAccount: systemAccounts.revenue,
    kind: 'refund',
    at: Date.parse('2026-05-06T00:00:00Z'),
  });
  const receipt = await get(`/v1/generation?id=${row.publicId}`);
  for (const id of [uuidText(row.requestId), 'mine', 'client_mine'])
    assert.deepEqual(await get(`/v1/generation?id=${id}`), receipt, id);
  assert.deepEqual(receipt['lines'], [
    { item: 'input', tokens: 600, microcents_per_million_tokens: 1_000_001, microcents: '600.0006' },
    { item: 'cached_input', tokens: 400, microcents_per_million_tokens: 250_000, microcents: '100' },
    { item: 'output', tokens: 250, microcents_per_million_tokens: 2_139_597, microcents: '534.89925' },
  ]);
  const { sum_microcents: sum, list_cost_microcents: list, total_cost_microcents: cost } = receipt;
  assert.deepEqual([sum, list, cost], ['1234.89985', 1_235, 1_235]);
  assert.deepEqual(
    [receipt['hold_microcents'], receipt['refunded_microcents'], receipt['cancelled'], receipt['zdr']],
    [5_000, 35, true, true],
  );
  assert.deepEqual([receipt['latency_ms'], receipt['generation_time_ms'], receipt['total_ms']], [30, 70, 100]);
  assert.equal(receipt['error'], null);
  assert.match(String(receipt['explanation']), /client left before the end: the input and the output/);
  assert.deepEqual(receipt['ledger'], [
    {
      id: uuidText(row.requestId),
      type: 'usage',
      amount_microcents: -1_235,
      created_at: seconds('2026-05-05T10:00:00Z'),
    },
    { id: uuidText(refund), type: 'refund', amount_microcents: 35, created_at: seconds('2026-05-06T00:00:00Z') },
  ]);

  // An error comes with what its page says; a code that no version knows any more, without.
  for (const [errorCode, error] of [
    ['backend_timeout', errorTable.backend_timeout],
    ['of_an_earlier_version', null],
  ] as const) {
    const failed = await settle('acct_a', 0n, '2026-05-05T11:00:00Z', { ending: 'failed', finish: null, errorCode });
    const shown = await get(`/v1/generation?id=${uuidText(failed.requestId)}`);
    const { type: _type, ...said } = error ?? { type: null };
    assert.deepEqual([shown['error_code'], shown['error']], [errorCode, error === null ? null : said]);
  }

  // What is another's, and what is not there, are the same.
  const other = await settle('acct_b', 5n, '2026-05-05T10:00:00Z');
  const bodies = [];
  for (const id of [other.publicId, uuidText(other.requestId), 'req_000000000000', uuidText(uuid()), '%00']) {
    const { status, body } = await host.ask('GET', `/v1/generation?id=${id}`, { key: owner });
    assert.equal(status, 404, id);
    bodies.push(body.replace(/req_[0-9a-f]{12}/g, ''));
  }
  assert.equal(new Set(bodies).size, 1);
});

test('requests that share a public id are listed, and each is found by its own', async (t) => {
  const { settle, get } = await scene(t);
  const first = await settle('acct_a', 1n, '2026-05-05T10:00:00Z');
  const twin = Uint8Array.from(first.requestId);
  twin[10] = twin[10]! ^ 1; // neither in the time nor in what the public id shows
  assert.equal(publicIdOf(twin), first.publicId);
  await settle('acct_a', 2n, '2026-05-05T10:00:00Z', { requestId: twin });
  const list = await get(`/v1/generation?id=${first.publicId}`);
  assert.equal(list['object'], 'list');
  assert.match(String(list['message']), /^2 requests have this id/);
  const costs = (list['data'] as { readonly total_cost_microcents: number }[]).map((one) => one.total_cost_microcents);
  assert.deepEqual(costs.sort(), [1, 2]);
  assert.equal((await get(`/v1/generation?id=${uuidText(twin)}`))['total_cost_microcents'], 2);
});

interface Page {
  readonly data: readonly Readonly<Record<string, unknown>>[];
  readonly has_more: boolean;
  readonly next_after?: string;
}

test('requests are listed newest first, by page and by filter', async (t) => {
  const { host, settle, get, owner } = await scene(t);
  for (let index = 0; index < 9; index++)
    await settle('acct_a', BigInt(index + 1), `2026-05-0${1 + (index % 3)}T10:00:00Z`, {
      modelId: index % 2 === 0 ? 'glm' : 'qwen',
      streamed: index % 3 === 0,
      ...(index === 4
        ? { ending: 'failed', errorCode: 'backend_timeout', costMicrocents: 0n, unchargedMicrocents: 5n, finish: null }
        : {}),
      tags: index < 2 ? '["red"]' : null,
    });
  await settle('acct_b', 100n, '2026-05-02T10:00:00Z');
  const all = (await get('/v1/generations?limit=100')) as unknown as Page;
  assert.equal(all.data.length, 9);
  assert.equal(all.has_more, false);
  const times = all.data.map((one) => Number(one['ended_at']));
  assert.deepEqual(
    times,
    times.toSorted((a, b) => b - a),
  );
  const paged: unknown[] = [];
  for (let after: string | undefined = ''; after !== undefined;) {
    const page = (await get(`/v1/generations?limit=2${after === '' ? '' : `&after=${after}`}`)) as unknown as Page;
    paged.push(...page.data);
    assert.equal(page.has_more, page.next_after !== undefined);
    after = page.next_after;
  }
  assert.deepEqual(paged, all.data);
  for (const [query, count] of [
    ['model=glm', 5],
    ['ending=failed', 1],
    ['error_code=backend_timeout', 1],
    ['streamed=true', 3],
    ['tag=red', 2],
    ['tag=re', 0],
    ['api_key_id=key_nobody', 0],
    [`start_time=${seconds('2026-05-02T10:00:00Z')}&end_time=${seconds('2026-05-03T10:00:00Z')}`, 3],
    ['model=glm&streamed=true', 2],
  ] as const)
    assert.equal(((await get(`/v1/generations?limit=100&${query}`)) as unknown as Page).data.length, count, query);
  for (const [query, param] of [
    ['after=nothing', 'after'],
    [`after=${uuidText(uuid())}`, 'after'],
    ['start_time=5&end_time=5', 'start_time'],
  ] as const) {
    const { status, body } = await host.ask('GET', `/v1/generations?${query}`, { key: owner });
    assert.equal(status, 400, body);
    assert.equal((JSON.parse(body) as { error: { param: string } }).error.param, param);
  }
});

interface Buckets {
  readonly time_zone: string;
  readonly data: readonly {
    readonly start_time: number;
    readonly end_time: number;
    readonly results: readonly Readonly<Record<string, unknown>>[];
  }[];
  readonly has_more: boolean;
  readonly next_page?: string;
}

test('lists, receipts and exports name the model that was asked for where another one served', async (t) => {
  const { settle, get, text } = await scene(t);
  const failed = (model: string) => ({ model, reason: 'backend_http_error', isSkipped: false });
  const at = '2026-05-05T10:00:00Z';
  const served = await settle('acct_a', 1n, at, { modelId: 'small', fallbacks: [failed('large'), failed('middle')] });
  const refused = await settle('acct_a', 1n, at, { modelId: 'large', fallbacks: [failed('large'), failed('small')] });
  const usual = await settle('acct_a', 1n, at, { modelId: 'small' });
  const listed = (await get('/v1/generations')) as unknown as Page;
  const csv = await text('/v1/export/generations.csv');
  for (const [row, from] of [
    [served, 'large'],
    [refused, null],
    [usual, null],
  ] as const) {
    const id = uuidText(row.requestId);
    assert.equal(listed.data.find((each) => each['id'] === id)?.['fallback_from'], from);
    assert.equal((await get(`/v1/generation?id=${id}`))['fallback_from'], from);
    assert.match(csv, new RegExp(`^${id},.*,${row.modelId},${from ?? ''},chat,`, 'm'));
  }
});

test('a page of a report has at most 366 days, 168 hours or the minutes of a day, whatever is asked for', async (t) => {
  const { host, get, owner } = await scene(t);
  const from = (days: number): string =>
    `start_time=${seconds('2026-01-01T00:00:00Z')}&end_time=${seconds('2026-01-01T00:00:00Z') + days * 86_400}`;
  for (const [width, days, most] of [
    ['1d', 1000, 366],
    ['1h', 1000, 168],
    ['1m', 1, 1440],
  ] as const)
    for (const path of ['/v1/usage', '/v1/costs']) {
      const query = `${from(days)}&bucket_width=${width}&limit=1440&group_by[]=model`;
      const { data, has_more: hasMore } = (await get(`${path}?${query}`)) as unknown as Buckets;
      assert.deepEqual([data.length, hasMore], [most, width !== '1m'], `${path}, ${width}`);
    }
  for (const path of ['/v1/usage', '/v1/costs', '/v1/errors']) {
    const { data, has_more: hasMore } = (await get(`${path}?${from(10_000)}&bucket_width=all`)) as unknown as Buckets;
    assert.deepEqual([data.length, hasMore], [1, false], path);
  }
  for (const query of [`${from(2)}&bucket_width=1m`, `${from(1)}&bucket_width=1m&limit=1441`])
    assert.ok([400, 422].includes((await host.ask('GET', `/v1/usage?${query}`, { key: owner })).status), query);
});

test('usage and costs are reported in the days of the account, in pages, also where the clocks change', async (t) => {
  const { host, settle, get, owner } = await scene(t);
  const { repositories, ledger } = host.services.operations;
  // The 29th of March has 23 hours in Berlin: it ends at 22:00 UTC.
  const first = await settle('acct_a', 1_000_000n, '2026-03-28T22:59:59Z', { modelId: 'glm' });
  await settle('acct_a', 10n, '2026-03-28T23:00:00Z', { modelId: 'glm' });
  await settle('acct_a', 100n, '2026-03-29T21:59:59Z', { modelId: 'qwen' });
  await settle('acct_a', 1_000n, '2026-03-29T22:00:00Z', { modelId: 'glm' });
  await ledger.transfer({
    ...grant('acct_a', 7n, `refund:${Buffer.from(first.requestId).toString('hex')}`),
    debitAccount: systemAccounts.revenue,
    kind: 'refund',
    at: Date.parse('2026-03-29T12:00:00Z'),
  });
  await repositories.editAccount({ accountId: 'acct_a', timeZone: 'Europe/Berlin', at: Date.now(), changeId: uuid() });
  const span = `start_time=${seconds('2026-03-27T23:00:00Z')}&end_time=${seconds('2026-03-30T22:00:00Z')}`;
  for (const isAddedUp of [false, true]) {
    if (isAddedUp) {
      await repositories.recomputeUsageHours({ now: Date.parse('2026-04-02T00:00:00Z') });
      while ((await repositories.recomputeUsageDays({})).isMore);
    }
    const found = (await get(`/v1/usage?${span}`)) as unknown as Buckets;
    assert.equal(found.time_zone, 'Europe/Berlin');
    assert.deepEqual(
      found.data.map((bucket) => [
        (bucket.end_time - bucket.start_time) / 3600,
        ...bucket.results.map((one) => one['cost_microcents']),
      ]),
      [
        [24, 1_000_000],
        [23, 110],
        [24, 1_000],
      ],
    );
    const pages: unknown[] = [];
    for (let page: string | undefined = ''; page !== undefined;) {
      const query: string = page === '' ? '' : `&page=${page}`;
      const costs = (await get(`/v1/costs?${span}&group_by[]=model&limit=1${query}`)) as unknown as Buckets;
      assert.equal(costs.data.length, 1);
      pages.push(costs.data[0]!.results.map((one) => [one['model'], one['line_item'], one['amount_microcents']]));
      page = costs.next_page;
    }
    assert.deepEqual(pages, [
      [['glm', 'usage', 1_000_000]],
      [
        ['glm', 'usage', 10],
        ['qwen', 'usage', 100],
        ['glm', 'refunds', -7],
      ],
      [['glm', 'usage', 1_000]],
    ]);
  }
  // In one piece, the largest groups first, or these alone.
  for (const [query, groups] of [
    [
      '',
      [
        ['glm', 3],
        ['qwen', 1],
      ],
    ],
    ['&top=1', [['glm', 3]]],
    ['&top=1&model=qwen', [['qwen', 1]]],
  ] as const) {
    const { data } = (await get(`/v1/usage?${span}&bucket_width=all&group_by[]=model${query}`)) as unknown as Buckets;
    assert.equal(data.length, 1);
    assert.deepEqual(
      data[0]!.results.map((one) => [one['model'], one['num_model_requests']]),
      groups,
      query,
    );
  }
  const whole = (await get(`/v1/costs?${span}&model=glm&bucket_width=1h&limit=168`)) as unknown as Buckets;
  const amounts = whole.data.flatMap(({ results }) => results.map((one) => (one['amount'] as { value: string }).value));
  assert.deepEqual(amounts, ['0.01', '0.0000001', '-0.00000007', '0.00001']);
  for (const [query, param] of [
    [`start_time=5&end_time=5`, 'start_time'],
    [`${span}&bucket_width=1m`, 'bucket_width'],
    [`${span}&page=5`, 'page'],
  ] as const) {
    const { status, body } = await host.ask('GET', `/v1/usage?${query}`, { key: owner });
    assert.equal(status, 400, body);
    assert.equal((JSON.parse(body) as { error: { param: string } }).error.param, param);
  }
  assert.equal((await host.ask('GET', '/v1/usage?bucket_width=2d', { key: owner })).status, 422);
  assert.equal((await host.ask('GET', '/v1/usage?bucket=1d', { key: owner })).status, 400);
});

test('usage and costs are divided by service tier and ending, and by several fields at once', async (t) => {
  const { host, settle, get, owner } = await scene(t);
  const { repositories, ledger } = host.services.operations;
  const at = (hour: number) => `2026-03-10T${String(hour).padStart(2, '0')}:20:00Z`;
  const first = await settle('acct_a', 1n, at(1), { modelId: 'glm', tier: 'flex' });
  await settle('acct_a', 10n, at(1), { modelId: 'glm', tier: 'flex', ending: 'client_left' });
  await settle('acct_a', 100n, at(2), { modelId: 'qwen', tier: 'default', tags: '["red"]' });
  await settle('acct_a', 1_000n, at(3), { modelId: 'glm' });
  await ledger.transfer({
    ...grant('acct_a', 1n, `refund:${Buffer.from(first.requestId).toString('hex')}`),
    debitAccount: systemAccounts.revenue,
    kind: 'refund',
    at: Date.parse(at(4)),
  });
  const span = `start_time=${seconds('2026-03-10T00:00:00Z')}&end_time=${seconds('2026-03-11T00:00:00Z')}`;
  const rowsOf = async (path: string, figure: string) =>
    ((await get(path)) as unknown as Buckets).data.flatMap(({ results }) =>
      results.map((one) => [one['model'], one['service_tier'], one['ending'], one[figure]]),
    );
  for (const isAddedUp of [false, true]) {
    if (isAddedUp) await repositories.recomputeUsageHours({ now: Date.parse('2026-03-12T00:00:00Z') });
    for (const [query, expected] of [
      [
        'group_by=service_tier',
        [
          [null, null, null, 1_000],
          [null, 'default', null, 100],
          [null, 'flex', null, 11],
        ],
      ],
      [
        'group_by=ending&service_tier=flex',
        [
          [null, null, 'client_left', 10],
          [null, null, 'finished', 1],
        ],
      ],
      [
        'group_by=model&ending=finished',
        [
          ['glm', null, null, 1_001],
          ['qwen', null, null, 100],
        ],
      ],
      [
        'group_by=model&group_by=service_tier&group_by=ending',
        [
          ['glm', null, 'finished', 1_000],
          ['glm', 'flex', 'client_left', 10],
          ['glm', 'flex', 'finished', 1],
          ['qwen', 'default', 'finished', 100],
        ],
      ],
      ['group_by=service_tier&tag=red', [[null, 'default', null, 100]]],
    ] as const)
      assert.deepEqual(await rowsOf(`/v1/usage?${span}&${query}`, 'cost_microcents'), expected, query);
    assert.deepEqual(await rowsOf(`/v1/costs?${span}&service_tier=flex&group_by=ending`, 'amount_microcents'), [
      [null, null, 'client_left', 10],
      [null, null, 'finished', 1],
      [null, null, 'finished', -1],
    ]);
  }
  const listed = (await get('/v1/generations?service_tier=flex&ending=finished')) as { data: { id: string }[] };
  assert.deepEqual(
    listed.data.map(({ id }) => id),
    [uuidText(first.requestId)],
  );
  const csv = await host.ask('GET', `/v1/export/usage.csv?${span}&group_by=service_tier`, { key: owner });
  assert.match(csv.body, /,service_tier,ending,/);
  assert.match(csv.body, /,flex,,2,/);
  const latencies = (await get(`/v1/latency?${span}&group_by=service_tier&ending=finished`)) as unknown as {
    data: Record<string, unknown>[];
  };
  // What the fixture says of every request: 1 ms to the first token, 2 in all.
  const times = { first_token_p50_ms: 1, first_token_p95_ms: 1, total_p50_ms: 2, total_p95_ms: 2 };
  const row = { object: 'latency', num_model_requests: 1, ...times, model: null, api_key_id: null, user_id: null };
  assert.deepEqual(
    latencies.data.map(({ service_tier: tier }) => tier).toSorted(),
    ['default', 'flex', null].toSorted(),
  );
  assert.deepEqual(
    latencies.data.find((one) => one['service_tier'] === 'flex'),
    { ...row, service_tier: 'flex', ending: null },
  );
  assert.equal((await host.ask('GET', `/v1/latency?start_time=0&end_time=40000000`, { key: owner })).status, 400);
  const viewer = await host.key('acct_a', 'viewer');
  const whole = (await get(`/v1/latency?${span}`, viewer)) as unknown as typeof latencies;
  assert.deepEqual(whole.data[0]?.['num_model_requests'], 4);
  assert.deepEqual(
    ((await get(`/v1/latency?${span}&group_by=api_key_id`, viewer)) as unknown as typeof latencies).data,
    [],
  );
  const long = `start_time=${seconds('2026-01-01T00:00:00Z')}&end_time=${seconds('2026-03-11T00:00:00Z')}&limit=366`;
  const { status, body } = await host.ask('GET', `/v1/usage?${long}&group_by=tag&group_by=ending`, { key: owner });
  assert.equal(status, 400);
  assert.match(body, /32 days at most.*"param":"start_time"/);
  assert.equal((await host.ask('GET', '/v1/usage?service_tier=gold', { key: owner })).status, 422);
});

test('activity has the last thirty days of the account', async (t) => {
  const now = Date.parse('2026-05-20T12:00:00Z');
  const { host, settle, get } = await scene(t, () => now);
  await host.services.operations.repositories.editAccount({
    accountId: 'acct_a',
    timeZone: 'Asia/Kathmandu',
    at: Date.now(),
    changeId: uuid(),
  });
  await settle('acct_a', 1n, '2026-04-20T18:14:59Z');
  await settle('acct_a', 2n, '2026-04-20T18:15:00Z');
  await settle('acct_a', 4n, '2026-05-20T11:00:00Z');
  const rows = async (query: string) =>
    ((await get(`/v1/activity${query}`)) as unknown as Page).data.map((one) => [one['date'], one['cost_microcents']]);
  assert.deepEqual(await rows(''), [
    ['2026-05-20', 4],
    ['2026-04-21', 2],
  ]);
  assert.deepEqual(await rows('?date=2026-04-20'), [['2026-04-20', 1]]);
  assert.equal(
    (await host.ask('GET', '/v1/activity?date=2026-02-30', { key: await host.key('acct_a', 'owner') })).status,
    400,
  );
});

test('a developer sees the sums of all, and requests, keys and people of their own alone', async (t) => {
  const { host, settle, get, text } = await scene(t);
  const { repositories, secret } = host.services.operations;
  const keyOf = async (userId: string | null): Promise<string> => {
    const { row } = issueKey({ accountId: 'acct_a', userId, name: 'x', secret, now: 0 });
    await repositories.createKey({ key: row, changeId: uuid() });
    return row.id;
  };
  // A management key of a developer is nobody's, and sees keys that are nobody's.
  const [own, foreign] = [await keyOf(null), await keyOf('ann')];
  const mine = await settle('acct_a', 1n, '2026-05-05T10:00:00Z', { keyId: own });
  const theirs = await settle('acct_a', 2n, '2026-05-05T10:00:00Z', { keyId: foreign });
  const span = `start_time=${seconds('2026-05-05T00:00:00Z')}&end_time=${seconds('2026-05-06T00:00:00Z')}`;
  const costOf = async (path: string, key: string): Promise<unknown[]> =>
    ((await get(path, key)) as unknown as Buckets).data.flatMap(({ results }) =>
      results.map((one) => one['cost_microcents']),
    );
  for (const role of ['owner', 'admin', 'billing', 'developer', 'viewer'] as const) {
    const key = await host.key('acct_a', role);
    const isWhole = role !== 'developer' && role !== 'viewer';
    assert.deepEqual(await costOf(`/v1/usage?${span}`, key), [3], role);
    assert.deepEqual(await costOf(`/v1/usage?${span}&group_by=model`, key), [3], role);
    const byKey = await costOf(`/v1/usage?${span}&group_by=api_key_id`, key);
    assert.deepEqual(byKey.sort(), isWhole ? [1, 2] : [1], role);
    assert.deepEqual(await costOf(`/v1/usage?${span}&user_id=ann`, key), isWhole ? [2] : [], role);
    const listed = (await get('/v1/generations', key)) as unknown as Page;
    assert.equal(listed.data.length, isWhole ? 2 : 1, role);
    assert.equal((await host.ask('GET', `/v1/generation?id=${mine.publicId}`, { key })).status, 200, role);
    const { status } = await host.ask('GET', `/v1/generation?id=${uuidText(theirs.requestId)}`, { key });
    assert.equal(status, isWhole ? 200 : 404, role);
    assert.equal((await text('/v1/export/generations.csv', key)).split('\r\n').length, isWhole ? 5 : 4, role);
  }
});

test('exports are what the filter says, safe to open, with sums behind them', async (t) => {
  const { host, settle, get, text } = await scene(t);
  await host.services.operations.repositories.editAccount({
    accountId: 'acct_a',
    timeZone: 'Asia/Kolkata',
    at: Date.now(),
    changeId: uuid(),
  });
  await settle('acct_a', 3n, '2026-05-05T10:00:00Z', { modelId: '=cmd()', clientId: 'a,"b"' });
  await settle('acct_a', 4n, '2026-05-05T11:00:00Z', { modelId: '@sum' });
  for (let index = 0; index < 1_200; index++)
    await settle('acct_a', 1n, '2026-05-06T10:00:00Z', { modelId: 'glm', tags: '["red","blue"]' });
  const odd = await text(`/v1/export/generations.csv?end_time=${seconds('2026-05-06T00:00:00Z')}`);
  const [header, second, first, footer, end] = odd.split('\r\n');
  assert.ok(header!.startsWith('id,request_id,client_request_id,started_at_utc,ended_at_utc,ended_at_local,model,'));
  assert.match(first!, /,"a,""b""",[^,]*,2026-05-05T10:00:00.000Z,2026-05-05T15:30:00.000\+05:30,'=cmd\(\),,chat,/);
  assert.match(second!, /,'@sum,/);
  assert.match(footer!, /^total,,.*,7,0,0,,,,,$/);
  assert.equal(end, '');
  const lines = (await text('/v1/export/generations.csv?tag=red')).split('\r\n');
  assert.equal(lines.length, 1_200 + 3);
  assert.match(lines.at(-2)!, /,1200,0,0,,,,,$/);
  const json = (await get('/v1/export/generations.json?model=glm')) as unknown as Page & { totals: object };
  assert.equal(json.data.length, 1_200);
  assert.deepEqual(json.data[0]!['tags'], ['red', 'blue']);
  assert.deepEqual((json.totals as Record<string, number>)['cost_microcents'], 1_200);
  const span = `start_time=${seconds('2026-04-30T18:30:00Z')}&end_time=${seconds('2026-05-31T18:30:00Z')}`;
  const usageLines = (await text(`/v1/export/usage.csv?${span}&group_by=model`)).split('\r\n');
  assert.equal(usageLines.length, 3 + 3);
  assert.match(usageLines[1]!, /^2026-05-04T18:30:00.000Z,2026-05-05T18:30:00.000Z,2026-05-05T00:00:00.000\+05:30,/);
  assert.match(usageLines.at(-2)!, /^total,,.*,1207,0$/);
  const costs = (await get(`/v1/export/costs.json?${span}&bucket_width=1h`)) as unknown as { totals: object };
  assert.deepEqual(costs.totals, { rows: 3, amount_microcents: 1_207 });
});

test('a reader who stops reading holds an export back, and leaves nothing behind', async (t) => {
  const { host, settle, owner } = await scene(t);
  for (let index = 0; index < 3_000; index++) await settle('acct_a', 1n, '2026-05-06T10:00:00Z');
  let asked = 0;
  const { repositories } = host.services.operations;
  const counted = new Proxy(repositories, {
    get: (target, name) => {
      if (name === 'listGenerations') asked++;
      return Reflect.get(target, name) as unknown;
    },
  });
  Object.assign(host.services.operations, { repositories: counted });
  const leaving = new AbortController();
  const response = await fetch(`${host.url}/v1/export/generations.json`, {
    headers: { authorization: `Bearer ${owner}` },
    signal: leaving.signal,
  });
  const reader = response.body!.getReader();
  await reader.read();
  leaving.abort();
  await assert.rejects(reader.read());
  const whole = await fetch(`${host.url}/v1/export/generations.json`, {
    headers: { authorization: `Bearer ${owner}` },
  });
  assert.equal(((await whole.json()) as Page).data.length, 3_000);
  assert.ok(asked >= 6, `${asked} pages of 500`);
  assert.deepEqual(host.failures, []);
});

test('limits and rates are those of the account, now and to come', async (t) => {
  const now = Date.parse('2026-05-20T12:00:00Z');
  const { host, get } = await scene(t, () => now);
  const { repositories } = host.services.operations;
  const pricing = {
    input: 5_000_000n,
    output: 20_000_000n,
    cacheRead: 1_000_000n,
  };
  const config = {
    server: { limits: { concurrencyPerAccountMax: 32 } },
    plans: [
      {
        name: 'team',
        quota: { requests: 1_000, windowMs: 24 * hourMs },
        requestsPerMinute: 60,
        tokensPerMinute: undefined,
        concurrencyMax: 8,
      },
    ],
    models: [
      { id: 'GLM', pricing, dedicatedTo: [], contextLength: 8192, maxOutputTokens: null },
      { id: 'theirs', pricing, dedicatedTo: ['acct_b'], contextLength: 1, maxOutputTokens: 1 },
      { id: 'other', pricing, dedicatedTo: [], contextLength: 4096, maxOutputTokens: 1024 },
    ],
  } as unknown as Config;
  Object.assign(host.services, { config: () => config });
  const limits = await get('/v1/limits');
  assert.deepEqual(
    [limits['plan_tier'], limits['quota'], limits['concurrent_requests'], limits['allowed_models']],
    [null, null, { limit: 32, source: 'server' }, null],
  );
  const glm = { model: 'GLM', context_length: 8192, max_output_tokens: null };
  assert.deepEqual(limits['models'], [glm, { model: 'other', context_length: 4096, max_output_tokens: 1024 }]);
  await repositories.planAccount({ accountId: 'acct_a', plan: 'team', at: now, changeId: uuid() });
  await repositories.allowAccount({ accountId: 'acct_a', models: ['glm'], at: now, changeId: uuid() });
  const planned = await get('/v1/limits');
  const quota = planned['quota'] as Record<string, number>;
  assert.deepEqual([quota['request_limit'], quota['used']], [1_000, 0]);
  assert.deepEqual(planned['models'], [glm]);
  await repositories.addLimitWindows({
    changes: [
      {
        subject: 'acct_a',
        kind: 'quota',
        lengthMs: 24 * hourMs,
        startsAt: windowStart('acct_a', 24 * hourMs, now),
        used: 17,
      },
    ],
  });
  const used = (await get('/v1/limits'))['quota'] as Record<string, number>;
  assert.deepEqual(used, { ...quota, used: 17 });
  assert.equal(quota['window_end']! - quota['window_start']!, 86_400);
  assert.deepEqual(planned['concurrent_requests'], { limit: 8, source: 'plan' });
  assert.equal((planned['requests_per_minute'] as { limit: number }).limit, 60);
  assert.equal(planned['tokens_per_minute'], null);

  const rates = { accountId: 'acct_a', modelId: 'glm', output: 9n, cacheRead: 1n };
  for (const [validFrom, validTo, input] of [
    [now - 5, null, 2n],
    [now + 3_600_000, now + 7_200_000, 3n],
  ] as const)
    await repositories.addAccountPrice({ price: { ...rates, validFrom, validTo, input }, at: now, changeId: uuid() });
  const prices = (await get('/v1/models/prices')) as unknown as Page;
  const shown = (input: number, output: number, cached: number) => ({
    input_microcents: input,
    output_microcents: output,
    cache_read_microcents: cached,
  });
  assert.deepEqual(prices.data, [
    {
      object: 'model_price',
      model: 'GLM',
      list: shown(5_000_000, 20_000_000, 1_000_000),
      now: { ...shown(2, 9, 1), source: 'account', until: null },
      upcoming: [{ ...shown(3, 9, 1), from: now / 1000 + 3600, until: now / 1000 + 7200 }],
    },
  ]);
});

test('of requests from before the retention there are sums, and the answers say so', async (t) => {
  const { host, settle, get, text, owner } = await scene(t);
  const { operations } = host.services;
  const { repositories } = operations;
  const dayMs = 24 * hourMs;
  const day = Math.floor(Date.now() / dayMs) * dayMs - 100 * dayMs;
  const at = (days: number, minutes = 0): string => new Date(day + days * dayMs + minutes * 60_000).toISOString();
  const old = await settle('acct_a', 5n, at(0, 620), { tags: '["red"]' });
  const refunded = await settle('acct_a', 7n, at(1, 620));
  const kept = await settle('acct_a', 11n, at(40, 620));
  const newest = await settle('acct_a', 13n, at(100));
  for (const accountId of ['acct_a', 'acct_b'])
    await repositories.closePeriod({
      ...{ accountId, closedUntil: null, until: day + 60 * dayMs, year: 2026, prefix: 'T-', at: day, invoices: [] },
    });
  const refund = (requestId: string) =>
    operate(
      { kind: 'refund_request', accountId: 'acct_a', requestId, microcents: undefined, reference: undefined },
      operations,
    );
  await refund(uuidText(refunded.requestId));
  await repositories.recomputeUsageHours({ now: Date.now() });
  const month = `start_time=${day / 1000}&end_time=${day / 1000 + (50 * dayMs) / 1000}`;
  const reports = [`/v1/usage?${month}&limit=60`, `/v1/costs?${month}&limit=60&group_by=tag&group_by=model`];
  const asked = async () => await Promise.all(reports.map((path) => get(path)));
  const before = await asked();
  assert.equal((await get('/v1/generations'))['details_since'], null);

  const since = day + 20 * dayMs;
  await operate({ kind: 'prune_usage', before: since + 5000 }, operations);
  for (const stage of ['hidden', 'removed']) {
    assert.deepEqual(await asked(), before, stage);
    const listed = (await get('/v1/generations')) as { data: { id: string }[]; details_since: number };
    assert.deepEqual(
      listed.data.map(({ id }) => id),
      [newest, kept].map(({ requestId }) => uuidText(requestId)),
      stage,
    );
    assert.equal(listed.details_since, since / 1000);
    for (const { requestId, publicId } of [old, refunded])
      for (const id of [uuidText(requestId), publicId]) {
        const { status, body } = await host.ask('GET', `/v1/generation?id=${id}`, { key: owner });
        assert.equal(status, 404);
        assert.match(body, new RegExp(`before ${new Date(since).toISOString()} are not kept`));
      }
    await get(`/v1/generation?id=${uuidText(kept.requestId)}`);
    const exported = await text(`/v1/export/generations.csv?${month}`);
    assert.ok(exported.includes(uuidText(kept.requestId)) && !exported.includes(uuidText(old.requestId)));
    await assert.rejects(refund(uuidText(old.requestId)), /no request .* since .*only sums are kept/);
    let after: RemovalCursor | undefined;
    for (let state = 'more'; state === 'more';)
      ({ state, next: after } = await repositories.removeUsage({ now: Date.now(), after }));
  }
  // Minutes are gone; where an hour has none of them, or all of its rows, they are known.
  const minutes = (from: string) =>
    `/v1/usage?bucket_width=1m&start_time=${seconds(from)}&end_time=${seconds(from) + 3600}`;
  const { status, body } = await host.ask('GET', minutes(at(0, 600)), { key: owner });
  assert.equal(status, 400);
  assert.match(body, /kept by the hour/);
  assert.match(body, /"param":"start_time"/);
  await get(minutes(at(1, 600)));
  await get(minutes(at(2, 600)));
  await get(minutes(at(40, 600)));
});

test('errors are counted in the buckets of the reports, and refused requests are listed, for those who may see them', async (t) => {
  const { host, get, owner } = await scene(t, () => Date.parse('2026-05-05T12:00:00Z'));
  const { repositories } = host.services.operations;
  const at = Date.parse('2026-05-05T10:00:00Z');
  const keyId = 'key_ownedByNobody';
  const count = { accountId: 'acct_a', minute: at, keyId, modelId: 'demo', code: 'insufficient_credits' };
  const row = (index: number) => ({
    ...{ requestId: uuid(), publicId: `req_${index}`, clientId: null, at: at + index, keyId, model: 'demo' },
    ...{ accountId: index === 0 ? 'acct_b' : 'acct_a', code: 'insufficient_credits', message: 'No credit.' },
  });
  await repositories.addErrors({
    counts: [
      { ...count, refusals: 7, failures: 0 },
      { ...count, minute: at + 3_600_000, modelId: '', code: 'http_403', refusals: 1, failures: 0 },
      { ...count, minute: at + 3_600_000, code: 'backend_timeout', refusals: 0, failures: 2 },
      { ...count, accountId: 'acct_b', refusals: 100, failures: 0 },
    ],
    refused: Array.from({ length: 30 }, (_, index) => row(index)),
  });
  const sums = async (query: string, key = owner) =>
    (
      (await get(`/v1/errors?start_time=${at / 1000}&end_time=${at / 1000 + 7200}&bucket_width=1h${query}`, key)) as {
        data: { results: Record<string, unknown>[] }[];
      }
    ).data.map(({ results }) => results);
  const result = (refused: number, failed: number, of: Record<string, string | null> = {}) => ({
    ...{ num_refused_requests: refused, num_failed_requests: failed },
    ...{ model: null, api_key_id: null, user_id: null, error_code: null, ...of },
  });
  assert.deepEqual(await sums(''), [[result(7, 0)], [result(1, 2)]]);
  assert.deepEqual(await sums('&error_code=http_403'), [[], [result(1, 0)]]);
  assert.deepEqual(await sums('&group_by=model&model=demo'), [
    [result(7, 0, { model: 'demo' })],
    [result(0, 2, { model: 'demo' })],
  ]);
  // A viewer's management key sees the account's sums, and of keys only those without a person: here, none is stored.
  const viewer = await host.key('acct_a', 'viewer');
  assert.deepEqual(await sums('', viewer), await sums(''));
  assert.deepEqual(await sums('&group_by=api_key_id', viewer), [[], []]);
  assert.deepEqual(await sums('&group_by[]=api_key_id&group_by[]=error_code'), [
    [result(7, 0, { api_key_id: keyId, error_code: 'insufficient_credits' })],
    (await sums('&group_by[]=api_key_id&group_by[]=error_code'))[1],
  ]);
  const first = (await get('/v1/refusals?limit=20')) as { data: Record<string, unknown>[]; next_after: string };
  const second = (await get(`/v1/refusals?limit=20&after=${first.next_after}`)) as { data: Record<string, unknown>[] };
  const ids = [...first.data, ...second.data].map(({ request_id: id }) => id);
  assert.deepEqual(
    ids,
    Array.from({ length: 29 }, (_, index) => `req_${29 - index}`),
  );
  const [found] = ((await get('/v1/refusals?id=req_5')) as { data: Record<string, unknown>[] }).data;
  assert.deepEqual(
    [found?.['status'], found?.['message'], found?.['remedy']],
    [402, 'No credit.', errorTable.insufficient_credits.remedy],
  );
  assert.deepEqual(((await get('/v1/refusals?error_code=http_403')) as { data: unknown[] }).data, []);
  assert.deepEqual(((await get('/v1/refusals', viewer)) as { data: unknown[] }).data, []);
});
