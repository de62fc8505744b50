/** What runs while the configuration changes goes on as it began: its prices, its model, its backend. */
import assert from 'node:assert/strict';
import { readFileSync, renameSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, test } from 'node:test';

import { TestLedger } from '../../support/test-ledger.ts';
import { RawClient, chatBytes, newRequestId } from '../../support/raw-client.ts';
import { TestService, until } from '../../support/service.ts';
import { Upstream, chatChunk, usageChunk } from '../../support/upstream.ts';
import { ask, demo, models, reload } from './scene.ts';

const service = new TestService({ config: models(demo()) });
before(() => service.start());
after(async () => {
  await service.verify();
  await service.dispose();
});

/** A stream that has begun. */
async function start(body: Record<string, unknown>): Promise<{ client: RawClient; id: string }> {
  const id = newRequestId();
  const client = await RawClient.connect(service.url);
  client.send(chatBytes(service.key, id, body));
  await until(() => client.events.length > 0, 30_000);
  return { client, id };
}

async function end({ client }: { client: RawClient }): Promise<void> {
  await until(() => client.text.includes('[DONE]'), 60_000);
  assert.ok(!client.text.includes('"error"'), client.tail(500));
}

test('a price that changes while a stream runs: the stream pays the old one, the next request the new one', async () => {
  const ledger = new TestLedger(service);
  const running = await start(ask('paced', { stream: true }));
  service.configure({ config: models(demo({ input: 7, output: 1_000 })) });
  const outcome = await reload(service);
  assert.deepEqual(outcome.kind === 'reloaded' && outcome.changes, [
    'model demo: input price $0.05 → $0.07 per million tokens',
    'model demo: output price $0.20 → $10.00 per million tokens',
    'model demo: price of cached tokens $0.05 → $0.07 per million tokens',
  ]);
  assert.ok(!running.client.text.includes('[DONE]'), 'it still runs');
  await end(running);
  const row = await ledger.row(running.id);
  assert.deepEqual([row.inputPrice, row.outputPrice, row.completionTokens], [5_000_000n, 20_000_000n, 100]);
  assert.equal(row.costMicrocents, BigInt(row.promptTokens) * 5n + 2_000n);

  const next = newRequestId();
  const answer = await service.chat(ask('hi'), { headers: { 'x-request-id': next } });
  assert.equal(answer.status, 200, await answer.text());
  const dearer = await ledger.row(next);
  assert.equal(dearer.costMicrocents, BigInt(dearer.promptTokens) * 7n + BigInt(dearer.completionTokens) * 1_000n);
  const list = (await (await fetch(`${service.url}/v1/models`)).json()) as {
    data: { service: { pricing: { output_cents_per_million: number } } }[];
  };
  assert.equal(list.data[0]?.service.pricing.output_cents_per_million, 1_000);
});

test('a model that is removed while it streams: the stream ends whole, the next request gets model_not_found', async () => {
  const ledger = new TestLedger(service);
  service.configure({ config: models(demo(), demo({ id: 'leaving' })) });
  await reload(service);
  const running = await start({ ...ask('paced', { stream: true }), model: 'leaving' });
  service.configure({ config: models(demo()) });
  const outcome = await reload(service);
  assert.deepEqual(outcome.kind === 'reloaded' && outcome.changes, ['model leaving: removed']);
  const refused = await service.chat({ ...ask('hi'), model: 'leaving' });
  assert.equal(refused.status, 404);
  assert.match(await refused.text(), /"model_not_found"/);
  await end(running);
  const row = await ledger.row(running.id);
  assert.deepEqual([row.ending, row.completionTokens], ['finished', 100]);
});

