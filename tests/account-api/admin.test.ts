/** What the operator of the server does over the API, and what an account does with itself; all of it is in the audit log (docs/operator.md). */
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';

import { TestLedger } from '../support/test-ledger.ts';
import { noFeatures, scriptedModel, TestService, until } from '../support/service.ts';
import { owner as person, Visitor } from '../support/visitor.ts';
import { report } from '../support/workers.ts';

const service = new TestService({
  config: `plans: [{ name: pro, max_concurrency: 3 }]
${scriptedModel(
  `- { when: { last_text: endless }, say: [{ text: ["word "] }], repeat: 2000, pace_ms: 100 }
- { say: [{ text: "one two three" }] }`,
  { settings: `${noFeatures}\ndefaults: { temperature: 0.4 }` },
)}`,
});
let operator = '';
let owner = '';
before(async () => {
  await service.start();
  operator = await managementKey('owner', service.accountId, true);
  owner = await managementKey('owner', service.accountId, false);
});
after(async () => {
  await service.verify();
  await service.dispose();
});

async function managementKey(role: 'owner' | 'billing' | 'viewer', accountId: string, isOperator: boolean) {
  const input = { kind: 'create_key', accountId, name: `${role} key`, expiresAt: undefined, role, isOperator } as const;
  const answer = await report(service, input);
  return answer.key;
}

interface Answer {
  readonly status: number;
  // The bodies of all routes; each test says what it expects.
  readonly body: any; // oxlint-disable-line typescript/no-explicit-any
}

async function api(
  method: string,
  path: string,
  { json, key = operator, once }: { readonly json?: object; readonly key?: string; readonly once?: string } = {},
): Promise<Answer> {
  const answer = await fetch(service.accountUrl + path, {
    method,
    headers: {
      authorization: `Bearer ${key}`,
      ...(json === undefined ? {} : { 'content-type': 'application/json' }),
      ...(once === undefined ? {} : { 'idempotency-key': once }),
    },
    ...(json === undefined ? {} : { body: JSON.stringify(json) }),
  });
  return { status: answer.status, body: await answer.json() };
}

async function newAccount(name = 'another'): Promise<string> {
  const { status, body } = await api('POST', '/v1/admin/accounts', { json: { name } });
  assert.equal(status, 201);
  return body.id as string;
}

const ask = { model: 'demo', messages: [{ role: 'user', content: 'hi' }] };

test('only an operator does what an operator does', async () => {
  for (const [method, path, json] of [
    ['GET', '/v1/admin/accounts', undefined],
    ['POST', '/v1/admin/accounts', { name: 'x' }],
    ['POST', '/v1/admin/credits', { account_id: service.accountId, type: 'grant', amount_cents: 1 }],
    ['POST', '/v1/admin/suspensions', { account_id: service.accountId, reason: 'x' }],
    ['GET', '/v1/admin/audit', undefined],
    ['GET', '/v1/admin/models', undefined],
    ['GET', '/v1/admin/backends', undefined],
    ['GET', '/v1/admin/system', undefined],
  ] as const) {
    const { status, body } = await api(method, path, { key: owner, ...(json === undefined ? {} : { json }) });
    assert.deepEqual([status, body.error.code], [403, 'http_403'], path);
  }
});

test('a customer is brought in at once: account, owner, credit and key', async () => {
  const json = { name: 'Ada & Sons', owner_email: 'Ada@Example.org', credit_cents: 1_250, key_name: 'first' };
  const { status, body } = await api('POST', '/v1/admin/accounts', { json });
  assert.equal(status, 201, JSON.stringify(body));
  assert.equal(body.balance_microcents, 1_250_000_000);
  assert.match(body.key, /^tkh_/);
  const { email, url, is_mailed: isMailed } = body.owner_invite;
  assert.deepEqual([email.toLowerCase(), isMailed], ['ada@example.org', false]);
  assert.ok(url.startsWith(`${service.accountUrl}/invitation#`), url);
  const models = await fetch(`${service.url}/v1/models`, { headers: { authorization: `Bearer ${body.key}` } });
  assert.equal(models.status, 200);
  const later = await api('POST', `/v1/admin/accounts/${body.id}/invites`, { json: { email: 'ada@example.org' } });
  assert.equal(later.status, 201);
  assert.notEqual(later.body.url, url);
  const audit = await api('GET', `/v1/admin/audit?account_id=${body.id}`);
  const actions = audit.body.data.map(({ action }: { readonly action: string }) => action);
  for (const action of ['account.create', 'credit.move', 'key.create', 'invite.create'])
    assert.ok(actions.includes(action), `${action} in ${actions.join(', ')}`);
  for (const wrong of [{ owner_email: 'nobody' }, { credit_cents: 0 }, { key_name: '' }]) {
    const refused = await api('POST', '/v1/admin/accounts', { json: { name: 'x', ...wrong } });
    assert.ok([400, 422].includes(refused.status), JSON.stringify(wrong));
  }
  assert.equal(
    (await api('POST', '/v1/admin/accounts/acct_nothing/invites', { json: { email: 'a@b.co' } })).status,
    404,
  );
});

