/** A program: an OpenAI-compatible server that fails in many ways, now and then. Prints its address when it listens. */
import { setTimeout as delay } from 'node:timers/promises';

import { mulberry32 } from '../../support/random.ts';
import { Upstream, chatChunk, event, usageChunk, type UpstreamExchange } from '../../support/upstream.ts';

/** The number of answers in a hundred that fail. */
const faultPercent = 2;
const random = mulberry32(Number(process.argv[2] ?? 1));
const below = (limit: number): number => Math.floor(random() * limit);

const upstream = await Upstream.start(async (exchange) => {
  // The class keeps them for tests that look; here they would only pile up.
  upstream.exchanges.length = 0;
  if (exchange.method !== 'POST') return exchange.json(404, { error: { message: 'no such route' } });
  if (random() * 100 < faultPercent) return await faults[below(faults.length)]!(exchange);
  await answer(exchange, 3 + below(40), below(8));
});
process.stdout.write(`${upstream.url}\n`);

const begin = (exchange: UpstreamExchange): void => {
  exchange.events();
  exchange.chunk(chatChunk({ role: 'assistant', content: '' }));
};

async function tokens(exchange: UpstreamExchange, count: number, paceMs: number): Promise<void> {
  for (let i = 0; i < count && !exchange.socket.destroyed; i++) {
    if (paceMs > 0) await delay(paceMs);
    exchange.chunk(chatChunk({ content: `word${i} ` }));
  }
}

async function answer(exchange: UpstreamExchange, count: number, paceMs: number): Promise<void> {
  begin(exchange);
  await tokens(exchange, count, paceMs);
  exchange.chunk(chatChunk({}, 'stop'));
  exchange.chunk(usageChunk({ prompt_tokens: 7, completion_tokens: count, total_tokens: 7 + count }));
  exchange.chunk(event('[DONE]'));
  exchange.endChunks();
}

/** reliability U2, U4 to U13: before the head, in the head, in mid-stream, and in what the events say. */
const faults: readonly ((exchange: UpstreamExchange) => void | Promise<void>)[] = [
  (exchange) => exchange.reset(),
  (exchange) => exchange.socket.end(),
  () => {}, // Silence until the other side gives up.
  (exchange) => exchange.json(500, { error: { message: 'upstream trouble' } }),
  (exchange) => exchange.json(429, { error: { message: 'busy' } }, { 'retry-after': '1' }),
  (exchange) => exchange.json(200, '<html>not JSON of a chat</html>'),
  (exchange) => exchange.json(401, { error: { message: 'the wrong key' } }),
  async (exchange) => {
    begin(exchange);
    await tokens(exchange, 3, 2);
    exchange.reset();
  },
  async (exchange) => {
    begin(exchange);
    await tokens(exchange, 3, 2);
    exchange.socket.end();
  },
  async (exchange) => {
    begin(exchange);
    await tokens(exchange, 3, 2); // And then silence.
  },
  async (exchange) => {
    begin(exchange);
    await tokens(exchange, 2, 2);
    exchange.chunk('data: {"choices":[{"delta":{"content":"cut\n\n');
    exchange.endChunks();
  },
  async (exchange) => {
    begin(exchange);
    await tokens(exchange, 2, 2);
    exchange.chunk(event({ error: { message: 'in the band', code: 500 } }));
    exchange.endChunks();
  },
  (exchange) => {
    begin(exchange);
    exchange.chunk(chatChunk({ content: 'x'.repeat(5_000_000) })); // Larger than one event may be.
    exchange.endChunks();
  },
  async (exchange) => {
    begin(exchange);
    await tokens(exchange, 2, 0);
    exchange.chunk(chatChunk({}, 'stop'));
    exchange.chunk(usageChunk({ prompt_tokens: -5, completion_tokens: 1e15, total_tokens: 'many' }));
    exchange.chunk(event('[DONE]'));
    exchange.endChunks();
  },
];
