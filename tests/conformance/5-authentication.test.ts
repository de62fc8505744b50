import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';

import type { KeyObject } from '../../src/account-api/key-object.ts';
import { TestLedger } from '../support/test-ledger.ts';
import { assertEnvelope } from '../inference/http/envelope.ts';
import { exchange } from '../inference/http/raw.ts';
import type { RawAnswer } from '../inference/http/raw.ts';
import { TestService, until } from '../support/service.ts';

/** Specification part 5: who may ask for what, and what it costs them. */
const model = (id: string, contextLength = 4096): string => `
  - id: ${id}
    context_length: ${contextLength}
    pricing: { input_cents_per_million: 100, output_cents_per_million: 1000 }
    backends:
      - engine: scripted
        scripts:
          - when: { last_text: paced }
            say: [ { text: [ "word " ] } ]
            repeat: 200
            pace_ms: 20
          - say: [ { text: "one two three" } ]`;
const service = new TestService({
  config: `models:${model('Alpha', 64)}${model('beta', 128)}${model('gamma', 4096)}`,
});
before(() => service.start());
after(async () => {
  await service.verify();
  await service.dispose();
});

const keyWith = async (...options: readonly string[]): Promise<{ id: string; key: string }> => {
  const { code, stdout, stderr } = await service.command('keys', 'create', '--json', ...options);
  assert.equal(code, 0, stderr);
  return JSON.parse(stdout) as { id: string; key: string };
};
const run = async (...args: readonly string[]): Promise<string> => {
  const { code, stdout, stderr } = await service.command(...args);
  assert.equal(code, 0, stderr);
  return stdout;
};
const ask = (key: string, asked: string, fields: Readonly<Record<string, unknown>> = {}): Promise<RawAnswer> =>
  exchange(service.url, {
    method: 'POST',
    path: '/v1/chat/completions',
    headers: [
      ['Authorization', `Bearer ${key}`],
      ['Content-Type', 'application/json'],
    ],
    body: JSON.stringify({ model: asked, messages: [{ role: 'user', content: 'hi' }], ...fields }),
  });
const listOf = async (key?: string): Promise<string[]> => {
  const headers = key === undefined ? [] : [['x-api-key', key] as const];
  const answer = await exchange(service.url, { path: '/v1/models', headers });
  return (answer.json()['data'] as { id: string }[]).map(({ id }) => id);
};

describe('5.1 and 5.4 keys', () => {
  test('§5.1 Authorization: Bearer, and x-api-key', async () => {
    for (const header of [['Authorization', `Bearer ${service.key}`] as const, ['x-api-key', service.key] as const]) {
      const answer = await exchange(service.url, {
        method: 'POST',
        path: '/v1/chat/completions',
        headers: [header, ['Content-Type', 'application/json']],
        body: JSON.stringify({ model: 'beta', messages: [{ role: 'user', content: 'hi' }] }),
      });
      assert.equal(answer.status, 200, answer.body);
    }
  });

  test('§5.2 every key has the prefix of the service and an underscore', async () => {
    assert.match(service.key, /^tkh_/);
    assert.match((await keyWith()).key, /^tkh_/);
  });

  test('§5.4 no key: 401 missing_api_key; blanks, another service’s, or revoked: 401 invalid_api_key', async () => {
    const post = (headers: readonly (readonly [string, string])[]) =>
      exchange(service.url, { method: 'POST', path: '/v1/chat/completions', headers, body: '{}' });
    assertEnvelope(await post([]), 'missing_api_key');
    const { id, key } = await keyWith();
    for (const wrong of [`tkh_ ${key.slice(4)}`, key.replace('tkh_', 'sk-'), key.toLowerCase()])
      assertEnvelope(await post([['Authorization', `Bearer ${wrong}`]]), 'invalid_api_key');
    await run('keys', 'revoke', id);
    assertEnvelope(await post([['Authorization', `Bearer ${key}`]]), 'invalid_api_key');
  });
});