test('an account is made, changed and listed with what it has', async () => {
  const id = await newAccount('Robots Ltd');
  const rates = { requests_per_day: 9, cents_per_day: 12 };
  const tiers = { service_tier: 'flex', service_tiers: ['flex'] };
  const json = {
    ...{ plan_tier: 'pro', max_concurrency: 7, credit_limit_cents: 500, allowed_models: ['demo'] },
    ...{ ...rates, ...tiers },
  };
  const changed = await api('PATCH', `/v1/admin/accounts/${id}`, { json });
  assert.equal(changed.status, 200);
  assert.deepEqual(json, Object.fromEntries(Object.keys(json).map((field) => [field, changed.body[field]])));
  const cleared = await api('PATCH', `/v1/admin/accounts/${id}`, {
    json: { plan_tier: null, max_concurrency: null, allowed_models: null, service_tier: null },
  });
  assert.deepEqual(
    [
      cleared.body.plan_tier,
      cleared.body.max_concurrency,
      cleared.body.allowed_models,
      cleared.body.credit_limit_cents,
      cleared.body.service_tier,
      cleared.body.service_tiers,
    ],
    [null, null, null, 500, null, ['flex']],
  );
  const limits = [{ model: 'nothing', cents_per_day: 1 }];
  for (const wrong of [{ plan_tier: 'gold' }, { allowed_models: ['nothing'] }, { limits_by_model: limits }]) {
    const answer = await api('PATCH', `/v1/admin/accounts/${id}`, { json: { name: 'changed', ...wrong } });
    assert.equal(answer.status, 400);
  }
  const alias = { name: 'Ours', model: 'demo', listed: true, answers: 'alias' };
  const named = await api('PATCH', `/v1/admin/accounts/${id}`, { json: { aliases: [alias] } });
  assert.deepEqual([named.status, named.body.aliases], [200, [alias]]);
  for (const [wrong, param] of [
    [{ name: 'Demo' }, 'aliases[1]'],
    [{ name: 'x', model: 'nothing' }, 'aliases[1]'],
    [{ name: 'OURS' }, 'aliases'],
  ] as const) {
    const json = { name: 'changed', aliases: [alias, { ...alias, ...wrong }] };
    const answer = await api('PATCH', `/v1/admin/accounts/${id}`, { json });
    assert.deepEqual([answer.status, answer.body.error.param], [400, param], JSON.stringify(wrong));
  }
  const none = await api('PATCH', `/v1/admin/accounts/${id}`, { json: { aliases: [] } });
  assert.deepEqual(none.body.aliases, []);
  const listed = await api('GET', '/v1/admin/accounts?limit=1');
  assert.deepEqual([listed.body.data[0].id, listed.body.data[0].name], [id, 'Robots Ltd'], 'newest first');
  assert.equal(listed.body.has_more, true);
  const next = await api('GET', `/v1/admin/accounts?limit=100&after=${listed.body.next_after}`);
  assert.ok(next.body.data.some((account: { readonly id: string }) => account.id === service.accountId));
  for (const unknown of ['acct_nothing', 'house_cash'])
    assert.equal((await api('GET', `/v1/admin/accounts/${unknown}`)).status, 404);
});

test('what is on hold is shown while it is', async () => {
  const stop = new AbortController();
  const streamed = await service.chat(
    { model: 'demo', stream: true, messages: [{ role: 'user', content: 'endless' }] },
    { signal: stop.signal },
  );
  assert.equal(streamed.status, 200);
  const held = async (path: string, key: string): Promise<number> =>
    (await api('GET', path, { key })).body.held_microcents;
  await until(async () => (await held(`/v1/admin/accounts/${service.accountId}`, operator)) > 0);
  stop.abort();
  await until(async () => (await held('/v1/account', owner)) === 0);
});

