/** Keys over the API, and what they then may do on the inference host (contracts.md, section 2; docs/keys.md). */
import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';

import { TestLedger } from '../support/test-ledger.ts';
import { InnerService, noFeatures, scriptedModel, until } from '../support/service.ts';
import { report } from '../support/workers.ts';

const service = new InnerService({
  config: scriptedModel(
    `- { when: { last_text: endless }, say: [{ text: ["word "] }], repeat: 2000, pace_ms: 100 }
- { say: [{ text: "one two three" }] }`,
    { settings: noFeatures },
  ),
});
let admin: MadeKey;
before(async () => {
  await service.start();
  admin = await managementKey('admin');
});
after(() => service.dispose());

interface MadeKey {
  readonly id: string;
  readonly key: string;
}

async function managementKey(role: 'owner' | 'admin' | 'developer' | 'viewer', accountId = service.accountId) {
  const answer = await report(service, { kind: 'create_key', accountId, name: role, expiresAt: undefined, role });
  return { id: answer.keyId, key: answer.key };
}

interface Answer {
  readonly status: number;
  // The bodies of all routes; each test says what it expects.
  readonly body: any; // oxlint-disable-line typescript/no-explicit-any
}

async function api(method: string, path: string, json?: object, key = admin.key): Promise<Answer> {
  const answer = await fetch(service.accountUrl + path, {
    method,
    headers: { authorization: `Bearer ${key}`, ...(json === undefined ? {} : { 'content-type': 'application/json' }) },
    ...(json === undefined ? {} : { body: JSON.stringify(json) }),
  });
  return { status: answer.status, body: await answer.json() };
}

async function made(input: object = {}): Promise<MadeKey> {
  const { status, body } = await api('POST', '/v1/keys', { name: 'x', ...input });
  assert.equal(status, 201, JSON.stringify(body));
  return { id: body.data.id as string, key: body.key as string };
}

const ask = { model: 'demo', messages: [{ role: 'user', content: 'hi' }] };

async function statusOf(key: string, body: Readonly<Record<string, unknown>> = ask): Promise<number> {
  const answer = await service.chat(body, { key });
  await answer.arrayBuffer();
  return answer.status;
}

async function codeOn(host: string, path: string, key: string): Promise<string> {
  const answer = await fetch(host + path, { headers: { authorization: `Bearer ${key}` } });
  const body = (await answer.json()) as { readonly error?: { readonly code: string } };
  return body.error?.code ?? 'none';
}

test('a key is what was asked for, says what it has spent, and shows its secret once', async () => {
  const asked = {
    name: 'of the robot',
    limit_cents: 100,
    limit_reset: 'monthly',
    allowed_models: ['DEMO'],
    max_concurrency: 3,
    requests_per_minute: 50,
    tokens_per_day: 100_000,
    cents_per_five_minutes: 200,
    tags: ['robot', 'team-a'],
  };
  const { status, body } = await api('POST', '/v1/keys', asked);
  assert.equal(status, 201);
  assert.match(body.key, /^tkh_/);
  const { id } = body.data;
  assert.equal(await statusOf(body.key), 200);
  const shown = (await api('GET', `/v1/keys/${id}`)).body;
  const { usage, last_used_at: lastUsedAt, ...facts } = shown;
  assert.ok(usage > 0);
  for (const field of ['usage_daily', 'usage_weekly', 'usage_monthly']) assert.equal(facts[field], usage, field);
  assert.equal(facts.limit_remaining_microcents, 100_000_000 - usage);
  assert.ok(Math.abs(lastUsedAt - Date.now() / 1000) < 600);
  assert.ok(facts.limit_resets_at > Date.now() / 1000);
  assert.deepEqual(
    { ...asked, allowed_models: ['demo'] },
    Object.fromEntries(Object.keys(asked).map((field) => [field, facts[field]])),
  );
  assert.deepEqual(
    [facts.type, facts.user_scoped, facts.zdr_only, facts.disabled],
    ['serverless', false, false, false],
  );
  const listed = await api('GET', '/v1/keys?limit=100&include_disabled=true');
  assert.ok(listed.body.data.some((key: { readonly id: string }) => key.id === id));
  assert.ok(!JSON.stringify([shown, listed.body]).includes(body.key), 'the secret is nowhere else');
  const [row] = await new TestLedger(service).newest(1);
  assert.deepEqual(JSON.parse(row!.tags!), ['robot', 'team-a']);
});

