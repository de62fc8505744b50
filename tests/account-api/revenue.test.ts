/** Revenue, cost and margin across accounts: what the rows of usage add up to, at the costs of the configuration. */
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';

import { TestService, until } from '../support/service.ts';
import { Visitor } from '../support/visitor.ts';

const script =
  'scripts: [ { prompt_tokens: 100, usage: { cached_tokens: 40 }, say: [ { text: [ "word " ] } ], repeat: 20 } ]';
const service = new TestService({
  config: `models:
  - id: ours
    context_length: 4096
    pricing: { input_dollars_per_million: 3, output_dollars_per_million: 15, cache_read_dollars_per_million: 0.3 }
    costs: { input_dollars_per_million: 2, output_dollars_per_million: 10.5 }
    backends: [ { engine: scripted, ${script} } ]
  - id: free-of-costs
    context_length: 4096
    pricing: { input_dollars_per_million: 1, output_dollars_per_million: 1 }
    backends: [ { engine: scripted, ${script} } ]
`,
  firstCreditCents: '500',
});
const operator = new Visitor(service);
const chat = async (model: string, key = service.key): Promise<void> => {
  const answer = await service.chat({ model, messages: [{ role: 'user', content: 'hi' }] }, { key });
  assert.equal(answer.status, 200, await answer.text());
};

/** Microcents of an answer: 60 uncached, 40 cached and 20 written tokens. */
const charged = 60 * 300 + 40 * 30 + 20 * 1_500;
/** Without a price of cached tokens they cost what others do. */
const cost = 100 * 200 + 20 * 1_050;

let other = '';
before(async () => {
  await service.start();
  await operator.becomeOwner();
  const { body } = await operator.ask('POST', '/v1/admin/accounts', {
    name: 'Other',
    credit_cents: 100,
    key_name: 'k',
  });
  other = body.id;
  await chat('ours');
  await chat('ours', body.key);
  await chat('ours', body.key);
  await chat('free-of-costs');
  const rows = async () => (await operator.get('/v1/admin/revenue')).data;
  await until(
    async () => (await rows()).reduce((sum: number, row: { requests: number }) => sum + row.requests, 0) === 4,
  );
});
after(() => service.dispose());

test('by model: the largest revenue first, the cost by what is configured, null where nothing is', async () => {
  const { data } = await operator.get('/v1/admin/revenue');
  assert.deepEqual(
    data.map(
      ({ group, requests, revenue_microcents: revenue, cost_microcents: paid, margin_microcents: left }: never) => [
        group,
        requests,
        revenue,
        paid,
        left,
      ],
    ),
    [
      ['ours', 3, 3 * charged, 3 * cost, 3 * (charged - cost)],
      ['free-of-costs', 1, 12_000, null, null],
    ],
  );
});

test('by account, by tier and by month the same requests add up to the same', async () => {
  const { data } = await operator.get('/v1/admin/revenue?by=account');
  assert.deepEqual(
    data.map(({ group, name, revenue_microcents: revenue, cost_microcents: paid }: never) => [
      group,
      name,
      revenue,
      paid,
    ]),
    [
      [other, 'Other', 2 * charged, 2 * cost],
      [service.accountId, 'first account', charged + 12_000, null],
    ],
  );
  const { data: tiers } = await operator.get('/v1/admin/revenue?by=tier');
  assert.deepEqual(
    tiers.map(({ group, requests, revenue_microcents: revenue, cost_microcents: paid }: never) => [
      group,
      requests,
      revenue,
      paid,
    ]),
    [['default', 4, 3 * charged + 12_000, null]],
  );
  const { data: months } = await operator.get('/v1/admin/revenue?by=month');
  const month = new Date().toISOString().slice(0, 7);
  assert.deepEqual(
    months.map(({ group, requests, revenue_microcents: revenue }: never) => [group, requests, revenue]),
    [[month, 4, 3 * charged + 12_000]],
  );
  const { data: before } = await operator.get('/v1/admin/revenue?month=2020-01');
  assert.deepEqual(before, []);
});

test('the export and the command say the same', async () => {
  const { body } = await operator.ask('GET', '/v1/admin/revenue.csv');
  const lines = String(body).trim().split(/\r?\n/);
  assert.equal(lines[1], `ours,,3,300,120,60,${3 * charged},0,${3 * cost},${3 * (charged - cost)}`);
  assert.match(lines.at(-1)!, new RegExp(`^total,,4,400,160,80,${3 * charged + 12_000},0`));
  const { stdout } = await service.command('revenue', '--json');
  const { data } = await operator.get('/v1/admin/revenue');
  assert.deepEqual(
    JSON.parse(stdout),
    data.map(({ object: _, ...row }: { object: string }) => row),
  );
  assert.match((await service.command('revenue')).stdout, /ours\s+–\s+3\s+300\s+120\s+60/);
  for (const [by, group] of [
    ['tier', 'default'],
    ['ending', 'finished'],
  ] as const) {
    const rows = JSON.parse((await service.command('costs', '--by', by, '--json')).stdout) as Record<string, unknown>[];
    assert.deepEqual(
      rows.map((row) => [row[by], row['requests'], row['cost_microcents']]),
      [[group, 4, 3 * charged + 12_000]],
    );
  }
});