test('credit moves once for each key, exactly, and not out of what is not there', async () => {
  const id = await newAccount();
  const credits = (once: string | undefined, json: object): Promise<Answer> =>
    api('POST', '/v1/admin/credits', { json: { account_id: id, ...json }, ...(once === undefined ? {} : { once }) });
  assert.equal((await credits(undefined, { type: 'grant', amount_cents: 100 })).body.error.param, 'Idempotency-Key');
  const first = await credits('one', { type: 'grant', amount_cents: 100, reason: 'welcome' });
  assert.deepEqual(
    [first.status, first.body.moved_microcents, first.body.balance_microcents, first.body.again],
    [200, 100_000_000, 100_000_000, false],
  );
  const again = await credits('one', { type: 'grant', amount_cents: 100, reason: 'welcome' });
  assert.deepEqual([again.body.again, again.body.balance_microcents], [true, 100_000_000]);
  assert.equal((await credits('one', { type: 'grant', amount_cents: 200 })).status, 409);
  assert.equal((await credits('two', { type: 'payback', amount_cents: 101 })).status, 409);
  assert.equal((await credits('three', { type: 'adjust', amount_microcents: -1 })).body.balance_microcents, 99_999_999);
  assert.equal((await credits('four', { type: 'adjust', amount_microcents: 1 })).body.balance_microcents, 100_000_000);
  assert.equal((await credits('five', { type: 'expire', amount_cents: 40 })).body.balance_microcents, 60_000_000);
  assert.equal((await credits('six', { type: 'chargeback', amount_cents: 60 })).body.balance_microcents, 0);
  for (const wrong of [
    { type: 'grant', amount_cents: 0 },
    { type: 'grant', amount_cents: -1 },
    { type: 'grant' },
    { type: 'grant', amount_cents: 1, amount_microcents: 1 },
    { type: 'refund_request' },
  ])
    assert.equal((await credits(crypto.randomUUID(), wrong)).status, 400, JSON.stringify(wrong));
  const both = await Promise.all([1, 2, 3].map(() => credits('seven', { type: 'grant', amount_cents: 5 })));
  assert.deepEqual(both.map(({ body }) => body.again).toSorted(), [false, true, true]);
});

test('a preview of rates is what they would have charged, and rates hold from then on', async () => {
  const ledger = new TestLedger(service);
  const rows = (await ledger.everyRow()).filter(({ costMicrocents }) => costMicrocents > 0n);
  assert.ok(rows.length > 0);
  const rates = { input_microcents_per_million: 9_000_000, output_microcents_per_million: 70_000_000 };
  const json = { account_id: service.accountId, model: 'DEMO', ...rates };
  const { status, body } = await api('POST', '/v1/admin/account_prices/preview', { json });
  assert.equal(status, 200);
  const charged = rows.reduce((sum, row) => sum + row.costMicrocents, 0n);
  const parts = rows.reduce((sum, row) => sum + row.promptTokens * 9_000_000 + row.completionTokens * 70_000_000, 0);
  assert.deepEqual(
    [body.requests, body.charged_microcents, body.would_be_microcents],
    [rows.length, Number(charged), Math.ceil(parts / 1_000_000)],
  );
  assert.equal((await api('GET', `/v1/admin/account_prices?account_id=${service.accountId}`)).body.data.length, 0);
  const set = await api('POST', '/v1/admin/account_prices', { json });
  assert.equal(set.status, 201);
  const answer = await service.chat(ask);
  await answer.arrayBuffer();
  const row = await ledger.row(answer.headers.get('x-request-id')!);
  assert.deepEqual([row.inputPrice, row.outputPrice], [9_000_000n, 70_000_000n]);
  const listed = await api('GET', `/v1/admin/account_prices?account_id=${service.accountId}`);
  assert.equal(listed.body.data[0].cache_read_microcents_per_million, 9_000_000);
  const ofModel = await api('GET', '/v1/admin/account_prices?model=DEMO');
  assert.deepEqual(ofModel.body.data, listed.body.data);
  // Who has own rates pays no list price.
  const { account_id: _, ...listPrice } = json;
  const everybody = async (): Promise<number> =>
    (await api('POST', '/v1/admin/account_prices/preview', { json: listPrice })).body.requests;
  assert.equal(await everybody(), 0);
  const removed = await api('DELETE', `/v1/admin/account_prices?account_id=${service.accountId}&model=demo`);
  assert.equal(removed.body.ended, 1);
  assert.equal(await everybody(), rows.length + 1);
});