test('service tiers: set, shown, kept when left out, and removed', async () => {
  const { id } = await made({ service_tier: 'flex', service_tiers: ['flex'] });
  const patch = async (change: object) => {
    const { status, body } = await api('PATCH', `/v1/keys/${id}`, change);
    return [status, body.service_tier, body.service_tiers];
  };
  assert.deepEqual(await patch({ name: 'x' }), [200, 'flex', ['flex']]);
  assert.deepEqual(await patch({ service_tiers: [] }), [200, 'flex', []]);
  assert.deepEqual(await patch({ service_tier: null, service_tiers: null }), [200, null, null]);
  assert.equal((await patch({ service_tier: 'gold' }))[0], 422);
});

test('limits of single models: set as a list, shown, counted apart, named by the refusal, and removed', async () => {
  const { id, key } = await made({ limits_by_model: [{ model: 'DEMO', requests_per_day: 1 }] });
  const rates = { requests_per_minute: null, tokens_per_minute: null, requests_per_day: 1, tokens_per_day: null };
  const ofModel = { model: 'demo', ...rates, cents_per_five_minutes: null, cents_per_day: null };
  const path = `/v1/keys/${id}`;
  assert.deepEqual((await api('GET', path)).body.limits_by_model, [ofModel]);
  assert.equal(await statusOf(key), 200);
  const answer = await service.chat(ask, { key });
  const { error } = (await answer.json()) as { readonly error: Readonly<Record<string, unknown>> };
  assert.deepEqual(
    [answer.status, error['code'], error['limit_of'], error['limit_model'], error['limit_window_seconds']],
    [429, 'rate_limit_exceeded', 'key', 'demo', 86_400],
  );
  assert.match(
    String(error['message']),
    /^This key may send 1 requests to the model 'demo' a day. It can go on in \d+ s.$/,
  );
  const statusWith = async (limits_by_model: unknown) => (await api('PATCH', path, { limits_by_model })).status;
  assert.equal(await statusWith([{ model: 'nothing', requests_per_day: 1 }]), 400);
  assert.equal(await statusWith([{ model: 'demo', tokens_per_day: 0 }]), 422);
  // What is left out stays; a list replaces the one before.
  assert.deepEqual((await api('PATCH', path, { tokens_per_day: 9 })).body.limits_by_model, [ofModel]);
  const other = [{ model: 'demo', requests_per_minute: 100 }];
  const changed = (await api('PATCH', path, { tokens_per_day: null, limits_by_model: other })).body;
  assert.deepEqual(changed.limits_by_model, [{ ...ofModel, requests_per_day: null, requests_per_minute: 100 }]);
  assert.equal(await statusOf(key), 200);
  assert.deepEqual((await api('PATCH', path, { limits_by_model: [] })).body.limits_by_model, []);
});

test('budgets of single models: set as a list, shown with what is spent, named by the refusal, and removed', async () => {
  const { id, key } = await made({ budgets_by_model: [{ model: 'DEMO', limit_cents: 5, limit_reset: 'daily' }] });
  const path = `/v1/keys/${id}`;
  const shown = async () => {
    const [{ model, limit_cents, limit_reset, limit_microcents, limit_remaining_microcents: left }] = (
      await api('GET', path)
    ).body.budgets_by_model;
    return [model, limit_cents, limit_reset, limit_microcents - left > 0];
  };
  assert.deepEqual(await shown(), ['demo', 5, 'daily', false]);
  assert.equal(await statusOf(key), 200);
  assert.deepEqual(await shown(), ['demo', 5, 'daily', true]);
  const patch = async (budgets_by_model: unknown) => await api('PATCH', path, { budgets_by_model });
  assert.equal((await patch([{ model: 'demo', limit_cents: 0 }])).status, 200);
  const answer = await service.chat(ask, { key });
  const { error } = (await answer.json()) as { readonly error: Readonly<Record<string, unknown>> };
  assert.deepEqual(
    [answer.status, error['code'], error['budget_of'], error['budget_model'], error['budget_period']],
    [402, 'insufficient_credits', 'key', 'demo', 'total'],
  );
  assert.match(
    String(error['message']),
    /^The budget of this key for the model 'demo', \$0\.00 in total, does not cover/,
  );
  assert.equal((await patch([{ model: 'nothing', limit_cents: 1 }])).status, 400);
  assert.equal((await patch([{ model: 'demo', limit_cents: -1 }])).status, 422);
  // What is left out stays.
  assert.equal((await api('PATCH', path, { name: 'x' })).body.budgets_by_model.length, 1);
  assert.deepEqual((await patch([])).body.budgets_by_model, []);
  assert.equal(await statusOf(key), 200);
  const account = await api('PATCH', '/v1/account', { budgets_by_model: [{ model: 'demo', limit_cents: 0 }] });
  assert.deepEqual([account.status, account.body.budgets_by_model[0].limit_microcents], [200, 0]);
  const refused = (await (await service.chat(ask, { key })).json()) as typeof error;
  assert.equal((refused['error'] as typeof error)['budget_of'], 'account');
  assert.deepEqual((await api('PATCH', '/v1/account', { budgets_by_model: [] })).body.budgets_by_model, []);
  assert.equal(await statusOf(key), 200);
});