test('backends that change: an unchanged one keeps its connections, a removed one is closed with its last request', async (t) => {
  const waiting: (() => void)[] = [];
  // A server is asked for its models, too, with its first answer.
  const [keptSockets, goneSockets] = [new Set<unknown>(), new Set<unknown>()];
  const serving = (sockets: Set<unknown>) =>
    Upstream.start((request) => {
      if (request.method !== 'POST') return request.json(200, { data: [{ id: 'far' }] });
      sockets.add(request.socket);
      request.events();
      request.chunk(chatChunk({ role: 'assistant', content: 'one ' }));
      const finish = (): void => {
        request.chunk(chatChunk({}, 'stop'));
        request.chunk(usageChunk({ prompt_tokens: 7, completion_tokens: 2, total_tokens: 9 }));
        request.chunk('data: [DONE]\n\n');
        request.endChunks();
      };
      if (request.body.includes('wait')) waiting.push(finish);
      else finish();
    });
  const kept = await serving(keptSockets);
  const gone = await serving(goneSockets);
  t.after(() => Promise.all([kept.close(), gone.close()]));
  const backend = (name: string, { url }: Upstream): string =>
    // One place each, so that the second stream goes to the second backend.
    `      - { engine: openai, name: ${name}, flavor: openai, url: "${url}", max_concurrency: 1 }`;
  const far = (...backends: string[]): string => demo({ id: 'far', backends: backends.join('\n') });

  service.configure({ config: models(demo(), far(backend('kept', kept), backend('gone', gone))) });
  await reload(service);
  const first = await start({ ...ask('wait', { stream: true }), model: 'far' });
  const second = await start({ ...ask('wait', { stream: true }), model: 'far' });
  await until(() => waiting.length === 2);
  assert.deepEqual([keptSockets.size, goneSockets.size], [1, 1]);

  service.configure({ config: models(demo(), far(backend('kept', kept))) });
  const outcome = await reload(service);
  assert.deepEqual(outcome.kind === 'reloaded' && outcome.changes, ['model far: backend gone removed']);
  assert.ok(gone.open >= 1, 'its stream still runs');
  for (const finish of waiting.splice(0)) finish();
  await end(first);
  await end(second);
  await until(() => gone.open === 0, 30_000);
  for (let index = 0; index < 3; index++) {
    const answer = await service.chat({ ...ask('hi'), model: 'far' });
    assert.equal(answer.status, 200, await answer.text());
  }
  assert.deepEqual([keptSockets.size, goneSockets.size], [1, 1], 'the same connection, also after the reload');
});

test('a changed file is taken without being told, also when an editor replaces it, and on SIGHUP', async () => {
  const answers = async (): Promise<string> => await (await service.chat(ask('hi'))).text();
  service.configure({ config: models(demo({ answer: 'written in place' })) });
  await until(async () => (await answers()).includes('written in place'), 30_000);

  const file = join(service.folder, 'tokenhouse.yaml');
  const text = readFileSync(file, 'utf8').replace('written in place', 'replaced');
  const draft = join(service.folder, '.tokenhouse.yaml.swp');
  writeFileSync(draft, text);
  renameSync(draft, file);
  await until(async () => (await answers()).includes('replaced'), 30_000);

  service.configure({ config: models(demo({ answer: 'after a hangup' })) });
  process.kill(service.pid, 'SIGHUP');
  await until(async () => (await answers()).includes('after a hangup'), 30_000);
});

test('limits hold at once, for every account together and for requests that come', async () => {
  service.configure({ config: models(demo()), limits: '  concurrency_per_account_max: 1\n  body_bytes_max: 2000' });
  const outcome = await reload(service);
  assert.deepEqual(outcome.kind === 'reloaded' && outcome.changes.slice(1), [
    'limit bodyBytesMax: 52428800 → 2000',
    'limit concurrencyPerAccountMax: 64 → 1',
  ]);
  const running = await start(ask('paced', { stream: true }));
  assert.equal((await service.chat(ask('hi'))).status, 429);
  assert.equal((await service.chat(ask('x'.repeat(2_000)))).status, 413);
  await end(running);
  service.configure({ config: models(demo()) });
  await reload(service);
  assert.equal((await service.chat(ask('x'.repeat(2_000)))).status, 200);
});