test('multiples of tiers are previewed and set for one model or all, and only in the bounds of a downgrade', async () => {
  const ledger = new TestLedger(service);
  const rows = (await ledger.everyRow()).filter(({ costMicrocents }) => costMicrocents > 0n);
  const of = { account_id: service.accountId, model: '*' };
  const preview = async (json: object): Promise<Answer> => api('POST', '/v1/admin/account_prices/preview', { json });
  const tiers = { priority: 1.2345, flex: 0, batch: 1 };
  const tried = await preview({ ...of, tier_multiples: tiers });
  // All of it was in `default`, whose price they leave as it is.
  assert.deepEqual([tried.status, tried.body.requests], [200, rows.length]);
  for (const wrong of [
    { tier_multiples: { priority: 0.9999 } },
    { tier_multiples: { flex: 1.0001 } },
    { tier_multiples: { batch: -1 } },
    { tier_multiples: { priority: 1.00001 } },
    { tier_multiples: { default: 1 } },
    { input_microcents_per_million: 1, output_microcents_per_million: 1 },
    { model: 'demo', input_microcents_per_million: 1 },
    { model: 'nowhere', tier_multiples: tiers },
    {},
  ])
    for (const path of ['/v1/admin/account_prices', '/v1/admin/account_prices/preview']) {
      const { status } = await api('POST', path, { json: { ...of, ...wrong } });
      assert.ok([400, 422].includes(status), `${path}: ${status} ${JSON.stringify(wrong)}`);
    }
  assert.equal((await preview({ model: '*', tier_multiples: tiers })).status, 400);
  const set = await api('POST', '/v1/admin/account_prices', { json: { ...of, tier_multiples: tiers } });
  assert.equal(set.status, 201, JSON.stringify(set.body));
  assert.deepEqual(
    [set.body.model, set.body.tier_multiples, set.body.input_microcents_per_million],
    ['*', tiers, null],
  );
  const { data } = (await api('GET', `/v1/admin/account_prices?account_id=${service.accountId}`)).body;
  assert.deepEqual(data, [set.body]);
  const removed = await api('DELETE', `/v1/admin/account_prices?account_id=${service.accountId}&model=*`);
  assert.equal(removed.body.ended, 1);
});

test('a request of any account is found by its id, and refunded once, in whole or in part', async () => {
  const customer = await newAccount('customer');
  await api('POST', '/v1/admin/credits', {
    json: { account_id: customer, type: 'grant', amount_cents: 100 },
    once: 'customer',
  });
  const { key } = await report(service, {
    kind: 'create_key',
    accountId: customer,
    name: 'theirs',
    expiresAt: undefined,
  });
  for (const { accountId, asked, part } of [
    { accountId: service.accountId, asked: {}, part: undefined },
    { accountId: customer, asked: { key }, part: 3 },
  ]) {
    const answer = await service.chat(ask, asked);
    assert.equal(answer.status, 200, await answer.text());
    const receipts = async (id: string) => (await api('GET', `/v1/admin/requests/${id}`)).body.data ?? [];
    let found: any[] = []; // oxlint-disable-line typescript/no-explicit-any
    await until(async () => (found = await receipts(answer.headers.get('x-request-id')!)).length > 0);
    const [receipt, ...others] = found;
    assert.equal(others.length, 0);
    assert.deepEqual(await receipts(receipt.id), [receipt]);
    const cost = receipt.total_cost_microcents;
    assert.ok(cost > 3);
    assert.deepEqual([receipt.account_id, receipt.refunded_microcents], [accountId, 0]);
    const refund = (amount: number | undefined, reason: string) =>
      api('POST', '/v1/admin/credits', {
        once: crypto.randomUUID(),
        json: {
          account_id: accountId,
          type: 'refund_request',
          request_id: receipt.id,
          ...(amount === undefined ? {} : { amount_microcents: amount }),
          reason,
        },
      });
    assert.equal((await refund(cost + 1, 'more than it cost')).status, 400);
    const at = async () => (await api('GET', `/v1/admin/accounts/${accountId}`)).body.balance_microcents;
    const before = await at();
    const all = await Promise.all(['one', 'two', 'three'].map((reason) => refund(part, reason)));
    // The same refund again moves nothing, whatever the reason; another one is refused.
    assert.deepEqual(all.map(({ body }) => body.again).toSorted(), [false, true, true]);
    assert.equal((await refund(1, 'another amount')).status, 409);
    assert.equal(await at(), before + (part ?? cost));
    assert.equal((await receipts(receipt.id))[0].refunded_microcents, part ?? cost);
  }
  assert.equal((await api('GET', '/v1/admin/requests/req_000000000000')).status, 404);
});

