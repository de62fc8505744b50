/** Deadlines of an upstream that nothing it sends can move (reliability U2, U3, U7), through the whole service. */
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';

import { verifyAndDispose, errorOf, streamError } from '../endings/endings-service.ts';
import { chatChunk } from '../support/upstream.ts';
import type { UpstreamExchange, UpstreamHandler } from '../support/upstream.ts';
import {
  askFor,
  assertFailed,
  assertReported,
  remote,
  serviceBefore,
  settled,
  upstreamThat,
} from './upstream-service.ts';

let play: UpstreamHandler = () => {};
const upstream = await upstreamThat((exchange) => play(exchange));
const hasty = serviceBefore(
  [remote('slow', [upstream.url])],
  'first_token_timeout_seconds: 1\n  stream_idle_timeout_seconds: 1\n  request_timeout_seconds: 3',
);
before(() => hasty.start());
after(() => verifyAndDispose(hasty).finally(() => upstream.close()));

/** Writes again and again until the connection is closed. */
function drip(exchange: UpstreamExchange, everyMs: number, write: (count: number) => void): void {
  let count = 0;
  const timer = setInterval(() => write(count++), everyMs);
  void exchange.closed.then(() => clearInterval(timer));
}

const head = `HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nx-filler: ${'x'.repeat(10_000)}\r\n\r\n`;

const beforeText: readonly (readonly [string, string, UpstreamHandler])[] = [
  ['U2', 'accepts and is silent', () => {}],
  ['U2', 'sends a head and is silent', (exchange) => exchange.events()],
  [
    'U2',
    'sends comments and role chunks, but no text',
    (exchange) => {
      exchange.events();
      drip(exchange, 20, () => exchange.chunk(`: ping\n\n${chatChunk({ role: 'assistant', content: null })}`));
    },
  ],
  [
    'U3',
    'sends informational heads without end',
    (exchange) => drip(exchange, 5, () => exchange.write('HTTP/1.1 103 Early Hints\r\nlink: </x>\r\n\r\n')),
  ],
  ['U3', 'sends its head byte by byte', (exchange) => drip(exchange, 20, (count) => exchange.write(head[count] ?? ''))],
  [
    'U3',
    'sends an error body byte by byte',
    (exchange) => {
      exchange.write('HTTP/1.1 500 X\r\ncontent-length: 60000\r\n\r\n');
      drip(exchange, 20, () => exchange.write('x'));
    },
  ],
];

for (const [id, name, handler] of beforeText) {
  for (const stream of [true, false]) {
    test(`${id}: ${name}, ${stream ? 'streamed' : 'whole'}: 504, charged 0, and the upstream is let go`, async () => {
      play = handler;
      await settled(hasty, async (ledger) => {
        const answer = await askFor(hasty, 'slow', stream);
        await assertFailed(ledger, answer, { code: 'backend_timeout', status: 504, stream, delivered: 0 });
        await upstream.exchanges.at(-1)!.closed;
        await assertReported(hasty, 'slow-0', 'no_first_token_in_time', null);
      });
    });
  }
}

for (const stream of [true, false]) {
  const how = stream ? 'streamed' : 'whole';

  test(`U7: falls silent in mid-answer, ${how}: the error, charged 0, and the upstream is let go`, async () => {
    play = (exchange) => {
      exchange.events();
      exchange.chunk(chatChunk({ content: 'Hel' }));
    };
    await settled(hasty, async (ledger) => {
      const answer = await askFor(hasty, 'slow', stream);
      await assertFailed(ledger, answer, { code: 'backend_timeout', status: 504, stream, delivered: 1 });
      await upstream.exchanges.at(-1)!.closed;
      await assertReported(hasty, 'slow-0', 'silent_in_mid_answer', null);
    });
  });

  test(`U7: trickles for longer than a request may run, ${how}: ended by the deadline, charged 0`, async () => {
    play = (exchange) => {
      exchange.events();
      drip(exchange, 100, () => exchange.chunk(chatChunk({ content: 'word ' })));
    };
    await settled(hasty, async (ledger) => {
      const answer = await askFor(hasty, 'slow', stream, { max_tokens: 2_000 });
      const shown = stream ? streamError(answer.events) : errorOf(answer.body);
      assert.equal(answer.status, stream ? 200 : 504);
      assert.equal(shown.code, 'backend_timeout');
      const row = await ledger.row(answer.id);
      assert.deepEqual([row.ending, row.errorCode, row.costMicrocents], ['deadline', 'backend_timeout', 0n]);
      assert.ok(row.unchargedMicrocents > 0n);
      await upstream.exchanges.at(-1)!.closed;
    });
  });
}
