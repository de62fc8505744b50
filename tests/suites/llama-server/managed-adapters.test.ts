/** A real llama-server with two adapters that the service starts itself: one process for the base and both, whichever is asked for. */
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';

import { TestLedger } from '../../support/test-ledger.ts';
import { TestService, until } from '../../support/service.ts';
import { TinyModels, baseWithAdapters, llamaServerBinary } from './llama-server.ts';

const models = new TinyModels();
let service: TestService;

before(async () => {
  const { modelFile, loras } = baseWithAdapters(models);
  const command = [
    ...[llamaServerBinary(), '-m', modelFile, '--lora', loras, '--host', '127.0.0.1'],
    ...['--port', '{port}', '-np', '2', '-c', '8192', '--jinja', '--no-warmup', '-t', '1', '--no-webui'],
  ];
  service = await new TestService({
    config: `models:
  - id: base
    context_length: 2048
    pricing: { input_cents_per_million: 100, output_cents_per_million: 100 }
    adapters:
      - { id: legal, lora_id: 0, price_multiple: 2 }
      - { id: sales, lora_id: 1, price_multiple: 3 }
    backends:
      - engine: openai
        flavor: llama-server
        managed: { command: ${JSON.stringify(command)}, idle_stop_minutes: 0.02 }`,
  }).start();
});

after(async () => {
  await service.verify();
  await service.dispose();
  models.dispose();
});

const events = (event: string) => service.log.filter((line) => line['event'] === `server_${event}`);
const pid = (): number => Number(events('starting').at(-1)?.['pid']);

async function said(model: string): Promise<string> {
  const answer = await service.chat({ model, messages: [{ role: 'user', content: '<ask>' }], temperature: 0 });
  const text = await answer.text();
  assert.equal(answer.status, 200, text);
  return /base|legal|sales/.exec(text.replaceAll(/"model":"\w+"/g, ''))?.[0] ?? text;
}

const names = ['base', 'legal', 'sales'] as const;
const all = async (order: readonly string[]): Promise<void> =>
  assert.deepEqual(await Promise.all(order.map(said)), order);

test('an adapter that is asked for first starts the server, and all three are served by it', async () => {
  assert.equal(events('starting').length, 0);
  await all(['sales', 'base', 'legal', 'sales', 'base', 'legal']);
  assert.equal(events('starting').length, 1);
  assert.deepEqual(new Set(events('ready').map(({ model }) => model)), new Set(['base']));
});

const ends = {
  'was killed': () => process.kill(pid(), 'SIGKILL'),
  'was stopped because it was idle': () => {},
} as const;
for (const [what, end] of Object.entries(ends))
  for (const first of names)
    test(`after it ${what}, ${first} is asked for first, and each is answered with its own adapter`, async () => {
      await all(names);
      const before = events('starting').length;
      const gone = events('failed').length + events('stopped').length;
      end();
      await until(() => events('failed').length + events('stopped').length > gone);
      assert.equal(await said(first), first);
      await all([...names, ...names.toReversed()]);
      assert.equal(events('starting').length, before + 1);
    });

test('they are charged apart', async () => {
  const rows = await new TestLedger(service).newest(200);
  const perToken = { base: 100n, legal: 200n, sales: 300n } as Record<string, bigint>;
  assert.deepEqual(new Set(rows.map(({ modelId }) => modelId)), new Set(names));
  for (const { modelId, promptTokens, completionTokens, costMicrocents } of rows)
    assert.equal(costMicrocents, BigInt(promptTokens + completionTokens) * perToken[modelId]!, modelId);
});