test('a suspended account is refused at once, with a reason that stays in the log', async () => {
  const id = await newAccount();
  const made = await report(service, { kind: 'create_key', accountId: id, name: 'x', expiresAt: undefined });
  const models = () => fetch(`${service.url}/v1/models`, { headers: { authorization: `Bearer ${made.key}` } });
  assert.equal((await models()).status, 200);
  const suspended = await api('POST', '/v1/admin/suspensions', { json: { account_id: id, reason: 'stolen card' } });
  assert.equal(suspended.body.status, 'suspended');
  assert.equal((await models()).status, 401);
  assert.equal((await api('DELETE', `/v1/admin/suspensions/${id}?reason=${encodeURIComponent('paid')}`)).status, 200);
  assert.equal((await models()).status, 200);
  const { body } = await api('GET', `/v1/admin/suspensions?account_id=${id}`);
  assert.deepEqual(
    body.data.map((entry: { action: string; asked: { reason: string } }) => [entry.action, entry.asked.reason]),
    [
      ['account.revive', 'paid'],
      ['account.suspend', 'stolen card'],
    ],
  );
});

test('models with their list prices, and backends with their states', async () => {
  const models = await api('GET', '/v1/admin/models');
  assert.deepEqual(
    models.body.data.map((model: { id: string; input_microcents_per_million: number }) => [
      model.id,
      model.input_microcents_per_million,
    ]),
    [['demo', 5_000_000]],
  );
  assert.deepEqual(models.body.data[0].defaults, { temperature: 0.4 });
  const backends = await api('GET', '/v1/admin/backends');
  assert.deepEqual(
    backends.body.data.map(({ model, state, engine, url, ejected, running }: Record<string, unknown>) => ({
      ...{ model, state, engine, url, ejected, running },
    })),
    [{ model: 'demo', state: 'ready', engine: 'scripted', url: null, ejected: false, running: 0 }],
  );
});

test('the servers of backends are asked, where there are any, and mail is listed by its state', async () => {
  const checks = await api('POST', '/v1/admin/backends/checks');
  assert.deepEqual([checks.status, checks.body.data], [200, []], 'a script is no server');
  const outbox = (state: string): Promise<Answer> => api('GET', `/v1/admin/outbox?state=${state}`);
  assert.deepEqual([(await outbox('sent')).body.data, (await outbox('lost')).status], [[], 422]);
});

test('the figures of the system are those of /metrics, while a request runs too', async () => {
  const stop = new AbortController();
  const streamed = await service.chat(
    { model: 'demo', stream: true, messages: [{ role: 'user', content: 'endless' }] },
    { signal: stop.signal },
  );
  assert.equal(streamed.status, 200);
  const [system, backends, metrics] = await Promise.all([
    api('GET', '/v1/admin/system'),
    api('GET', '/v1/admin/backends'),
    fetch(`${service.accountUrl}/metrics`).then((answer) => answer.text()),
  ]);
  const metric = (series: string): number =>
    Number(
      metrics
        .split('\n')
        .find((line) => line.startsWith(`${series} `))
        ?.split(' ')[1],
    );
  const { body } = system;
  assert.deepEqual(
    [
      body.requests_running,
      body.holds_open,
      body.held_microcents,
      body.workers,
      backends.body.data[0].running,
      backends.body.data[0].model_waiting,
    ],
    [
      metric('tokenhouse_requests_running'),
      metric('tokenhouse_holds_open'),
      metric('tokenhouse_held_microcents'),
      metric('tokenhouse_workers'),
      metric('tokenhouse_backend_running{model="demo",backend="scripted"}'),
      metric('tokenhouse_model_waiting{model="demo",tier="default"}'),
    ],
  );
  stop.abort();
  assert.ok(body.requests_running === 1 && body.held_microcents > 0, JSON.stringify(body));
  assert.deepEqual(
    [body.node, body.stores.database, body.mail, body.plans, body.configuration.is_in_force],
    [process.versions.node, 'sqlite', 'outbox', ['pro'], true],
  );
  assert.ok(body.stores.database_bytes > 0 && body.stores.free_bytes > 0 && body.resident_memory_bytes > 0);
  assert.ok(body.jobs.some(({ name }: { readonly name: string }) => name === 'usage_hours'));
});

