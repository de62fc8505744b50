/** Models that the console adds by the command line's own command: fetched from a hub, tried, written, taken over and sold. */
import assert from 'node:assert/strict';
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, test } from 'node:test';

import type { FileServer } from '../inference/model-files/file-server.ts';
import { sha256Of } from '../support/folder.ts';
import { startHub, type HubFaults } from '../support/hub.ts';
import { TestService, until } from '../support/service.ts';
import { writeTinyGguf } from '../support/tiny-gguf.ts';
import { Visitor, type Reported } from '../support/visitor.ts';

const path = '/v1/admin/model_additions';
const made = mkdtempSync(join(tmpdir(), 'tokenhouse-additions-'));
const file = join(made, 'tiny-Q8_0.gguf');
writeTinyGguf(file, { script: [['assistant\n', 'Hello', ' there', '<|im_end|>']], contextLength: 2048 });
const bodies = new Map([['tiny-Q8_0.gguf', readFileSync(file)]]);
const faults: HubFaults = {};

let hub: FileServer;
let service: TestService;
let operator: Visitor;
before(async () => {
  hub = await startHub(bodies, faults);
  service = new TestService({
    config: `models:
  - id: first
    context_length: 4096
    pricing: { input_cents_per_million: 5, output_cents_per_million: 20 }
    backends: [ { engine: scripted, scripts: [ { say: [ { text: hi } ] } ] } ]
`,
    environment: {
      HF_ENDPOINT: hub.url,
      HTTPS_PROXY: 'http://127.0.0.1:9',
      NO_PROXY: '127.0.0.1',
      TOKENHOUSE_MODEL_DIR: join(made, 'cache'),
    },
  });
  operator = new Visitor(service);
  await service.start();
  await operator.becomeOwner();
});
after(async () => {
  await service.dispose();
  await hub.close();
  rmSync(made, { recursive: true, force: true });
});

const written = (): string => readFileSync(join(service.folder, 'tokenhouse.yaml'), 'utf8');
const add = (body: object): Promise<Reported> => operator.ask('POST', path, body);

/** The outcome of the one that runs. */
async function outcome() {
  await until(async () => (await operator.get(path)).last.state !== 'running', 120_000);
  return (await operator.get(path)).last;
}

test('what is no model of a hub or an https URL is refused, and nothing runs', async () => {
  assert.deepEqual(await operator.get(path), { object: 'model_additions', last: null });
  for (const source of [
    '',
    '--help',
    '/etc/passwd',
    './x.gguf',
    'hf:--help/x',
    'hf:o/r x',
    'file:///etc/passwd',
    'http://127.0.0.1/x',
  ]) {
    const { status, body } = await add({ source });
    assert.equal(status, 422, `${source}: ${JSON.stringify(body)}`);
  }
  const both = { free: true, pricing: { input_microcents_per_million: 1, output_microcents_per_million: 1 } };
  assert.equal((await add({ source: 'hf:o/r:Q8_0', ...both })).body.error.param, 'free');
  assert.equal((await operator.get(path)).last, null);
});

test('a stopped one writes nothing, and the next may begin at once; two at a time are refused', async () => {
  const before = written();
  const first = await add({ source: 'hf:o/r:Q8_0', free: true });
  assert.deepEqual([first.status, first.body.state], [202, 'running']);
  assert.equal((await add({ source: 'hf:o/r:Q8_0' })).status, 409);
  assert.equal((await operator.ask('DELETE', path)).body.last.state, 'stopped');
  assert.equal(written(), before);

  faults.oid = 'f'.repeat(64);
  assert.equal((await add({ source: 'hf:o/r:Q8_0' })).status, 202);
  const failed = await outcome();
  delete faults.oid;
  assert.equal(failed.state, 'failed');
  assert.match(failed.problem, /sha256|content/i);
  assert.equal(failed.model, null);
  assert.equal(written(), before);
});

test('it is sold at the price, answers at once, and the log of changes names it', async () => {
  const pricing = { input_microcents_per_million: 10_000_000, output_microcents_per_million: 12_345_678 };
  assert.equal((await add({ source: 'hf:o/r:Q8_0', model: 'tiny', pricing })).status, 202);
  const { state, model, problem } = await outcome();
  assert.deepEqual([state, problem], ['added', null]);
  assert.deepEqual([model.id, model.context_length, model.is_in_force], ['tiny', 2048, true]);
  assert.match(model.answer, /Hello there/);
  assert.match(written(), new RegExp(sha256Of(bodies.get('tiny-Q8_0.gguf')!)));
  const { data } = await operator.get('/v1/admin/models');
  const tiny = data.find(({ id }: { id: string }) => id === 'tiny');
  assert.equal(tiny.input_microcents_per_million, 10_000_000);
  assert.equal(tiny.output_microcents_per_million, 12_345_678);
  // It is taken over, and then loaded.
  const chat = () => service.chat({ model: 'tiny', messages: [{ role: 'user', content: 'hi' }] });
  await until(async () => (await chat()).status === 200, 60_000);
  const { data: changes } = await operator.get('/v1/admin/audit');
  assert.deepEqual(
    changes
      .filter(({ action }: { action: string }) => action === 'model.add')
      .map(({ target }: { target: string }) => target),
    // It is written first, so the one that was refused beside another is there too.
    Array.from({ length: 4 }, () => 'hf:o/r:Q8_0'),
  );
});

test('an id that is taken is refused as the command refuses it', async () => {
  assert.equal((await add({ source: 'hf:o/r:Q8_0', model: 'first' })).status, 202);
  const { state, problem } = await outcome();
  assert.equal(state, 'failed');
  assert.match(problem, /There is a model first already/);
});