test('the budget of a conversation ends an agent that repeats itself, in words for people, and no other conversation', async () => {
  const { id, key } = await made({ session_budget_cents: 1 });
  // Long enough that some dozens of requests cost a cent.
  const turn = (text: string) => [
    { role: 'user', content: 'hi '.repeat(6_000) },
    { role: 'assistant', content: text },
    { role: 'user', content: 'again' },
  ];
  const send = (text: string) => service.chat({ model: 'demo', messages: turn(text), max_tokens: 16 }, { key });
  const ledger = new TestLedger(service);
  let spent = 0n;
  for (let requests = 0; ; requests++) {
    assert.ok(requests < 300, `${spent} microcents`);
    const answer = await send('one');
    if (answer.status !== 200) {
      const { error } = (await answer.json()) as { readonly error: Readonly<Record<string, unknown>> };
      assert.deepEqual(
        [answer.status, error['code'], error['budget_of'], error['budget_limit_cents']],
        [402, 'insufficient_credits', 'conversation', 1],
      );
      assert.match(
        String(error['message']),
        /^This conversation has cost \$0\.01.*, and its key allows \$0\.01 for one\. Begin/,
      );
      break;
    }
    await answer.arrayBuffer();
    assert.ok(spent < 1_000_000n, 'one request goes beyond the budget at most');
    spent += (await ledger.newest(1))[0]!.costMicrocents;
  }
  assert.ok(spent >= 1_000_000n);
  for (const other of ['two', 'three']) assert.equal((await send(other)).status, 200);
  assert.equal((await api('PATCH', `/v1/keys/${id}`, { session_budget_cents: 2 })).body.session_budget_cents, 2);
  assert.equal((await send('one')).status, 200);
});

test('what a key is kept to is refused elsewhere, and can be changed', async () => {
  const { id, key } = await made({ allowed_endpoints: ['/v1/messages'] });
  assert.equal(await statusOf(key), 403);
  assert.equal(await codeOn(service.url, '/v1/files', key), 'http_403');
  assert.equal((await api('PATCH', `/v1/keys/${id}`, { allowed_endpoints: null })).status, 200);
  assert.equal(await statusOf(key), 200);
  assert.equal((await api('PATCH', `/v1/keys/${id}`, { ip_ranges: ['192.0.2.0/24'] })).status, 200);
  assert.equal(await statusOf(key), 403);
  const changed = await api('PATCH', `/v1/keys/${id}`, { ip_ranges: null, limit_cents: 0, name: 'y', tags: ['b'] });
  assert.deepEqual([changed.body.name, changed.body.tags, changed.body.limit_reset], ['y', ['b'], null]);
  assert.equal(await statusOf(key), 402);
  const period = await api('PATCH', `/v1/keys/${id}`, { limit_reset: 'daily' });
  assert.deepEqual([period.body.limit_cents, period.body.limit_reset], [0, 'daily']);
  assert.equal((await api('PATCH', `/v1/keys/${id}`, { limit_cents: null })).body.limit_cents, null);
  assert.equal(await statusOf(key), 200);
});