test('an account is found by a part of its name, of its id, or of an address; its members and movements are shown', async () => {
  await new Visitor(service).becomeOwner();
  const id = await newAccount('50%_of "Löwen"');
  const found = async (search: string): Promise<readonly string[]> => {
    const { status, body } = await api('GET', `/v1/admin/accounts?limit=100&search=${encodeURIComponent(search)}`);
    assert.equal(status, 200);
    return body.data.map((account: { readonly id: string }) => account.id);
  };
  assert.deepEqual(await found('0%_OF'), [id]);
  assert.deepEqual(await found(id.slice(6).toUpperCase()), [id]);
  // Neither is a pattern.
  assert.deepEqual(await found('50_'), []);
  assert.deepEqual(await found('\\'), []);
  const [address] = person.email.split('@');
  assert.deepEqual(await found(`${address!.toUpperCase()}@`), [service.accountId]);
  const members = await api('GET', `/v1/admin/accounts/${service.accountId}/members`);
  assert.deepEqual(
    members.body.data.map(({ email, role }: Record<string, unknown>) => [email, role]),
    [[person.email, 'owner']],
  );
  const { body: account } = await api('GET', `/v1/admin/accounts/${service.accountId}`);
  const { body: credits } = await api('GET', '/v1/credits', { key: owner });
  assert.ok(account.spent_microcents > 0);
  assert.deepEqual(
    [account.spent_microcents, account.available_microcents, account.held_microcents, account.held_requests],
    [credits.spent_microcents, credits.available_microcents, credits.held_microcents, credits.held_requests],
  );
  const [own, ofServer] = await Promise.all([
    api('GET', '/v1/ledger', { key: owner }),
    api('GET', `/v1/admin/accounts/${service.accountId}/ledger`),
  ]);
  assert.ok(own.body.data.length > 1);
  assert.deepEqual(ofServer.body, own.body);
  for (const part of ['ledger', 'members'])
    for (const unknown of ['acct_nothing', 'house_cash'])
      assert.equal((await api('GET', `/v1/admin/accounts/${unknown}/${part}`)).status, 404);
});

type Zoned = { readonly time_zone: string } | null;

