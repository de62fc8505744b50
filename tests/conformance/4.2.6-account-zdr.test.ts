/** An account that requires zero data retention: every one of its requests is as if it carried `Service-ZDR: required`. */
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';

import { inferenceRoutes } from '../../src/inference/http/routes.ts';
import { assertEnvelope } from '../inference/http/envelope.ts';
import { exchange, type RawAnswer } from '../inference/http/raw.ts';
import { InnerService, until } from '../support/service.ts';
import { Visitor } from '../support/visitor.ts';

/** Three kinds of models, each once where nothing is retained and once elsewhere. */
const kinds = {
  writes: '{}',
  embeds: '{ embeddings: { supported: true } }',
  ranks: '{ rerank: { supported: true } }',
} as const;
const model = (kind: keyof typeof kinds, isPrivate: boolean): string => `
  - id: ${kind}${isPrivate ? '-privately' : ''}
    context_length: 4096
    pricing: { input_cents_per_million: 5, output_cents_per_million: 20 }
    capabilities: ${kinds[kind]}
    backends: [ { engine: scripted, zdr: ${isPrivate}, scripts: [ { say: [ { text: "hello" } ] } ] } ]`;
const says = (name: string, isPrivate: boolean): string =>
  `{ engine: scripted, name: ${name}, zdr: ${isPrivate}, scripts: [ { say: [ { text: ${name} } ] } ] }`;
const service = new InnerService({
  config: `models:${(['writes', 'embeds', 'ranks'] as const).map((kind) => model(kind, true) + model(kind, false)).join('')}
  - id: both
    context_length: 4096
    pricing: { input_cents_per_million: 5, output_cents_per_million: 20 }
    backends: [ ${says('keeps', false)}, ${says('forgets', true)} ]`,
});
const person = { email: 'olga@example.org', name: 'Olga', password: 'correct horse battery' };
const owner = new Visitor(service);
/** A key without restrictions, and one that by itself is only for requests with the header. */
let keys: readonly string[] = [];

before(async () => {
  await service.start();
  const made = await service.command('keys', 'create', '--zdr-only', '--json');
  keys = [service.key, (JSON.parse(made.stdout) as { key: string }).key];
  const link = await service.command('owner', 'link', '--json');
  const token = /#([\w-]+)/.exec(link.stdout)?.[1];
  assert.equal((await owner.ask('POST', '/v1/owner', { ...person, token })).status, 200, link.stdout + link.stderr);
});
after(() => service.dispose());

const turn = { messages: [{ role: 'user', content: 'hi' }] };
/** The smallest request of every route, and what kind of model answers it. */
const asked: Readonly<Record<string, { readonly kind: keyof typeof kinds; readonly body: object }>> = {
  '/v1/chat/completions': { kind: 'writes', body: turn },
  '/v1/completions': { kind: 'writes', body: { prompt: 'hi' } },
  '/v1/messages': { kind: 'writes', body: { ...turn, max_tokens: 16 } },
  '/v1/messages/count_tokens': { kind: 'writes', body: turn },
  '/v1/embeddings': { kind: 'embeds', body: { input: 'hi' } },
  '/v1/rerank': { kind: 'ranks', body: { query: 'hi', documents: ['ho'] } },
  '/v1/responses': { kind: 'writes', body: { input: 'hi' } },
  '/v1/responses/input_tokens': { kind: 'writes', body: { input: 'hi' } },
};

type Header = readonly [string, string];
const send = (path: string, body: object, key: string, headers: readonly Header[] = []): Promise<RawAnswer> =>
  exchange(service.url, {
    method: 'POST',
    path,
    headers: [
      ['Authorization', `Bearer ${key}`],
      ['Content-Type', 'application/json'],
      ['Anthropic-Version', '2023-06-01'],
      ...headers,
    ],
    body: JSON.stringify(body),
  });

interface Receipt {
  readonly zdr: boolean;
  readonly client_request_id: string | null;
}

/** It is there soon after the answer. */
async function receiptOf(answer: RawAnswer): Promise<Receipt> {
  const path = `/v1/generation?id=${answer.headers['x-request-id']}`;
  await until(async () => (await owner.ask('GET', path)).status === 200);
  return (await owner.get(path)) as Receipt;
}

/** Until it has reached the keys in memory, which it does within a second. */
async function inForce(isRequired: boolean): Promise<void> {
  const changed = await owner.ask('PATCH', '/v1/account', { zdr_required: isRequired });
  assert.deepEqual([changed.status, changed.body.zdr_required], [200, isRequired], JSON.stringify(changed.body));
  const status = isRequired ? 400 : 200;
  await until(
    async () => (await send('/v1/chat/completions', { model: 'writes', ...turn }, service.key)).status === status,
  );
}

test('an account requires it of no request when nothing was set', async () => {
  assert.equal((await owner.get('/v1/account')).zdr_required, false);
  const answer = await send('/v1/chat/completions', { model: 'writes', ...turn }, keys[0]!, [['X-Request-Id', 'mine']]);
  assert.equal(answer.status, 200);
  const { zdr, client_request_id: ownId } = await receiptOf(answer);
  assert.deepEqual([zdr, ownId], [false, 'mine']);
  await until(() => service.output.includes('client_mine'));
  assertEnvelope(await send('/v1/chat/completions', { model: 'writes-privately', ...turn }, keys[1]!), 'http_403', {
    param: 'Service-ZDR',
  });
});