test('a budget with fractions of a cent is set and shown exactly, and another period keeps them', async () => {
  const { id } = await made({
    limit_microcents: 1_500_001,
    budgets_by_model: [{ model: 'demo', limit_microcents: 7 }],
  });
  const patch = async (change: object) => {
    const { status, body } = await api('PATCH', `/v1/keys/${id}`, change);
    return status === 200
      ? [body.limit_cents, body.limit_microcents, body.limit_reset, body.budgets_by_model[0]?.limit_microcents]
      : [status, body.error.param];
  };
  for (const [change, result] of [
    [{ name: 'y' }, [1, 1_500_001, null, 7]],
    [{ limit_reset: 'daily' }, [1, 1_500_001, 'daily', 7]],
    [{ limit_microcents: 2_000_003 }, [2, 2_000_003, 'daily', 7]],
    [{ limit_cents: 2, limit_microcents: 3 }, [400, 'limit_microcents']],
    [{ budgets_by_model: [{ model: 'demo', limit_cents: 1, limit_microcents: 1 }] }, [400, 'limit_microcents']],
    [{ budgets_by_model: [{ model: 'demo', limit_reset: 'daily' }] }, [400, 'limit_reset']],
    [{ budgets_by_model: [{ model: 'demo' }] }, [400, 'budgets_by_model']],
    [{ limit_microcents: null }, [null, null, null, 7]],
  ] as const)
    assert.deepEqual(await patch(change), result, JSON.stringify(change));
});

describe('a request that cannot be fulfilled is refused with its field, and changes nothing:', () => {
  const past = Math.floor(Date.now() / 1000) - 10;
  for (const [input, status, param] of [
    [{}, 400, 'name'],
    [{ name: '' }, 422, 'name'],
    [{ name: 'x', limit: 5 }, 400, 'limit'],
    [{ name: 'x', limit_cents: 1.5 }, 422, 'limit_cents'],
    [{ name: 'x', limit_reset: 'hourly', limit_cents: 1 }, 422, 'limit_reset'],
    [{ name: 'x', allowed_models: ['nothing'] }, 400, 'allowed_models[0]'],
    [{ name: 'x', allowed_endpoints: ['chat'] }, 400, 'allowed_endpoints'],
    [{ name: 'x', ip_ranges: ['10.0.0.0/33'] }, 400, 'ip_ranges'],
    [{ name: 'x', expires_at: past }, 400, 'expires_at'],
    [{ name: 'x', tags: ['Team A'] }, 400, 'tags'],
    [{ name: 'x', role: 'viewer' }, 400, 'role'],
    [{ name: 'x', user_id: 'stranger' }, 400, 'user_id'],
  ] as const)
    test(JSON.stringify(input), async () => {
      const count = async () =>
        (await api('GET', '/v1/keys?limit=100&include_disabled=true')).body.data.length as number;
      const before = await count();
      const answer = await api('POST', '/v1/keys', input);
      assert.deepEqual([answer.status, answer.body.error.param], [status, param]);
      assert.equal(await count(), before);
    });
});

test('a management key makes no requests, and an inference key manages nothing', async () => {
  const { key } = await made();
  assert.equal(await codeOn(service.accountUrl, '/v1/keys', key), 'http_403');
  for (const path of ['/v1/models', '/v1/files', '/v1/files/file-1'])
    assert.equal(await codeOn(service.url, path, admin.key), 'http_403', path);
  const answer = await service.chat(ask, { key: admin.key });
  assert.equal(answer.status, 403);
  assert.equal(((await answer.json()) as { error: { code: string } }).error.code, 'http_403');
});

test('a management key says what it is, makes inference keys only, and changes no other management key', async () => {
  const { status, body } = await api('GET', '/v1/key');
  assert.equal(status, 200);
  assert.deepEqual(
    [body.id, body.role, body.type, body.is_operator, body.rate_limit],
    [admin.id, 'admin', 'management', false, { requests: 600, interval: '1m' }],
  );
  assert.equal((await api('POST', '/v1/keys', { name: 'x', type: 'management', role: 'viewer' })).status, 403);
  const other = await managementKey('viewer');
  assert.equal((await api('POST', `/v1/keys/${other.id}/rotate`, {})).status, 403);
  assert.equal((await api('PATCH', `/v1/keys/${other.id}`, { disabled: true })).status, 403);
  assert.equal((await api('DELETE', `/v1/keys/${other.id}`)).status, 403);
  assert.equal((await api('POST', '/v1/keys', { name: 'x' }, other.key)).status, 403, 'a viewer makes no keys');
  const own = await api('POST', `/v1/keys/${other.id}/rotate`, {}, other.key);
  assert.equal(own.status, 403, 'nor other secrets');
  const owner = await managementKey('owner');
  const rotated = await api('POST', `/v1/keys/${owner.id}/rotate`, { overlap_seconds: 0 }, owner.key);
  assert.equal(rotated.status, 200);
  assert.equal((await api('GET', '/v1/key', undefined, owner.key)).status, 401);
  assert.equal((await api('GET', '/v1/key', undefined, rotated.body.key)).body.id, owner.id);
});

