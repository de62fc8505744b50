import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';

import { askChat, plainBody } from '../inference/http/chat.ts';
import { assertEnvelope } from '../inference/http/envelope.ts';
import { RawConnection, exchange } from '../inference/http/raw.ts';
import { InnerService, scriptedModel } from '../support/service.ts';

/**
 * Specification parts 8 and 9. Limits of length are proved in `4.2.1-output-length.test.ts`, the tags of requests in
 * `4.2.6-zdr.test.ts`, limits of concurrency in `7-errors.test.ts`, retirement in `3-retirement.test.ts`.
 */
const service = new InnerService({ config: scriptedModel('- say: [ { text: "hello" } ]') });
before(() => service.start());
after(() => service.dispose());

test('§8 a request body of 50 MB is refused before it is sent, one byte less is waited for', async () => {
  const head = (bytes: number): string =>
    [
      'POST /v1/chat/completions HTTP/1.1',
      'Host: localhost',
      `Authorization: Bearer ${service.key}`,
      'Content-Type: application/json',
      `Content-Length: ${bytes}`,
      'Expect: 100-continue',
      '\r\n',
    ].join('\r\n');
  const refused = await RawConnection.open(service.url);
  refused.write(head(50 * 1024 * 1024));
  assertEnvelope(await refused.answer(), 'request_body_too_large');
  refused.close();
  const taken = await RawConnection.open(service.url);
  taken.write(head(50 * 1024 * 1024 - 1));
  await taken.waitFor(() => taken.received !== '' || taken.isEnded);
  assert.match(taken.received, /^HTTP\/1\.1 100 /);
  taken.close();
});

test('§8 the context window holds prompt and generated tokens together; exceeding it gives 400', async () => {
  const messages = [{ role: 'user', content: 'word '.repeat(9000) }];
  const error = assertEnvelope(await askChat(service, { ...plainBody, messages }), 'context_length_exceeded', {
    param: 'messages',
    extra: ['model', 'context_length_limit', 'prompt_tokens', 'max_tokens', 'suggested_models'],
  });
  assert.equal(error['context_length_limit'], 8192);
});

test('§9.1 the version of the API is the prefix /v1, and there is no other', async () => {
  assert.equal((await exchange(service.url, { path: '/v1/models' })).status, 200);
  for (const path of ['/models', '/v2/models', '/V1/models', '/v1/v1/models'])
    assertEnvelope(await exchange(service.url, { path }), 'http_404');
});

test('§9.2 the catalog is read at runtime: a model that is added can be used, one that is removed cannot', async () => {
  const idsNow = async (): Promise<unknown> =>
    ((await exchange(service.url, { path: '/v1/models' })).json()['data'] as { id: string }[]).map(({ id }) => id);
  const reload = async (config: string): Promise<void> => {
    service.configure({ config });
    const { code, stderr } = await service.command('reload');
    assert.equal(code, 0, stderr);
  };
  const demo = scriptedModel('- say: [ { text: "hello" } ]');
  assert.deepEqual(await idsNow(), ['demo']);
  await reload(`${demo}
  - id: second
    context_length: 512
    pricing: { input_cents_per_million: 5, output_cents_per_million: 20 }
    backends: [ { engine: scripted, scripts: [ { say: [ { text: hello } ] } ] } ]`);
  assert.deepEqual(await idsNow(), ['demo', 'second']);
  assert.equal((await askChat(service, { ...plainBody, model: 'second' })).status, 200);
  await reload(demo);
  assert.deepEqual(await idsNow(), ['demo']);
  const gone = await askChat(service, { ...plainBody, model: 'second' });
  assertEnvelope(gone, 'model_not_found', { param: 'model' });
});