describe('5.5 and 5.6 entitlement', () => {
  test('§5.5 a key that is not entitled to the model: 403 model_not_allowed, which names what it can use', async () => {
    const { key } = await keyWith('--model', 'BETA', '--model', 'gamma');
    const error = assertEnvelope(await ask(key, 'alpha'), 'model_not_allowed', { param: 'model' });
    assert.match(String(error['message']), /'Alpha'.*This key can use: beta, gamma\.$/);
    assert.equal((await ask(key, 'Beta')).status, 200);
  });

  test('§5.5 a key that is kept to endpoints: 403 http_403 on the others, and the model list is open to it', async () => {
    const { key } = await keyWith('--endpoint', '/v1/messages', '--endpoint', '/v1/files');
    assertEnvelope(await ask(key, 'beta'), 'http_403');
    assert.deepEqual(await listOf(key), await listOf());
    const open = await keyWith('--endpoint', '/v1/chat');
    assert.equal((await ask(open.key, 'beta')).status, 200, 'what lies below it is open too');
  });

  test('§5.5 a key that is kept to addresses: 403 http_403 from elsewhere', async () => {
    const elsewhere = await keyWith('--ip', '192.0.2.0/24', '--ip', '2001:db8::/32');
    assertEnvelope(await ask(elsewhere.key, 'beta'), 'http_403');
    const here = await keyWith('--ip', '127.0.0.0/8', '--ip', '::1');
    assert.equal((await ask(here.key, 'beta')).status, 200);
  });

  test('§5.5 a key for zero data retention only: 403 http_403 without the header', async () => {
    const { key } = await keyWith('--zdr-only');
    assertEnvelope(await ask(key, 'beta'), 'http_403', { param: 'Service-ZDR' });
  });

  test('what a key is kept to is shown, and an invalid range is refused', async () => {
    const { id } = await keyWith('--endpoint', '/v1/messages', '--ip', '10.0.0.0/8', '--zdr-only');
    const listed = JSON.parse(await run('keys', 'list', '--json')) as readonly KeyObject[];
    const key = listed.find((each) => each.id === id);
    assert.deepEqual([key?.allowed_endpoints, key?.ip_ranges, key?.zdr_only], [['/v1/messages'], ['10.0.0.0/8'], true]);
    for (const wrong of [
      ['--ip', '10.0.0.0/33'],
      ['--ip', 'localhost'],
      ['--endpoint', 'messages'],
    ] as const)
      assert.equal((await service.command('keys', 'create', ...wrong)).code, 1, wrong.join(' '));
  });

  test('§5.6 the list of a key is what it can access; model_not_found lists the same', async () => {
    const { key } = await keyWith('--model', 'alpha');
    assert.deepEqual(await listOf(key), ['Alpha']);
    assert.deepEqual(await listOf(), ['Alpha', 'beta', 'gamma'], 'without a key, all there are');
    const error = assertEnvelope(await ask(key, 'delta'), 'model_not_found', { param: 'model' });
    assert.match(String(error['message']), /'delta'.*This key can use: Alpha\.$/);
  });

  test('§5.6 what a key can use is exactly what its list has', async () => {
    for (const models of [['alpha'], ['beta', 'gamma'], ['gamma'], ['alpha', 'beta', 'gamma']]) {
      const { key } = await keyWith(...models.flatMap((id) => ['--model', id]));
      const listed = await listOf(key);
      for (const id of ['Alpha', 'beta', 'gamma'])
        assert.equal(
          (await ask(key, id, { max_tokens: 1 })).status,
          listed.includes(id) ? 200 : 403,
          `${id} of ${models}`,
        );
    }
  });

  test('a change holds from the next request on; what runs goes on', async () => {
    const { id, key } = await keyWith();
    const running = ask(key, 'gamma', { messages: [{ role: 'user', content: 'paced' }] });
    const ledger = new TestLedger(service);
    await until(async () => (await ledger.openRequests()) > 0, 60_000);
    await run('keys', 'allow', id, '--model', 'beta');
    assert.deepEqual(await listOf(key), ['beta']);
    assertEnvelope(await ask(key, 'gamma'), 'model_not_allowed', { param: 'model' });
    assert.equal((await running).status, 200);
    await run('keys', 'allow', id, '--all');
    assert.deepEqual(await listOf(key), ['Alpha', 'beta', 'gamma']);
  });

  test('an account can be limited too: a key may use what both allow', async () => {
    const { key } = await keyWith('--model', 'alpha', '--model', 'beta');
    await run('accounts', 'allow', '--model', 'beta', '--model', 'gamma');
    assert.deepEqual([await listOf(key), await listOf(service.key)], [['beta'], ['beta', 'gamma']]);
    assertEnvelope(await ask(key, 'alpha'), 'model_not_allowed', { param: 'model' });
    await run('accounts', 'allow', '--all');
    assert.deepEqual(await listOf(service.key), ['Alpha', 'beta', 'gamma']);
  });

  test('suggested_models are models that the key can use', async () => {
    const { key } = await keyWith('--model', 'alpha', '--model', 'gamma');
    const long = { messages: [{ role: 'user', content: 'word '.repeat(100) }] };
    const error = assertEnvelope(await ask(key, 'alpha', long), 'context_length_exceeded', {
      param: 'messages',
      extra: ['model', 'context_length_limit', 'prompt_tokens', 'max_tokens', 'suggested_models'],
    });
    assert.deepEqual(error['suggested_models'], [{ id: 'gamma', context_length: 4096 }]);
  });

  test('the command line refuses a model that is not there, and a request that says nothing or both', async () => {
    const { id } = await keyWith();
    for (const [args, words] of [
      [['keys', 'create', '--model', 'bata'], /no model bata; did you mean beta\?/],
      [['keys', 'allow', id], /--model for each allowed model, or --all/],
      [['keys', 'allow', id, '--all', '--model', 'beta'], /--model for each allowed model, or --all/],
      [['keys', 'allow', 'key_nobody', '--all'], /no live key key_nobody/],
      [['prices', 'set', 'nothing', '--input', '1', '--output', '1'], /no model nothing/],
      [['prices', 'set', 'beta', '--input', '1', '--output', '1', '--cache-read', '2'], /may not cost more/],
      [['prices', 'set', 'beta', '--input', '1', '--output', '1', '--from', '2020-01-01'], /cannot start in the past/],
      [['prices', 'set', 'beta', '--input', '1', '--output', '1', '--to', '2020-01-01'], /must end after they start/],
    ] as const) {
      const { code, stderr } = await service.command(...args);
      assert.equal(code, 1, args.join(' '));
      assert.match(stderr, words);
    }
    const wrong = await service.command('prices', 'set', 'beta', '--input', '-1', '--output', '1');
    assert.equal(wrong.code, 64);
  });

  test('what was set is there after a restart', async () => {
    const { key } = await keyWith('--model', 'beta');
    await run('prices', 'set', 'beta', '--input', '50', '--output', '600', '--to', '2999-01-01');
    await service.stop();
    await service.start();
    assert.deepEqual(await listOf(key), ['beta']);
    assert.match(await run('prices', 'list'), /beta +acct_\w+ +\$0\.50 +\$6\.00 +\$0\.50 .* 2999-01-01 00:00:00/);
    await run('prices', 'remove', 'beta');
    assert.doesNotMatch(await run('prices', 'list'), /beta +acct_/);
  });
});

