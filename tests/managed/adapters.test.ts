/** A server that the service starts, and that is told which adapters to load: what it had loaded ends with it. */
import assert from 'node:assert/strict';
import { existsSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { built } from '../support/built.ts';
import { TestService, until } from '../support/service.ts';

const program = built('tests/support/model-server.ts');
const options = (price: number) => ({
  config: `models:
  - id: a
    context_length: 4096
    pricing: { input_cents_per_million: 100, output_cents_per_million: 100 }
    adapters:
      - { id: legal, price_multiple: ${price} }
      - { id: sales, adapter: sold, price_multiple: 3 }
    backends:
      - engine: openai
        flavor: vllm
        load_adapters: { folder: /adapters, loaded_max: 1 }
        managed: { command: ["${process.execPath}", "${program}", "{port}", "a.log", "100"] }`,
});

let service: TestService;
before(async () => {
  service = await new TestService(options(2)).start();
});
after(async () => {
  await service.verify();
  await service.dispose();
});

const events = (): readonly string[] => {
  const file = join(service.folder, 'a.log');
  return existsSync(file) ? readFileSync(file, 'utf8').trim().split('\n') : [];
};
const loads = (): readonly string[] => events().filter((line) => /^(un)?load /.test(line));
const starts = (): readonly string[] => events().filter((line) => line.startsWith('start '));

async function ask(model: string, content = 'hello'): Promise<number> {
  const answer = await service.chat({ model, messages: [{ role: 'user', content }] });
  await answer.text();
  return answer.status;
}

test('the first request for an adapter starts the server and has it loaded', async () => {
  assert.equal(await ask('legal'), 200);
  assert.equal(await ask('a'), 200);
  assert.equal(await ask('legal'), 200);
  assert.equal(await ask('sales'), 200);
  assert.deepEqual(loads(), ['load legal /adapters/legal', 'unload legal', 'load sold /adapters/sold']);
  assert.equal(starts().length, 1);
});

for (const model of ['sales', 'legal'])
  test(`after a crash ${model} is loaded by its next request`, async () => {
    await ask('a', 'crash');
    const [before, began] = [loads().length, starts().length];
    await until(async () => (await ask(model)) === 200);
    const name = model === 'sales' ? 'sold' : model;
    assert.deepEqual(loads().slice(before), [`load ${name} /adapters/${name}`]);
    assert.equal(starts().length, began + 1);
  });

test('a changed price leaves the server and what it has loaded', async () => {
  const before = [...loads(), ...starts()];
  service.configure(options(5));
  assert.equal((await service.command('reload')).code, 0);
  assert.equal(await ask('legal'), 200);
  assert.deepEqual([...loads(), ...starts()], before);
  const { requests } = await service.usage(1);
  assert.deepEqual([requests[0]!.model, requests[0]!.cost_microcents], ['legal', 12 * 500]);
});