test('a developer’s management key has to do with the keys of nobody in particular only', async () => {
  const developer = await managementKey('developer');
  const own = await api('POST', '/v1/keys', { name: 'of a program' }, developer.key);
  assert.equal(own.status, 201);
  const answer = await report(service, {
    kind: 'create_key',
    accountId: service.accountId,
    name: 'of a person',
    userId: 'somebody',
    expiresAt: undefined,
  });
  const seen = await api('GET', '/v1/keys?limit=100', undefined, developer.key);
  const ids = seen.body.data.map(({ id }: { readonly id: string }) => id) as readonly string[];
  assert.ok(ids.includes(own.body.data.id));
  assert.ok(!ids.includes(answer.keyId) && !ids.includes(admin.id));
  for (const [method, path, json] of [
    ['GET', '', undefined],
    ['PATCH', '', { name: 'mine' }],
    ['DELETE', '', undefined],
    ['POST', '/rotate', {}],
  ] as const)
    assert.equal((await api(method, `/v1/keys/${answer.keyId}${path}`, json, developer.key)).status, 404, method);
});

test('keys of another account are as keys that there are not', async () => {
  const account = await report(service, { kind: 'create_account', name: 'another' });
  const foreign = await managementKey('owner', account.accountId);
  const { id } = await made();
  const messages = new Set<string>();
  for (const target of [id, 'key_doesNotExist', 'nonsense', admin.id])
    for (const [method, path, json] of [
      ['GET', '', undefined],
      ['PATCH', '', { name: 'mine' }],
      ['DELETE', '', undefined],
      ['POST', '/rotate', {}],
    ] as const) {
      const { status, body } = await api(method, `/v1/keys/${target}${path}`, json, foreign.key);
      assert.equal(status, 404, `${method} ${target}`);
      messages.add(JSON.stringify([body.error.code, body.error.message]));
    }
  assert.equal(messages.size, 1);
});

test('a rotated key keeps its id; the earlier secret works on for its time, and a second rotation ends it', async () => {
  const first = await made({ name: 'rotated' });
  const rotated = await api('POST', `/v1/keys/${first.id}/rotate`, { overlap_seconds: 3600 });
  assert.equal(rotated.status, 200);
  const second = rotated.body.key as string;
  assert.equal(rotated.body.data.id, first.id);
  const endsIn = rotated.body.data.previous_secret_ends_at - Date.now() / 1000;
  assert.ok(endsIn > 3000 && endsIn <= 3600);
  assert.deepEqual([await statusOf(first.key), await statusOf(second)], [200, 200]);
  const third = (await api('POST', `/v1/keys/${first.id}/rotate`, { overlap_seconds: 3600 })).body.key as string;
  assert.deepEqual([await statusOf(first.key), await statusOf(second), await statusOf(third)], [401, 200, 200]);
  const fourth = (await api('POST', `/v1/keys/${first.id}/rotate`, {})).body.key as string;
  assert.deepEqual([await statusOf(third), await statusOf(fourth)], [401, 200]);
  const short = (await api('POST', `/v1/keys/${first.id}/rotate`, { overlap_seconds: 1 })).body.key as string;
  await until(async () => (await statusOf(fourth)) === 401, 30_000);
  assert.equal(await statusOf(short), 200);
  assert.equal((await api('POST', `/v1/keys/${first.id}/rotate`, { overlap_seconds: 604_801 })).status, 422);
  const used = new Set((await new TestLedger(service).newest(6)).map(({ keyId }) => keyId));
  assert.deepEqual([...used], [first.id], 'usage of all secrets is of one key');
  assert.equal((await api('DELETE', `/v1/keys/${first.id}`)).status, 200);
  assert.equal(await statusOf(short), 401);
  assert.equal((await api('GET', `/v1/keys/${first.id}`)).body.name, 'rotated');
  assert.equal((await api('POST', `/v1/keys/${first.id}/rotate`, {})).status, 404);
});

