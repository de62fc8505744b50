/** A real vLLM that loads adapters while it runs: three of them, and room for two. */
import assert from 'node:assert/strict';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, test } from 'node:test';

import { mulberry32 } from '../../support/random.ts';
import { TestService } from '../../support/service.ts';
import { TestLedger } from '../../support/test-ledger.ts';
import { writeLora } from './lora-files.ts';
import { contextLength, VllmServer } from './vllm-server.ts';

const names = ['red', 'green', 'blue'] as const;
const prices = { smollm2: 100n, red: 200n, green: 300n, blue: 400n } as Record<string, bigint>;
const folder = mkdtempSync(join(tmpdir(), 'adapters-'));
let server: VllmServer;
let service: TestService;

before(async () => {
  for (const [seed, name] of names.entries()) writeLora(join(folder, name), seed + 1);
  writeLora(join(folder, 'large'), 9, 64);
  server = await VllmServer.start('model', ['--enable-lora', '--max-loras', '2', '--max-lora-rank', '8']);
  const adapters = [...names, 'large', 'absent'].map(
    (name, index) => `      - { id: ${name}, price_multiple: ${index + 2} }`,
  );
  service = await new TestService({
    config: `models:
  - id: smollm2
    context_length: ${contextLength}
    pricing: { input_cents_per_million: 100, output_cents_per_million: 100 }
    adapters:
${adapters.join('\n')}
    backends:
      - ${server.backend.replace(/ }$/, `, load_adapters: { folder: "${folder}", loaded_max: 2 } }`)}`,
  }).start();
});

after(async () => {
  try {
    await service.verify();
  } finally {
    await service.dispose();
    await server.stop();
    rmSync(folder, { recursive: true, force: true });
  }
});

const messages = [{ role: 'user', content: 'Name three colours.' }];
const asked = { messages, temperature: 0, max_tokens: 12 };

async function ask(model: string, others: object = {}): Promise<{ readonly status: number; readonly text: string }> {
  const answer = await service.chat({ model, ...asked, ...others });
  return { status: answer.status, text: await answer.text() };
}

const contentOf = (body: unknown): string =>
  (body as { choices: { message: { content: string } }[] }).choices[0]!.message.content;

/** The adapters that the server says it has. */
async function loaded(): Promise<readonly string[]> {
  const { body } = await server.get('/models');
  return (body as { data: { id: string; parent: string | null }[] }).data
    .filter(({ parent }) => parent !== null)
    .map(({ id }) => id);
}

test('each is loaded by its first request, answers as it does without the service, and the one unused for longest leaves', async () => {
  assert.deepEqual(await loaded(), []);
  const texts = new Set<string>();
  for (const name of ['smollm2', ...names]) {
    const { status, text } = await ask(name);
    assert.equal(status, 200, text);
    const direct = await server.post('/chat/completions', { ...asked, model: name });
    assert.equal(contentOf(JSON.parse(text)), contentOf(direct.body), name);
    texts.add(contentOf(direct.body));
  }
  assert.equal(texts.size, 4, 'each has weights of its own');
  assert.deepEqual(await loaded(), ['green', 'blue']);
});

/** The tokens that would end them are forbidden. */
test('an answer ends with the adapter that it has begun with, although that is unloaded meanwhile', async () => {
  const long = await Promise.all(
    (['red', 'green'] as const).map((model) =>
      service.chat({ model, ...asked, max_tokens: 250, stream: true, logit_bias: { '0': -100, '2': -100 } }),
    ),
  );
  const rests = Promise.all(long.map((answer) => answer.text()));
  let isOver = false;
  void rests.then(() => (isOver = true));
  assert.equal((await ask('blue', { max_tokens: 1 })).status, 200);
  const there = await loaded();
  assert.ok(!isOver, 'both are still written');
  assert.ok(there.includes('blue') && there.length === 2, there.join(', '));
  for (const text of await rests) assert.match(text, /"finish_reason":"length"[\s\S]*\[DONE\]/);
});

test('under load of all three nobody fails, no more than two are there, and each is charged at its price', async (t) => {
  const random = mulberry32(3);
  const models = Array.from({ length: 40 }, () => ['smollm2', ...names][Math.floor(4 * random())]!);
  let most = 0;
  const left = [...models];
  const clients = Array.from({ length: 6 }, async () => {
    for (let model = left.pop(); model !== undefined; model = left.pop()) {
      const { status, text } = await ask(model, { max_tokens: 4 });
      assert.equal(status, 200, text);
      most = Math.max(most, (await loaded()).length);
    }
  });
  await Promise.all(clients);
  assert.equal(most, 2);
  const loads = service.log.filter(({ event }) => event === 'adapter_loaded');
  t.diagnostic(`${loads.length} loads, the longest of ${Math.max(...loads.map(({ ms }) => Number(ms)))} ms`);
  const rows = await new TestLedger(service).newest(40);
  for (const { modelId, promptTokens, completionTokens, costMicrocents } of rows)
    assert.equal(costMicrocents, BigInt(promptTokens + completionTokens) * prices[modelId]!, modelId);
  assert.deepEqual(rows.map(({ modelId }) => modelId).toSorted(), models.toSorted());
});

for (const [name, reason] of Object.entries({
  large: 'the server refuses it: its own log says why',
  absent: 'the folder does not have it',
}))
  test(`${name}: refused without a charge, and the operator reads that ${reason}`, async () => {
    const { status, text } = await ask(name);
    assert.equal(status, 503, text);
    const said = service.log.findLast(({ event }) => event === 'adapter_not_loaded');
    assert.deepEqual([said?.['adapter'], said?.['reason']], [name, reason]);
    assert.equal((await ask('green')).status, 200);
  });
