/** What is left of refused requests: their numbers, and the last of them for the account that sent them. */
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';

import { InnerService, until } from '../../support/service.ts';

const service = new InnerService({
  firstCreditCents: '10',
  config: `models:
  - id: cheap
    context_length: 4096
    pricing: { input_cents_per_million: 1, output_cents_per_million: 1 }
    backends: [ { engine: scripted, scripts: [ { say: [ { text: hello } ] } ] } ]
  - id: dear
    context_length: 4096
    pricing: { input_cents_per_million: 100000000, output_cents_per_million: 100000000 }
    backends: [ { engine: scripted, scripts: [ { say: [ { text: hello } ] } ] } ]
  - id: failing
    context_length: 4096
    pricing: { input_cents_per_million: 1, output_cents_per_million: 1 }
    backends: [ { engine: openai, flavor: openai, url: "http://127.0.0.1:9" } ]`,
});
before(async () => void (await service.start()));
after(() => service.dispose());

interface RefusedShown {
  readonly request_id: string;
  readonly client_request_id: string | null;
  readonly error_code: string;
  readonly status: number;
  readonly model: string | null;
  readonly key_id: string;
  readonly message: string | null;
}

const listed = async <Row>(...words: readonly string[]): Promise<readonly Row[]> =>
  JSON.parse((await service.command(...words, '--json')).stdout) as readonly Row[];

const messages = [{ role: 'user', content: 'xyzzy' }];
const families = [
  ['/v1/chat/completions', { messages }],
  ['/v1/completions', { prompt: 'xyzzy' }],
  ['/v1/messages', { messages, max_tokens: 5 }],
  ['/v1/responses', { input: 'xyzzy' }],
] as const;

const send = (path: string, body: unknown, headers: Readonly<Record<string, string>> = {}, key = service.key) =>
  fetch(`${service.url}${path}`, {
    method: 'POST',
    headers: { 'content-type': 'application/json', authorization: `Bearer ${key}`, ...headers },
    body: JSON.stringify(body),
  });

test('every refusal of a known key is counted and kept, in each format; answers and unknown keys are not', async () => {
  const made = JSON.parse((await service.command('keys', 'create', '--json', '--name', 'old')).stdout) as {
    readonly id: string;
    readonly key: string;
  };
  const expected: [string, number, string | null, string][] = [];
  for (const [path, body] of families) {
    const ask = async (code: string, status: number, model: string | null, fields: object, headers = {}) => {
      const answer = await send(path, { ...body, ...fields }, headers);
      assert.equal(answer.status, status, `${path}: ${await answer.text()}`);
      expected.push([code, status, model, answer.headers.get('x-request-id')!]);
    };
    await ask('insufficient_credits', 402, 'dear', { model: 'dear' });
    await ask('insufficient_credits', 402, 'dear', { model: 'dear', stream: true });
    await ask('model_not_found', 404, null, { model: 'xyzzy' });
    await ask('schema_validation_failed', 422, 'cheap', { model: 'cheap', temperature: 'xyzzy' });
    const zdr = { 'service-zdr': 'required', 'x-request-id': 'xyzzy-id' };
    assert.equal((await send(path, { ...body, model: 'dear' }, zdr)).status, 400);
    assert.equal((await send(path, { ...body, model: 'cheap' })).status, 200);
    assert.equal((await send(path, { ...body, model: 'cheap' }, {}, 'tkh_nobody')).status, 401);
    const failed = await send(path, { ...body, model: 'failing' });
    assert.ok(failed.status >= 502, await failed.text());
    assert.equal((await service.command('keys', 'pause', made.id)).code, 0);
    assert.equal((await send(path, { ...body, model: 'cheap' }, {}, made.key)).status, 401);
    assert.equal((await service.command('keys', 'resume', made.id)).code, 0);
  }
  assert.equal((await service.command('keys', 'revoke', made.id)).code, 0);
  assert.equal((await send('/v1/messages', {}, {}, made.key)).status, 401);

  interface Sum {
    readonly code: string;
    readonly model: string | null;
    readonly refused: number;
    readonly failed: number;
  }
  const refusedSum = async (): Promise<number> =>
    (await listed<Sum>('errors')).reduce((sum, { refused }) => sum + refused, 0);
  await until(async () => (await refusedSum()) === 4 * 6 + 1);
  const kept = await listed<RefusedShown>('refusals', '--limit', '100');
  for (const [code, status, model, id] of expected) {
    const row = kept.find(({ request_id: of }) => of === id);
    assert.deepEqual([row?.error_code, row?.status, row?.model], [code, status, model]);
    const shown = await service.command('explain', id);
    assert.match(shown.stdout, new RegExp(`refused with HTTP ${status}\\n[^]*code {5}${code}\\n`));
  }
  const ofKey = kept.filter(({ key_id: key }) => key === made.id);
  // Of those that came with one batch the last one is kept.
  assert.deepEqual([...new Set(ofKey.map(({ error_code: code }) => code))], ['invalid_api_key']);
  const zdr = kept.filter(({ error_code: code }) => code === 'model_zdr_not_supported');
  assert.deepEqual(
    zdr.map(({ client_request_id: id, message }) => [id, message]),
    Array.from({ length: 4 }, () => [null, null]),
  );
  assert.ok(!JSON.stringify(kept).includes('xyzzy'), 'nothing of a request is kept');

  const errors = await listed<Sum>('errors');
  const counts = new Map(errors.map(({ code, refused, failed }) => [code, [refused, failed]]));
  assert.deepEqual(counts.get('insufficient_credits'), [8, 0]);
  assert.deepEqual(counts.get('model_not_found'), [4, 0]);
  assert.deepEqual(counts.get('schema_validation_failed'), [4, 0]);
  assert.deepEqual(counts.get('invalid_api_key'), [5, 0]);
  const failures = errors.reduce((sum, { failed }) => sum + failed, 0);
  const usage = (await service.usage()).requests;
  assert.equal(failures, usage.filter(({ error }) => error !== null).length);
  assert.ok(failures >= 4);
  const byModel = await listed<Sum>('errors', '--by', 'model');
  assert.deepEqual(
    new Map(byModel.map(({ model, refused }) => [model, refused])),
    new Map([
      [null, 9],
      ['cheap', 4],
      ['dear', 12],
      ['failing', 0],
    ]),
  );
});