test('keys are listed by their ids, deleted and paused ones too, and none of another account', async () => {
  const [deleted, paused, live] = [await made(), await made(), await made()];
  assert.equal((await api('DELETE', `/v1/keys/${deleted.id}`)).status, 200);
  assert.equal((await api('PATCH', `/v1/keys/${paused.id}`, { disabled: true })).status, 200);
  const { accountId } = await report(service, { kind: 'create_account', name: 'second' });
  const other = await managementKey('owner', accountId);
  const idsOf = async (ids: readonly string[], key = admin.key): Promise<readonly string[]> => {
    const { status, body } = await api('GET', `/v1/keys?${ids.map((id) => `ids=${id}`).join('&')}`, undefined, key);
    assert.equal(status, 200, JSON.stringify(body));
    return body.data.map(({ id }: MadeKey) => id).toSorted();
  };
  const own = [deleted.id, paused.id, live.id].toSorted();
  assert.deepEqual(await idsOf([...own, other.id]), own);
  assert.deepEqual(await idsOf([deleted.id]), [deleted.id]);
  assert.deepEqual(await idsOf(own, other.key), []);
  const ofAdmin = (await api('GET', '/v1/key')).body.id as string;
  const developer = await managementKey('developer');
  assert.deepEqual(await idsOf([...own, ofAdmin], developer.key), own, 'a developer sees no management key');
  assert.equal((await api('GET', '/v1/keys?ids=x')).status, 422);
});

test('a paused key is cut with the error of the key, refused, and goes on when it is resumed', async () => {
  const { id, key } = await made();
  const streamed = await service.chat(
    { model: 'demo', stream: true, messages: [{ role: 'user', content: 'endless' }] },
    { key },
  );
  assert.equal(streamed.status, 200);
  const paused = await api('PATCH', `/v1/keys/${id}`, { disabled: true });
  assert.equal(paused.body.disabled, true);
  assert.match(await streamed.text(), /"code":"invalid_api_key".*\n\ndata: \[DONE\]\n\n$/s);
  assert.equal(await statusOf(key), 401);
  const enabled = await api('GET', '/v1/keys?limit=100');
  assert.ok(!enabled.body.data.some((one: { readonly id: string }) => one.id === id));
  assert.equal((await api('PATCH', `/v1/keys/${id}`, { disabled: false })).status, 200);
  assert.equal(await statusOf(key), 200);
});

test('a page ends with where the next one begins, and all of them are all keys', async () => {
  for (let count = 0; count < 5; count++) await made({ name: `page ${count}` });
  const whole = (await api('GET', '/v1/keys?limit=100')).body;
  const ids: string[] = [];
  for (let after: string | undefined; ;) {
    const { body } = await api('GET', `/v1/keys?limit=2${after === undefined ? '' : `&after=${after}`}`);
    ids.push(...body.data.map(({ id }: { readonly id: string }) => id));
    assert.equal(body.next_after !== undefined, body.has_more);
    after = body.next_after;
    if (after === undefined) break;
  }
  assert.deepEqual(
    ids,
    whole.data.map(({ id }: { readonly id: string }) => id),
  );
});

test('a name is counted in characters, as the document says, and what is wrong with one is said of the field', async () => {
  for (const name of ['🔑'.repeat(60), '🔑'.repeat(100), 'é'.repeat(100)]) {
    const { status, body } = await api('POST', '/v1/keys', { name });
    assert.equal(status, 201, JSON.stringify(body));
    assert.ok(JSON.stringify(body).includes(`"name":${JSON.stringify(name)}`), 'it is the name');
  }
  for (const name of ['🔑'.repeat(101), 'x'.repeat(101), '', 'a\nb']) {
    const { status, body } = await api('POST', '/v1/keys', { name });
    assert.ok(status === 400 || status === 422, String(status));
    assert.equal(body.error.param, 'name', JSON.stringify(body));
  }
});
