import assert from 'node:assert/strict';
import { after, before, beforeEach, test } from 'node:test';

import type { TestService } from '../../support/service.ts';
import { InnerService, until } from '../../support/service.ts';
import { chatChunk, event, Upstream, usageChunk } from '../../support/upstream.ts';
import type { UpstreamExchange } from '../../support/upstream.ts';

/** Backends that differ in nothing but name and address share the load; the others are what they fall back to. */
let service: TestService;
const names = ['gpu-1', 'fallback', 'gpu-2'] as const;
const servers = new Map<string, Upstream>();
/** Answers that are held back, by server. */
let held = new Map<string, UpstreamExchange[]>();
let isHeld = false;
let failing = new Set<string>();
let answered = 0;

function answer(exchange: UpstreamExchange): void {
  exchange.events();
  exchange.chunk(
    chatChunk({ content: 'hello' }) +
      chatChunk({}, 'stop') +
      usageChunk({ prompt_tokens: 1, completion_tokens: 1 }) +
      event('[DONE]'),
  );
  exchange.endChunks();
}

before(async () => {
  for (const name of names) {
    const server = await Upstream.start((exchange) => {
      if (failing.has(name)) exchange.json(500, {});
      else if (isHeld) held.get(name)!.push(exchange);
      else answer(exchange);
    });
    servers.set(name, server);
  }
  const backend = (name: string, more: string): string =>
    `      - { engine: openai, name: ${name}, flavor: vllm, url: "${servers.get(name)!.url}"${more} }`;
  service = await new InnerService({
    config: `models:
  - id: m
    context_length: 4096
    pricing: { input_cents_per_million: 5, output_cents_per_million: 20 }
    backends:
${backend('gpu-1', ', max_concurrency: 8')}
${backend('fallback', ', max_concurrency: 9')}
${backend('gpu-2', ', max_concurrency: 8, queue: 3')}`,
  }).start();
});
beforeEach(() => {
  held = new Map(names.map((name) => [name, []]));
  isHeld = false;
  answered = 0;
  failing = new Set();
  for (const server of servers.values()) server.exchanges.length = 0;
});
after(async () => {
  await service.verify();
  await service.dispose();
  for (const server of servers.values()) await server.close();
});

async function ask(): Promise<void> {
  const got = await service.chat({ model: 'm', messages: [{ role: 'user', content: 'hi' }] });
  assert.equal(got.status, 200, await got.text());
  answered++;
}
const counts = (): readonly number[] => names.map((name) => servers.get(name)!.exchanges.length);
const heldCount = (): number => [...held.values()].flat().length;
const free = (name: string): void => {
  for (const exchange of held.get(name)!.splice(0)) answer(exchange);
};

test('ten requests at once are five for each of two equal backends', async () => {
  isHeld = true;
  const answers = Array.from({ length: 10 }, ask);
  await until(() => heldCount() === 10, 30_000);
  assert.deepEqual(counts(), [5, 0, 5]);
  for (const name of names) free(name);
  await Promise.all(answers);
});

test('ten requests one after another are five for each: those with equally much to do take turns', async () => {
  for (let count = 0; count < 10; count++) await ask();
  assert.deepEqual(counts(), [5, 0, 5]);
});

test('the one with less to do is taken until both have equally much', async () => {
  isHeld = true;
  const first = Array.from({ length: 6 }, ask);
  await until(() => heldCount() === 6, 30_000);
  assert.deepEqual(counts(), [3, 0, 3]);
  free('gpu-2');
  await until(() => answered === 3, 30_000);
  const later = Array.from({ length: 3 }, ask);
  await until(() => heldCount() === 6, 30_000);
  assert.deepEqual(counts(), [3, 0, 6]);
  for (const name of names) free(name);
  await Promise.all([...first, ...later]);
});

test('a backend that differs gets requests when all equal ones before it are full', async () => {
  isHeld = true;
  const answers = Array.from({ length: 17 }, ask);
  await until(() => heldCount() === 17, 30_000);
  assert.deepEqual(counts(), [8, 1, 8]);
  for (const name of names) free(name);
  await Promise.all(answers);
});

test('a request that fails at one goes to its equal, and to the fallback when that fails too', async () => {
  failing = new Set(['gpu-1']);
  await ask();
  await ask();
  assert.equal(counts()[1], 0);
  failing = new Set(['gpu-1', 'gpu-2']);
  await ask();
  assert.equal(counts()[1], 1);
});

test('a request that all of them fail is tried again as often as there are others, and ends with the failure', async () => {
  failing = new Set(names);
  const metric = async (): Promise<number> => {
    const page = await (await fetch(`${service.accountUrl}/metrics`)).text();
    return Number(/^tokenhouse_model_retries_total\{model="m"\} (\d+)$/m.exec(page)?.[1]);
  };
  const before = await metric();
  const answer = await service.chat({ model: 'm', messages: [{ role: 'user', content: 'hi' }] });
  assert.equal(answer.status, 502, await answer.text());
  assert.deepEqual(counts(), [1, 1, 1]);
  assert.equal((await metric()) - before, 2);
});

test('a backend that fails three requests in a row gets no fourth; no client sees it, and an operator does', async () => {
  failing = new Set(['gpu-1']);
  for (let count = 0; count < 12; count++) await ask();
  assert.ok(counts()[0]! <= 4, 'three, and one that tries after the pause on a slow machine');
  assert.equal(counts()[1], 0);
  const ejected = service.log.filter(({ event }) => event === 'backend_ejected');
  assert.ok(ejected.some(({ backend, failures_in_a_row }) => backend === 'gpu-1' && failures_in_a_row === 3));
  const page = await (await fetch(`${service.accountUrl}/metrics`)).text();
  assert.match(page, /^tokenhouse_backend_ejected\{model="m",backend="gpu-1"\} 1$/m);
  assert.match(page, /^tokenhouse_model_retries_refused_total\{model="m"\} 0$/m);
  failing = new Set();
  await until(async () => {
    await ask();
    return service.log.some(({ event, backend }) => event === 'backend_returned' && backend === 'gpu-1');
  }, 60_000);
});
