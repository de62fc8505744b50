import assert from 'node:assert/strict';
import { test } from 'node:test';
import { event, usageChunk, type UpstreamHandler } from '../../../support/upstream.ts';
import { lastUsage, textOf } from '../contract.ts';
import { answeredBy } from './answered.ts';

/**
 * Conversations as LM Studio's documentation shows them (lmstudio-ai/docs at c6854fb: OpenAI compatibility, Tools; API changelog) and as
 * its users report errors (lmstudio-bug-tracker 546, 2205, anomalyco/opencode 11141): not run here.
 */
const chunk = (delta: object, finish: string | null = null): string =>
  event({
    ...{ id: 'chatcmpl-1', object: 'chat.completion.chunk', created: 1, model: 'm', system_fingerprint: 'm' },
    choices: [{ index: 0, delta, logprobs: null, finish_reason: finish }],
  });

const answered = (handler: UpstreamHandler) => answeredBy('lm-studio', handler);

for (const field of ['reasoning_content', 'reasoning'])
  test(`a thought in ${field}, a text, a call in pieces, and usage`, { timeout: 60_000 }, async () => {
    const piece = (fields: object): string => chunk({ tool_calls: [{ index: 0, ...fields }] });
    const batches = await answered((exchange) => {
      exchange.events();
      exchange.chunk(
        chunk({ role: 'assistant', [field]: 'Hm.' }) +
          chunk({ content: 'Hello' }) +
          piece({ id: '814890118', type: 'function', function: { name: 'f', arguments: '' } }) +
          piece({ function: { arguments: '{"' } }) +
          piece({ function: { arguments: 'a":1}' } }) +
          chunk({}, 'tool_calls') +
          usageChunk({ prompt_tokens: 11, completion_tokens: 5, total_tokens: 16 }) +
          event('[DONE]'),
      );
      exchange.endChunks();
    });
    const events = batches.flat();
    assert.equal(textOf(batches), 'Hello');
    assert.ok(events.some((one) => one.type === 'reasoning' && one.text === 'Hm.'));
    assert.ok(events.some((one) => one.type === 'tool-call' && one.name === 'f'));
    assert.equal(events.map((one) => (one.type === 'tool-arguments' ? one.text : '')).join(''), '{"a":1}');
    assert.ok(events.some((one) => one.type === 'finish' && one.reason === 'tool-calls'));
    const usage = lastUsage(batches)?.usage;
    assert.deepEqual([usage?.promptTokens, usage?.cachedTokens ?? 0, usage?.completionTokens], [11, 0, 5]);
  });

const tooLong: readonly (readonly [message: string, limit: number | undefined])[] = [
  [
    'Trying to keep the first 111490 tokens when context the overflows. However, the model is loaded with context length of only 32768 tokens, which is not enough. Try to load the model with a larger context length, or provide a shorter input.',
    32_768,
  ],
  [
    'The number of tokens to keep from the initial prompt is greater than the context length. Try to load the model with a larger context length, or provide a shorter input',
    undefined,
  ],
  ['Cannot truncate prompt with n_keep (15028) >= n_ctx (7424)', 7_424],
  ['The number of tokens to keep exceeds the context (n_keep: 26166, n_ctx: 8192)', 8_192],
  ['Context size has been exceeded.', undefined],
];
for (const [message, limit] of tooLong)
  test(`too long, in the head and in the stream: ${message}`, { timeout: 60_000 }, async () => {
    const inHead: UpstreamHandler = (exchange) => exchange.json(400, { error: message });
    const inStream: UpstreamHandler = (exchange) => {
      exchange.events();
      exchange.chunk(`event: error\n${event({ error: { message } })}`);
      exchange.endChunks();
    };
    for (const handler of [inHead, inStream])
      await assert.rejects(answered(handler), (error: { code: string; extra: object }) => {
        assert.equal(error.code, 'context_length_exceeded');
        assert.deepEqual(error.extra, {
          model: 'm',
          ...(limit === undefined ? {} : { context_length_limit: limit }),
        });
        return true;
      });
  });

test(
  '200 with an error instead of an answer, as for a path that it does not know, is a failure',
  { timeout: 60_000 },
  async () => {
    const asked = answered((exchange) =>
      exchange.json(200, { error: 'Unexpected endpoint or method. (POST /chat/completions)' }),
    );
    await assert.rejects(asked, { code: 'backend_http_error' });
  },
);
