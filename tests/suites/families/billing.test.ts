/** The same generation costs the same to the microcent, whichever family carried it, whole and streamed. */
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';

import { TestLedger } from '../../support/test-ledger.ts';
import { TestService } from '../../support/service.ts';
import { Upstream, chatChunk, event, usageChunk } from '../../support/upstream.ts';
import { ask, say } from './exchange.ts';
import { families, lengthWords } from './families.ts';

const options = { timeout: 300_000 };

/** Microcents for a million tokens; products with these end in fractions that are rounded. */
const prices = { input: 7_333_333n, output: 19_777_777n, cacheRead: 1_499_999n };
const cents = (microcents: bigint): string =>
  `${microcents / 1_000_000n}.${String(microcents % 1_000_000n).padStart(6, '0')}`;

/** No tokenizer makes more tokens of a text than it has bytes, and no more are charged. */
const longPrompt = 'Say hello. '.repeat(400);

/** What the backend says it did; 0 reasoning where an answer is text alone. */
let played = { prompt: 0, cached: 0, completion: 0, reasoning: 0, finish: 'stop' };
const upstream = await Upstream.start((exchange) => {
  if (exchange.path === '/tokenize')
    return exchange.json(200, { count: played.prompt, max_model_len: 8_192, tokens: [] });
  const isText = exchange.path === '/v1/completions';
  if (!isText && exchange.path !== '/v1/chat/completions') return exchange.json(200, {});
  const { prompt, cached, completion, reasoning, finish } = played;
  const textChunk = (text: string, finishReason: string | null): string =>
    event({
      id: 'cmpl-1',
      object: 'text_completion',
      created: 1,
      model: 'm',
      choices: [{ index: 0, text, logprobs: null, finish_reason: finishReason }],
    });
  exchange.events();
  exchange.chunk(
    [
      ...(isText
        ? [textChunk('Hello', null), textChunk(' there.', finish)]
        : [
            chatChunk({ role: 'assistant', content: '' }),
            ...(reasoning > 0 ? [chatChunk({ reasoning_content: 'Hm.' })] : []),
            chatChunk({ content: 'Hello' }),
            chatChunk({ content: ' there.' }),
            chatChunk({}, finish),
          ]),
      usageChunk({
        prompt_tokens: prompt,
        completion_tokens: completion,
        total_tokens: prompt + completion,
        prompt_tokens_details: { cached_tokens: cached },
        completion_tokens_details: { reasoning_tokens: reasoning },
      }),
      event('[DONE]'),
    ].join(''),
  );
  exchange.endChunks();
});
const service = new TestService({
  config: `models:
  - id: demo
    context_length: 8192
    max_output_tokens: 1000
    pricing:
      input_cents_per_million: ${cents(prices.input)}
      output_cents_per_million: ${cents(prices.output)}
      cache_read_microcents_per_million: ${prices.cacheRead}
    reasoning: { efforts: [none, low], default: low }
    backends: [ { engine: openai, flavor: vllm, url: "${upstream.url}" } ]`,
});
before(() => service.start(), options);
after(async () => {
  await service.verify();
  await service.dispose();
  await upstream.close();
});

/** Rounded up once. */
const costOf = ({ prompt, cached, completion }: typeof played): bigint => {
  const sum =
    BigInt(prompt - cached) * prices.input + BigInt(cached) * prices.cacheRead + BigInt(completion) * prices.output;
  return (sum + 999_999n) / 1_000_000n;
};

for (const generation of [
  { prompt: 321, cached: 100, completion: 41, reasoning: 0, finish: 'stop' },
  { prompt: 321, cached: 100, completion: 41, reasoning: 13, finish: 'stop' },
  { prompt: 1, cached: 0, completion: 1, reasoning: 0, finish: 'stop' },
  { prompt: 7, cached: 7, completion: 3, reasoning: 0, finish: 'length' },
  { prompt: 4_097, cached: 4_096, completion: 999, reasoning: 998, finish: 'length' },
]) {
  // Token ids and texts have no reasoning of its own.
  const carried = families.filter(({ name }) => generation.reasoning === 0 || name !== 'completions');
  test(
    `${JSON.stringify(generation)} costs ${costOf(generation)} microcents on ${carried.map(({ name }) => name).join(', ')}`,
    options,
    async () => {
      played = generation;
      const ledger = new TestLedger(service);
      for (const family of carried) {
        for (const stream of [false, true]) {
          const about = `${family.name}, ${stream ? 'streamed' : 'whole'}`;
          const balance = await ledger.balance();
          const { id, status, text } = await ask(service, family, say(longPrompt, { stream, maxTokens: 1_000 }));
          assert.equal(status, 200, `${about}: ${text}`);
          const read = stream ? family.readStream(text) : family.readWhole(text);
          assert.equal(read.text, 'Hello there.', about);
          assert.equal(read.thought?.text, generation.reasoning > 0 ? 'Hm.' : undefined, about);
          const { finish, ...counts } = generation;
          assert.deepEqual(read.usage, counts, about);
          if (finish === 'length') assert.equal(read.finish, lengthWords[family.name], about);
          const row = await ledger.row(id);
          assert.deepEqual(
            [
              row.ending,
              row.promptTokens,
              row.cachedTokens,
              row.completionTokens,
              row.reasoningTokens,
              row.costMicrocents,
            ],
            ['finished', counts.prompt, counts.cached, counts.completion, counts.reasoning, costOf(generation)],
            about,
          );
          assert.equal(await ledger.balance(), balance - costOf(generation), about);
        }
      }
    },
  );
}
