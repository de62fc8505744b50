/** An upstream that refuses more work (reliability U13), and the line in front of one that has no place left. */
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';

import { ask, verifyAndDispose, errorOf, send } from '../endings/endings-service.ts';
import { until } from '../support/service.ts';
import { chatChunk } from '../support/upstream.ts';
import type { UpstreamExchange, UpstreamHandler } from '../support/upstream.ts';
import {
  answerWell,
  askFor,
  assertAnswered,
  assertFailed,
  assertReported,
  endWell,
  remote,
  secret,
  serviceBefore,
  settled,
  upstreamThat,
} from './upstream-service.ts';

let play: UpstreamHandler = () => {};
const full = await upstreamThat((exchange) => play(exchange));
const sound = await upstreamThat((exchange) => answerWell(exchange));
/** What runs at the narrow backend, in the order of arrival. */
const running: UpstreamExchange[] = [];
const narrow = await upstreamThat((exchange) => {
  running.push(exchange);
  exchange.events();
  exchange.chunk(chatChunk({ content: 'Hel' }));
});
const service = serviceBefore([
  remote('full', [full.url]),
  remote('pair', [full.url, sound.url]),
  remote('narrow', [narrow.url], 'vllm', ', max_concurrency: 1, queue: 2'),
  remote('strict', [narrow.url], 'vllm', ', max_concurrency: 1, queue: 0'),
]);
before(() => service.start());
after(() =>
  verifyAndDispose(service).finally(() => Promise.all([full, sound, narrow].map((upstream) => upstream.close()))),
);

const inAMinute = (): string => new Date(Date.now() + 60_000).toUTCString();
const retryAfters: readonly (readonly [string, () => string | undefined, number, number])[] = [
  ['5', () => '5', 5, 5],
  ['0', () => '0', 1, 1],
  ['1e12', () => '1e12', 3_600, 3_600],
  ['a date', inAMinute, 30, 61],
  ['a date that is over', () => 'Wed, 21 Oct 2015 07:28:00 GMT', 1, 1],
  ['junk', () => `soon ${secret}`, 1, 1],
  ['none', () => undefined, 1, 1],
];

for (const [status, code, body] of [
  [429, 'backend_overloaded', { error: { message: secret } }],
  [503, 'backend_at_capacity', { object: 'error', message: `The request queue is full. ${secret}`, code: 503 }],
] as const) {
  for (const [name, header, min, max] of retryAfters) {
    test(`U13: ${status} with Retry-After ${name}: 429 ${code}, charged 0`, async () => {
      play = (exchange) => {
        const retryAfter = header();
        exchange.json(status, body, retryAfter === undefined ? {} : { 'retry-after': retryAfter });
      };
      await settled(service, async (ledger) => {
        for (const stream of [true, false]) {
          const answer = await askFor(service, 'full', stream);
          await assertFailed(ledger, answer, { code, status: 429, stream, delivered: 0 });
          const seconds = Number(answer.headers.get('retry-after'));
          assert.ok(Number.isInteger(seconds) && seconds >= min && seconds <= max, `Retry-After: ${seconds}`);
          const taken = await askFor(service, 'pair', stream);
          await assertAnswered(ledger, taken, { text: 'Hello', stream });
        }
        await assertReported(service, 'full-0', 'http_status', status);
      });
    });
  }
}

test('a full backend keeps requests in line, in order, and refuses what is beyond the line', async () => {
  running.length = 0;
  await settled(service, async (ledger) => {
    const first = await send(service, ask('hi', { model: 'narrow', stream: true }));
    await until(() => running.length === 1);
    const second = await send(service, ask('hi', { model: 'narrow', stream: true }));
    await until(async () => (await ledger.openRequests()) === 2);
    const third = await send(service, ask('hi', { model: 'narrow', stream: true }));
    await until(async () => (await ledger.openRequests()) === 3);
    const refused = await askFor(service, 'narrow', true);
    await assertFailed(ledger, refused, { code: 'backend_at_capacity', status: 429, stream: true, delivered: 0 });
    assert.equal(refused.headers.get('retry-after'), '1');
    assert.equal(running.length, 1, 'the others have not been sent');

    // A client that leaves the queue pays nothing: no backend has been asked.
    second.client.reset();
    const left = await ledger.row(second.id);
    assert.deepEqual([left.ending, left.costMicrocents, left.backend], ['client_left', 0n, null]);

    const fourth = await send(service, ask('hi', { model: 'narrow', stream: true }));
    await until(async () => (await ledger.openRequests()) === 3);
    for (const [place, { client, id }] of [first, third, fourth].entries()) {
      await until(() => running.length === place + 1);
      await until(() => client.events.some((data) => data.includes('Hel')));
      running[place]!.chunk(chatChunk({ content: 'lo' }));
      endWell(running[place]!);
      await until(() => client.events.at(-1) === '[DONE]');
      const row = await ledger.row(id);
      assert.deepEqual([row.ending, row.completionTokens, row.backend], ['finished', 2, 'narrow-0']);
      client.reset();
    }
  });
});

test('without a line a full backend refuses at once', async () => {
  running.length = 0;
  await settled(service, async () => {
    const { client } = await send(service, ask('hi', { model: 'strict', stream: true }));
    await until(() => running.length === 1);
    const refused = await askFor(service, 'strict', false);
    assert.equal(refused.status, 429);
    assert.equal(errorOf(refused.body).code, 'backend_at_capacity');
    endWell(running[0]!, 1);
    await until(() => client.events.at(-1) === '[DONE]');
    client.reset();
  });
});
