import assert from 'node:assert/strict';
import { createServer } from 'node:net';
import type { AddressInfo } from 'node:net';
import { after, before, test } from 'node:test';

import { TestService, scriptedModel } from '../../support/service.ts';
import { askChat, plainBody } from './chat.ts';
import { assertEnvelope } from './envelope.ts';
import { exchange } from './raw.ts';

/** A model that no source delivers, and a backend that nobody runs: the service starts and says so. */
const closedPort = await freePort();
const sha256 = 'b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53';
const service = new TestService({
  environment: { TOKENHOUSE_MODEL_DIR: '/nonexistent/tokenhouse-models' },
  config: `${scriptedModel('- say: [ { text: "hello" } ]')}
  - id: unfetched
    context_length: 4096
    pricing: { input_cents_per_million: 5, output_cents_per_million: 20 }
    backends:
      - engine: llama
        sources: [ "file:./missing.gguf", "https://127.0.0.1:${closedPort}/model.gguf" ]
        sha256: ${sha256}
  - id: unreached
    context_length: 4096
    pricing: { input_cents_per_million: 5, output_cents_per_million: 20 }
    backends: [ { engine: openai, flavor: openai, url: "http://127.0.0.1:${closedPort}/v1" } ]`,
});
before(() => service.start());
after(async () => {
  await service.verify();
  await service.dispose();
});

test('the start says which sources failed, why, and what to do', () => {
  const said = service.output;
  assert.match(said, /ready in/);
  assert.match(said, /model +demo · scripted · ready/);
  assert.match(said, /model +unfetched · llama · not available, its requests get 503 no_healthy_backends/);
  assert.match(said, /missing\.gguf: the file does not exist/);
  assert.match(said, new RegExp(`127\\.0\\.0\\.1:${closedPort}/model\\.gguf: .*refuses the connection`));
  assert.match(said, new RegExp(`or {3}put the file \\(sha256 ${sha256}\\) into .*TOKENHOUSE_MODEL_DIR`));
  assert.match(said, /or {3}add another source to the model in tokenhouse\.yaml/);
  assert.doesNotMatch(said, /^ {4}at /m);
});

test('its requests get 503 no_healthy_backends with the model, streamed or not, and cost nothing', async () => {
  for (const stream of [false, true]) {
    const answer = await askChat(service, { ...plainBody, model: 'unfetched', stream });
    const error = assertEnvelope(answer, 'no_healthy_backends', { extra: ['model'] });
    assert.equal(error['model'], 'unfetched');
    assert.doesNotMatch(String(error['message']), /loaded|missing\.gguf|127\.0\.0\.1/);
  }
  const { requests, balanceMicrocents } = await service.usage();
  assert.ok(requests.every((line) => line.cost_microcents === 0));
  assert.equal(balanceMicrocents, 500_000_000);
});

test('a backend that refuses connections is backend_connect_error with the model', async () => {
  const answer = await askChat(service, { ...plainBody, model: 'unreached' });
  const error = assertEnvelope(answer, 'backend_connect_error', { extra: ['model'] });
  assert.equal(error['model'], 'unreached');
  assert.doesNotMatch(String(error['message']), /127\.0\.0\.1/);
});

test('the other models are served, and all cards are shown', async () => {
  assert.equal((await askChat(service)).status, 200);
  const { data } = (await exchange(service.url, { path: '/v1/models' })).json() as { data: { id: string }[] };
  assert.deepEqual(
    data.map(({ id }) => id),
    ['demo', 'unfetched', 'unreached'],
  );
});

/** A port that was free a moment ago, on which nobody listens. */
async function freePort(): Promise<number> {
  const server = createServer();
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const { port } = server.address() as AddressInfo;
  await new Promise<void>((resolve) => server.close(() => resolve()));
  return port;
}
