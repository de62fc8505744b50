/** Upstreams that forget what an answer is bound to be: nobody gets such an answer, and nobody pays for it (§4.2.3, I2). */
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';

import { verifyAndDispose } from '../endings/endings-service.ts';
import { chatChunk, event, usageChunk } from '../support/upstream.ts';
import type { UpstreamHandler } from '../support/upstream.ts';
import {
  askFor,
  assertAnswered,
  assertFailed,
  assertReported,
  promptTokens,
  remote,
  serviceBefore,
  settled,
  upstreamThat,
} from './upstream-service.ts';

let texts: readonly string[] = [];
let pauseMs = 0;
const saying =
  (words: () => readonly string[]): UpstreamHandler =>
  async (exchange) => {
    exchange.events();
    for (const content of words()) {
      exchange.chunk(chatChunk({ content }));
      await new Promise((resolve) => setTimeout(resolve, pauseMs));
    }
    const usage = { prompt_tokens: promptTokens, completion_tokens: words().length };
    exchange.chunk(chatChunk({}, 'stop') + usageChunk(usage) + event('[DONE]'));
    exchange.endChunks();
  };
const forgetful = await upstreamThat(saying(() => texts));
const faithful = await upstreamThat(saying(() => ['yes']));
const names = ['whole', 'stream', 'late', 'two'];
const service = serviceBefore([
  ...names.slice(0, 3).map((name) => remote(name, [forgetful.url])),
  remote('two', [forgetful.url, faithful.url]),
  remote('dead', ['http://127.0.0.1:1/v1']),
]);
before(() => service.start());
after(() => verifyAndDispose(service).finally(() => Promise.all([forgetful.close(), faithful.close()])));

const failed = { code: 'backend_http_error', status: 502 } as const;
const bound = { regex: 'yes|no' };

for (const stream of [false, true]) {
  const model = stream ? 'stream' : 'whole';
  test(`a ${model} answer that was never bound: 502, uncharged, and then 400`, async () => {
    texts = ['Bl', 'ue.'];
    await settled(service, async (ledger) => {
      await assertFailed(ledger, await askFor(service, model, stream, bound), { ...failed, stream, delivered: 0 });
    });
    const next = await askFor(service, model, stream, bound);
    assert.equal(next.status, 400);
    assert.match(next.body, /unsupported_regex/);
    const free = await askFor(service, model, stream);
    assert.equal(free.status, 200);
    await assertReported(service, `${model}-0`, 'constraint_ignored', null);
  });
}

test('a stream whose text leaves its form ends with the failure, uncharged', async () => {
  texts = ['y', 'e', 'llow'];
  pauseMs = 60;
  await settled(service, async (ledger) => {
    await assertFailed(ledger, await askFor(service, 'late', true, bound), { ...failed, stream: true, delivered: 1 });
  });
  pauseMs = 0;
});

test('another backend of the model answers instead, and is paid once', async () => {
  texts = ['Blue.'];
  await settled(service, async (ledger) => {
    for (const stream of [false, true])
      await assertAnswered(ledger, await askFor(service, 'two', stream, bound), { text: 'yes', stream });
  });
});

test('§7.5 a backend that is away says when to come again', async () => {
  for (let i = 0; i < 4; i++) await askFor(service, 'dead', false);
  const answer = await askFor(service, 'dead', false);
  assert.equal(answer.status, 503);
  const seconds = Number(answer.headers.get('retry-after'));
  assert.ok(seconds >= 1 && seconds <= 5, `${seconds}`);
});