test('while it requires it, every family is served only where nothing is retained, with any key and without the header', async () => {
  assert.deepEqual(Object.keys(asked).sort(), [...inferenceRoutes.keys()].sort(), 'every route is asked');
  await inForce(true);
  for (const [path, { kind, body }] of Object.entries(asked)) {
    for (const key of keys) {
      const answer = await send(path, { model: `${kind}-privately`, ...body }, key);
      assert.equal(answer.status, 200, `${path}: ${answer.body}`);
      if (inferenceRoutes.get(path)!.kind === 'generate')
        assert.equal((await receiptOf(answer)).zdr, true, `${path}: so says its receipt`);
      const refused = await send(path, { model: kind, ...body }, key);
      assert.equal(refused.status, 400, path);
      const { error } = refused.json() as { readonly error: { readonly code: string; readonly message: string } };
      assert.equal(error.code, 'model_zdr_not_supported', path);
      assert.equal(
        error.message,
        `The model '${kind}' does not offer zero data retention, which this account requires for every request.`,
      );
    }
  }
  for (let round = 0; round < 10; round++)
    assert.match((await send('/v1/chat/completions', { model: 'both', ...turn }, keys[0]!)).body, /"forgets"/);
});

test('what the header changes besides is so too: ids, stored answers and files, repeats, and the check of the header itself', async () => {
  const [key = ''] = keys;
  const chosen = 'chosen-by-the-client';
  const echoed = await send('/v1/chat/completions', { model: 'both', ...turn }, key, [['X-Request-Id', chosen]]);
  assert.equal(echoed.headers['x-request-id'], `client_${chosen}`);
  const fails = await send('/v1/chat/completions', { model: 'writes', ...turn }, key, [['X-Request-Id', chosen]]);
  assertEnvelope(fails, 'model_zdr_not_supported', { param: 'model' });
  const elsewhere = await service.command('keys', 'create', '--ip', '192.0.2.0/24', '--json');
  const { key: strange } = JSON.parse(elsewhere.stdout) as { key: string };
  await until(async () => {
    const answer = await send('/v1/chat/completions', { model: 'both', ...turn }, strange, [['X-Request-Id', chosen]]);
    return answer.status === 403;
  });
  // The one before is the one of the key that needs the header.
  await until(() => service.log.filter(({ status }) => status === 403).length > 1);
  assert.ok(!JSON.stringify(await owner.get('/v1/generations')).includes(chosen));
  assert.ok(!service.output.includes(chosen), 'an id that a client has chosen is not in the log');

  const store = (more: object) => send('/v1/responses', { model: 'both', input: 'hi', ...more }, key);
  assertEnvelope(await store({ store: true }), 'unsupported_parameter', { param: 'store' });
  assert.equal((await store({})).json()['store'], false);

  const form = new FormData();
  form.set('purpose', 'user_data');
  form.set('file', new Blob(['hello']), 'hello.txt');
  const upload = await fetch(`${service.url}/v1/files`, {
    method: 'POST',
    headers: { authorization: `Bearer ${key}` },
    body: form,
  });
  const { error } = (await upload.json()) as { readonly error: { readonly code: string; readonly param: string } };
  assert.deepEqual([upload.status, error.code, error.param], [400, 'unsupported_parameter', 'Service-ZDR']);

  const once = (): Promise<RawAnswer> =>
    send('/v1/chat/completions', { model: 'both', ...turn }, key, [['Idempotency-Key', 'once']]);
  assert.equal((await once()).status, 200);
  assertEnvelope(await once(), 'http_409', { param: 'Idempotency-Key', extra: ['first_request_id'] });

  for (const value of ['Required', 'optional', '']) {
    const answer = await send('/v1/chat/completions', { model: 'both', ...turn }, key, [['Service-ZDR', value]]);
    assertEnvelope(answer, 'invalid_zdr_header', { param: 'Service-ZDR' });
  }
});

test('the owner decides, the log of changes says so, and it can be taken back', async () => {
  const made = await service.command('keys', 'create', '--role', 'admin', '--json');
  const admin = new Visitor(service, (JSON.parse(made.stdout) as { key: string }).key);
  const refused = await admin.ask('PATCH', '/v1/account', { zdr_required: false });
  assert.deepEqual([refused.status, refused.body.error.param], [403, 'zdr_required']);
  await inForce(false);
  const changes = (await owner.get('/v1/audit_logs?action=account.zdr')).data as readonly {
    readonly before: { readonly limits: object };
    readonly after: { readonly limits: object };
    readonly actor: { readonly name: string };
  }[];
  assert.deepEqual(
    changes.map(({ before, after, actor }) => [before.limits, after.limits, actor.name]),
    [
      [{ zdrRequired: true }, {}, person.email],
      [{}, { zdrRequired: true }, person.email],
    ],
  );
  for (const [path, { kind, body }] of Object.entries(asked)) {
    const answer = await send(path, { model: kind, ...body }, keys[0]!);
    assert.equal(answer.status, 200, `${path}: ${answer.body}`);
  }
});
