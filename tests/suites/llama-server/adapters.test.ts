/** A real llama-server with two adapters, which it applies to every request that does not say otherwise. */
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';

import { TestLedger } from '../../support/test-ledger.ts';
import { TestService } from '../../support/service.ts';
import { LlamaServer, TinyModels, baseWithAdapters, stopServer } from './llama-server.ts';

const models = new TinyModels();
let server: LlamaServer;
let service: TestService;

before(async () => {
  const { modelFile, loras } = baseWithAdapters(models);
  server = await LlamaServer.start({
    modelFile,
    slots: 2,
    // One option for all: releases differ in whether a second `--lora` adds one.
    arguments: ['--lora', loras],
  });
  service = await new TestService({
    config: `models:
  - id: base
    context_length: 2048
    pricing: { input_cents_per_million: 100, output_cents_per_million: 100 }
    adapters:
      - { id: legal, lora_id: 0, price_multiple: 2 }
      - { id: sales, lora_id: 1, price_multiple: 3 }
      - { id: faint, lora_id: 1, scale: 0.1 }
    backends: [ { engine: openai, flavor: llama-server, url: "${server.url}" } ]`,
  }).start();
});

after(async () => {
  await service.verify();
  await service.dispose();
  await stopServer(server);
  models.dispose();
});

const said = async (model: string, stream = false): Promise<string> => {
  const answer = await service.chat({ model, messages: [{ role: 'user', content: '<ask>' }], temperature: 0, stream });
  const text = await answer.text();
  assert.equal(answer.status, 200, text);
  return /base|legal|sales/.exec(text.replaceAll(/"model":"\w+"/g, ''))?.[0] ?? text;
};

test('each name is answered with its own adapter, and the base with none, also in turns and at once', async () => {
  const direct = await server.post('/v1/chat/completions', { messages: [{ role: 'user', content: '<ask>' }] });
  assert.doesNotMatch(await direct.text(), /"content":"base"/, 'left alone, the server applies adapters');
  const expected = [
    ['base', 'base'],
    ['legal', 'legal'],
    ['sales', 'sales'],
    ['faint', 'base'],
  ] as const;
  for (const stream of [false, true])
    for (const [model, text] of expected) assert.equal(await said(model, stream), text, model);
  const asked = Array.from({ length: 24 }, (_, turn) => expected[turn % expected.length]!);
  const answers = await Promise.all(asked.map(([model]) => said(model)));
  assert.deepEqual(
    answers,
    asked.map(([, text]) => text),
  );
  const completion = await fetch(`${service.url}/v1/completions`, {
    method: 'POST',
    headers: { authorization: `Bearer ${service.key}`, 'content-type': 'application/json' },
    body: JSON.stringify({ model: 'sales', prompt: '<ask>', temperature: 0, max_tokens: 4 }),
  });
  assert.match(await completion.text(), /"text":"sales"/);
});

test('they are charged apart', async () => {
  const rows = await new TestLedger(service).newest(100);
  const perToken = { base: 100n, legal: 200n, sales: 300n, faint: 100n } as Record<string, bigint>;
  assert.equal(rows.length, 33);
  for (const { modelId, promptTokens, completionTokens, costMicrocents } of rows)
    assert.equal(costMicrocents, BigInt(promptTokens + completionTokens) * perToken[modelId]!, modelId);
});