test('an account names itself, says to whom its invoices go, and bounds what it spends', async () => {
  const billing = {
    legal_name: 'Robots GmbH',
    address_lines: ['Ring 1', '10115 Berlin'],
    country: 'DE',
    tax_id: 'DE 123456789',
    tax_status: 'standard',
    invoice_email: 'billing@example.com',
  };
  const changed = await api('PATCH', '/v1/account', { key: owner, json: { name: 'Robots', billing } });
  assert.deepEqual([changed.status, changed.body.name, changed.body.billing], [200, 'Robots', billing]);
  const part = await api('PATCH', '/v1/account', { key: owner, json: { billing: { tax_id: null } } });
  assert.deepEqual(part.body.billing, { ...billing, tax_id: null });
  for (const wrong of [
    { country: 'de' },
    { country: 'UK' },
    { country: 'ZZ' },
    { invoice_email: 'Robots <a@b.c>' },
    { invoice_email: 'a@b.c\r\nbcc: x@y.z' },
    { tax_id: '<script>' },
  ])
    assert.equal((await api('PATCH', '/v1/account', { key: owner, json: { billing: wrong } })).status, 400);
  for (const status of ['none', null, 5])
    assert.equal(
      (await api('PATCH', '/v1/account', { key: owner, json: { billing: { tax_status: status } } })).status,
      422,
    );
  // Reverse charge is what a customer with a VAT id says of themselves; an exemption is entered by an operator.
  const tax = async (change: object, as: 'customer' | 'operator') => {
    const path = as === 'customer' ? '/v1/account' : `/v1/admin/accounts/${service.accountId}`;
    const answer = await api('PATCH', path, {
      ...(as === 'customer' ? { key: owner } : {}),
      json: { billing: change },
    });
    return answer.status === 200 ? answer.body.billing.tax_status : [answer.status, answer.body.error.param];
  };
  const reverse = { tax_status: 'reverse_charge' };
  const refusal = [400, 'billing.tax_status'];
  assert.deepEqual(await tax(reverse, 'customer'), refusal, 'no tax id');
  assert.deepEqual(await tax({ ...reverse, country: 'FR', tax_id: 'DE123456789' }, 'customer'), refusal);
  assert.equal(await tax({ ...reverse, country: 'FR', tax_id: 'FR 12 345678901' }, 'customer'), 'reverse_charge');
  assert.deepEqual(await tax({ tax_id: null }, 'customer'), refusal, 'what it rests on is taken away');
  assert.deepEqual(await tax({ country: 'CH' }, 'customer'), refusal);
  assert.equal(await tax({ country: 'CH', tax_id: 'CHE-123.456.789' }, 'operator'), 'reverse_charge');
  assert.equal(await tax({ legal_name: 'Robots AG' }, 'customer'), 'reverse_charge', 'an operator has judged it');
  assert.deepEqual(await tax({ tax_status: 'exempt' }, 'customer'), [403, 'billing.tax_status']);
  assert.equal(await tax({ tax_status: 'exempt' }, 'operator'), 'exempt');
  assert.equal(await tax({ tax_status: 'exempt', country: 'DE' }, 'customer'), 'exempt');
  assert.equal(await tax({ tax_status: 'standard' }, 'customer'), 'standard');
  const viewer = await managementKey('viewer', service.accountId, false);
  assert.equal((await api('PATCH', '/v1/account', { key: viewer, json: { name: 'x' } })).status, 403);
  const payer = await managementKey('billing', service.accountId, false);
  assert.equal((await api('PATCH', '/v1/account', { key: payer, json: { name: 'x' } })).status, 403);

  assert.equal((await api('GET', '/v1/account', { key: owner })).body.time_zone, 'UTC');
  const moved = await api('PATCH', '/v1/account', { key: payer, json: { time_zone: 'asia/kathmandu' } });
  assert.equal(moved.status, 200);
  const zone = moved.body.time_zone as string;
  assert.match(zone, /^Asia\/Kat[h]?mandu$/, 'as Intl writes it');
  assert.deepEqual([moved.body.name, moved.body.billing.country], ['Robots', 'DE'], 'the rest stays');
  assert.equal((await api('GET', '/v1/account', { key: owner })).body.time_zone, zone);
  assert.equal((await api('GET', '/v1/activity', { key: owner })).body.time_zone, zone);
  for (const unknown of ['Mars/Olympus', '+05:30', '../UTC'])
    assert.equal(
      (await api('PATCH', '/v1/account', { key: owner, json: { time_zone: unknown } })).status,
      400,
      unknown,
    );
  for (const malformed of ['', null, 5]) {
    const { status } = await api('PATCH', '/v1/account', { key: owner, json: { time_zone: malformed } });
    assert.ok(status === 400 || status === 422, `${malformed}: ${status}`);
  }
  assert.equal((await api('PATCH', '/v1/account', { key: viewer, json: { time_zone: 'UTC' } })).status, 403);
  const logs = await api('GET', '/v1/audit_logs?limit=100', { key: owner });
  assert.ok(
    logs.body.data.some(
      (entry: { action: string; outcome: string; before: Zoned; after: Zoned }) =>
        entry.action === 'account.edit' && entry.before?.time_zone === 'UTC' && entry.after?.time_zone === zone,
    ),
    'the change is in the audit log, with what was before',
  );
  assert.equal((await api('PATCH', '/v1/account', { key: owner, json: { time_zone: 'UTC' } })).body.time_zone, 'UTC');

  assert.equal((await api('GET', '/v1/spend_limit', { key: owner })).status, 404);
  const limit = await api('POST', '/v1/spend_limit', { key: payer, json: { threshold_amount: 0, interval: 'day' } });
  assert.deepEqual([limit.status, limit.body.threshold_amount, limit.body.interval], [200, 0, 'day']);
  assert.equal((await service.chat(ask)).status, 402);
  assert.equal((await api('GET', '/v1/account', { key: owner })).body.spend_limit.threshold_amount, 0);
  // The largest amount whose microcents are exact as a JSON number, and one cent more.
  const largest = { threshold_amount: 9_007_199_254, interval: 'day' };
  assert.equal((await api('POST', '/v1/spend_limit', { key: payer, json: largest })).status, 200);
  const more = { ...largest, threshold_amount: 9_007_199_255 };
  assert.equal((await api('POST', '/v1/spend_limit', { key: payer, json: more })).status, 422);
  const exact = await api('POST', '/v1/spend_limit', { key: payer, json: { threshold_microcents: 1_000_001 } });
  assert.deepEqual([exact.body.threshold_amount, exact.body.threshold_microcents], [1, 1_000_001]);
  for (const json of [{ interval: 'day' }, { threshold_amount: 1, threshold_microcents: 1 }])
    assert.equal((await api('POST', '/v1/spend_limit', { key: payer, json })).status, 400);
  assert.equal((await api('DELETE', '/v1/spend_limit', { key: owner })).status, 200);
  assert.equal((await service.chat(ask)).status, 200);
});

