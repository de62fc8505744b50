/**
 * One of two equal backends has a fault in 1, 10 or 100 % of its requests. What clients see: nothing, as long as the fault comes before
 * the first text; and what the fleet spends on it is bounded (docs/decisions/031-failing-backends.md).
 */
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { mulberry32 } from '../support/random.ts';
import { InnerService } from '../support/service.ts';
import type { TestService } from '../support/service.ts';
import { chatChunk, event, Upstream, usageChunk } from '../support/upstream.ts';
import type { UpstreamExchange } from '../support/upstream.ts';

const requests = 40;
const usage = { prompt_tokens: 3, completion_tokens: 1 };
const say = (exchange: UpstreamExchange, reported: object = usage): void => {
  exchange.events();
  exchange.chunk(chatChunk({ content: 'hello' }) + chatChunk({}, 'stop') + usageChunk(reported) + event('[DONE]'));
  exchange.endChunks();
};

interface Fault {
  readonly play: (exchange: UpstreamExchange) => void;
  /**
   * How many of the requests reach the faulty backend when every one of them fails there: it is left out, and tried again seldom. On a
   * slow machine one more for each second that they take.
   */
  readonly reachedMax: number;
}

const faults: Readonly<Record<string, Fault>> = {
  'answers 500': { play: (exchange) => exchange.json(500, {}), reachedMax: 8 },
  'closes the connection': { play: (exchange) => exchange.reset(), reachedMax: 8 },
  'has another model': { play: (exchange) => exchange.json(404, {}), reachedMax: 8 },
  'ends before the first text': {
    play: (exchange) => {
      exchange.events();
      exchange.chunk(chatChunk({ role: 'assistant' }));
      exchange.endChunks();
    },
    reachedMax: 8,
  },
  'says nothing': { play: () => {}, reachedMax: 8 },
  'drips, and never says a word': {
    play: (exchange) => {
      exchange.events();
      const drip = setInterval(() => exchange.chunk(': still here\n\n'), 50);
      exchange.socket.once('close', () => clearInterval(drip));
    },
    reachedMax: 8,
  },
  // What it says is cut to what is possible, and the answer is whole: no reason to leave it out.
  'counts a billion tokens': {
    play: (exchange) => say(exchange, { prompt_tokens: 1e9, completion_tokens: 1e9 }),
    reachedMax: requests,
  },
};

let fault: Fault['play'] = () => {};
let share = 0;
let random = mulberry32(1);
let bad: Upstream;
let good: Upstream;
let service: TestService;

before(async () => {
  bad = await Upstream.start((exchange) => (random() < share ? fault(exchange) : say(exchange)));
  good = await Upstream.start((exchange) => say(exchange));
  const models = Object.keys(faults).flatMap((_, index) => [1, 10, 100].map((percent) => `m-${index}-${percent}`));
  service = await new InnerService({
    limits: '  first_token_timeout_seconds: 1',
    config: `models:
${models
  .map(
    (id) => `  - id: ${id}
    context_length: 4096
    pricing: { input_cents_per_million: 5, output_cents_per_million: 20 }
    backends:
      - { engine: openai, name: bad, flavor: vllm, url: "${bad.url}" }
      - { engine: openai, name: good, flavor: vllm, url: "${good.url}" }`,
  )
  .join('\n')}
`,
  }).start();
});
after(async () => {
  await service.verify();
  await service.dispose();
  await bad.close();
  await good.close();
});

for (const [index, [name, { play, reachedMax }]] of Object.entries(faults).entries())
  for (const percent of [1, 10, 100])
    test(`${name} in ${percent} % of its requests: every client gets its answer`, async (t) => {
      fault = play;
      share = percent / 100;
      random = mulberry32(percent);
      bad.exchanges.length = 0;
      good.exchanges.length = 0;
      const startedAt = performance.now();
      for (let count = 0; count < requests; count++) {
        const answer = await service.chat({
          model: `m-${index}-${percent}`,
          messages: [{ role: 'user', content: `hi ${count}` }],
        });
        const text = await answer.text();
        assert.equal(answer.status, 200, text);
        assert.ok(text.includes('hello'));
      }
      const [reached, others] = [bad.exchanges.length, good.exchanges.length];
      const seconds = Math.floor((performance.now() - startedAt) / 1000);
      t.diagnostic(`${reached} at the faulty one, ${others} at the other, within ${seconds} s`);
      assert.ok(percent < 100 ? reached > requests / 4 : reached <= reachedMax + seconds, `${reached} reached it`);
      assert.ok(reached + others <= requests * 1.3, 'retries are few');
    });