describe('§2.4 the rates of an account are what it is charged', () => {
  test('from the start of a request: one that runs is charged as it began', async () => {
    const ledger = new TestLedger(service);
    const before = ask(service.key, 'gamma', { messages: [{ role: 'user', content: 'paced' }] });
    await until(async () => (await ledger.openRequests()) > 0, 60_000);
    await run('prices', 'set', 'gamma', '--input', '1', '--output', '2', '--cache-read', '0.5');
    const [first, second] = [await ask(service.key, 'gamma'), await before];
    assert.deepEqual([first.status, second.status], [200, 200]);

    const { requests } = await service.usage(2);
    const of = (answer: RawAnswer) => {
      const row = requests.find(({ request_id: id }) => id === answer.headers['x-request-id']);
      assert.ok(row !== undefined);
      return row;
    };
    // Microcents a token: what a million costs in cents.
    const cost = (row: ReturnType<typeof of>, input: number, output: number): number =>
      row.prompt_tokens * input + row.completion_tokens * output;
    assert.equal(of(first).cost_microcents, cost(of(first), 1, 2));
    assert.equal(of(second).cost_microcents, cost(of(second), 100, 1000));
    await service.verify();
    await run('prices', 'remove', 'gamma');
    const third = await ask(service.key, 'gamma');
    const [row] = (await service.usage(1)).requests;
    assert.ok(row !== undefined);
    assert.equal(row.request_id, third.headers['x-request-id']);
    assert.equal(row.cost_microcents, cost(row, 100, 1000));
  });

  test('a balance that list prices would exhaust pays at the account’s rates', async () => {
    const { balanceMicrocents } = await service.usage(1);
    await run('prices', 'set', 'gamma', '--input', '0', '--output', '0');
    assert.equal((await ask(service.key, 'gamma')).status, 200);
    assert.equal((await service.usage(1)).balanceMicrocents, balanceMicrocents);
    await run('prices', 'remove', 'gamma');
  });
});