test('every change is in the audit log with who, what, before and after; an account sees its own only', async () => {
  const { key, id } = await (async () => {
    const { body } = await api('POST', '/v1/keys', { key: owner, json: { name: 'watched' } });
    return { key: body.key as string, id: body.data.id as string };
  })();
  await api('PATCH', `/v1/keys/${id}`, { key: owner, json: { name: 'renamed', requests_per_minute: 9 } });
  const rotated = await api('POST', `/v1/keys/${id}/rotate`, { key: owner, json: {} });
  await api('DELETE', `/v1/keys/${id}`, { key: owner });
  const { body } = await api('GET', '/v1/audit_logs?limit=4', { key: owner });
  assert.deepEqual(
    body.data.map((entry: { action: string; outcome: string; target: string }) => [
      entry.action,
      entry.outcome,
      entry.target,
    ]),
    [
      ['key.revoke', 'done', id],
      ['key.rotate', 'done', id],
      ['key.edit', 'done', id],
      ['key.create', 'done', id],
    ],
  );
  const [, , edit, create] = body.data;
  assert.deepEqual([edit.before.name, edit.after.name], ['watched', 'renamed']);
  assert.deepEqual([edit.before.limits, edit.after.limits], [{}, { requestsPerMinute: 9 }]);
  assert.deepEqual([create.before, create.after.name, create.actor.kind], [null, 'watched', 'key']);
  assert.match(create.request_id, /^req_/);
  assert.equal(create.address, '127.0.0.1');
  assert.equal(create.account_id, service.accountId);

  const foreign = await newAccount();
  const stranger = await managementKey('owner', foreign, false);
  const own = await api('GET', '/v1/audit_logs?limit=100', { key: stranger });
  assert.ok(own.body.data.length > 0);
  assert.deepEqual(new Set(own.body.data.map((entry: { account_id: string }) => entry.account_id)), new Set([foreign]));
  const made = own.body.data.find((entry: { action: string }) => entry.action === 'account.create');
  assert.deepEqual([made.actor, made.address], [{ kind: 'key', id: null, name: null }, null], 'who runs the server');
  const whole: string[] = [];
  for (let after = ''; ;) {
    const page = await api('GET', `/v1/admin/audit?limit=100${after}`);
    whole.push(JSON.stringify(page.body));
    if (page.body.next_after === undefined) break;
    after = `&after=${page.body.next_after}`;
  }
  for (const secret of [key, rotated.body.key, operator, owner])
    assert.ok(!whole.join('').includes(secret.slice(4, 20)), 'no secret is in it');
});

test('the audit log is narrowed by who, what, of what and when, page after page, and tells nothing of strangers', async () => {
  const made = await api('POST', '/v1/keys', { key: owner, json: { name: 'narrowed' } });
  const id = made.body.data.id as string;
  await api('PATCH', `/v1/keys/${id}`, { key: owner, json: { name: 'narrower' } });
  await api('DELETE', `/v1/keys/${id}`, { key: owner });
  const actions = async (query: string, by = owner): Promise<readonly string[]> =>
    (await api('GET', `/v1/audit_logs?${query}`, { key: by })).body.data.map(
      ({ action }: { action: string }) => action,
    );
  assert.deepEqual(await actions(`target=${id}`), ['key.revoke', 'key.edit', 'key.create']);
  assert.deepEqual(await actions(`target=${id}&action=key.edit`), ['key.edit']);
  assert.deepEqual(await actions(`target=${id}&action=key.edit&action=key.create`), ['key.edit', 'key.create']);
  assert.deepEqual(await actions(`target=${id}&action=k_y`), [], 'what is asked for is no pattern');
  assert.ok((await actions('action=key&limit=100')).every((action) => action.startsWith('key.')));
  const all = await api('GET', `/v1/audit_logs?limit=100`, { key: owner });
  const { actor, at } = all.body.data[0];
  assert.deepEqual(await actions(`target=${id}&actor=${actor.id}`), ['key.revoke', 'key.edit', 'key.create']);
  const first = await api('GET', `/v1/audit_logs?target=${id}&limit=2`, { key: owner });
  assert.deepEqual(await actions(`target=${id}&limit=2&after=${first.body.next_after}`), ['key.create']);
  assert.deepEqual(await actions(`target=${id}&start_time=${at + 60}`), []);
  assert.deepEqual(await actions(`target=${id}&end_time=${at - 60}`), []);
  assert.equal((await actions(`target=${id}&start_time=${at - 60}&end_time=${at + 60}`)).length, 3);
  assert.equal((await api('GET', '/v1/audit_logs?after=nonsense', { key: owner })).status, 404);
  const ofServer = await api('GET', `/v1/admin/audit?target=${id}`);
  assert.equal(ofServer.body.data.length, 3, 'the same for the operator, whose id of a new thing is in its outcome');

  // An account cannot find out what somebody did who is not of it, although it has an entry of theirs.
  const stranger = await managementKey('owner', await newAccount(), false);
  const whole = await api('GET', '/v1/admin/audit?limit=1');
  assert.deepEqual(await actions('limit=100', stranger), await actions('limit=100', stranger));
  assert.deepEqual(await actions(`actor=${whole.body.data[0].actor.id}`, stranger), []);
});
