import assert from 'node:assert/strict';
import { test } from 'node:test';
import { createOpenAiEngine } from '../../../../src/inference/engines/openai/openai-engine.ts';
import { claims } from '../../../../src/inference/claims/claims.ts';
import { event, usageChunk, type UpstreamHandler } from '../../../support/upstream.ts';
import { lastUsage, textOf } from '../contract.ts';
import { answeredBy } from './answered.ts';

/**
 * Conversations as Ollama's middleware/openai.go and openai/openai.go write them (ollama/ollama at fb307609), by hand: not recorded.
 */
const chunk = (delta: object, finish: string | null = null): string =>
  event({
    ...{ id: 'chatcmpl-1', object: 'chat.completion.chunk', created: 1, model: 'm', system_fingerprint: 'fp_ollama' },
    choices: [{ index: 0, delta, finish_reason: finish }],
  });

const answered = (handler: UpstreamHandler) => answeredBy('ollama', handler);

test('a thought, a text and a call, each in its chunk, and usage at the end', { timeout: 60_000 }, async () => {
  const call = { id: 'call_1', index: 0, type: 'function', function: { name: 'f', arguments: '{"a":1}' } };
  const batches = await answered((exchange) => {
    exchange.events();
    exchange.chunk(
      chunk({ role: 'assistant', content: '', reasoning: 'Hm.' }) +
        chunk({ content: 'Hello' }) +
        chunk({ content: '', tool_calls: [call] }) +
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
  assert.ok(events.some((one) => one.type === 'finish' && one.reason === 'tool-calls'));
  const usage = lastUsage(batches)?.usage;
  assert.deepEqual([usage?.promptTokens, usage?.cachedTokens ?? 0, usage?.completionTokens], [11, 0, 5]);
});

const refusals: readonly (readonly [status: number, message: string, code: string])[] = [
  [503, 'server busy, please try again.  maximum pending requests exceeded', 'backend_at_capacity'],
  [404, 'model "m" not found, try pulling it first', 'no_healthy_backends'],
  [400, 'registry.ollama.ai/library/m:latest does not support tools', 'unsupported_feature'],
  [500, 'llama runner process has terminated', 'backend_http_error'],
];
for (const [status, message, code] of refusals)
  test(`${status}: ${message}`, { timeout: 60_000 }, async () => {
    const asked = answered((exchange) =>
      exchange.json(status, { error: { message, type: 'api_error', param: null, code: null } }),
    );
    await assert.rejects(asked, { code });
  });

test(
  'a failure in mid-answer, which it writes as an empty chunk and no end, is a failure',
  { timeout: 60_000 },
  async () => {
    const asked = answered((exchange) => {
      exchange.events();
      exchange.chunk(chunk({ role: 'assistant', content: 'Hel' }) + chunk({ content: '' }));
      exchange.endChunks();
    });
    await assert.rejects(asked, { code: 'backend_http_error' });
  },
);

test('that it cannot be made to call a function is not held against its tools', async () => {
  const engine = createOpenAiEngine({ name: 'm', url: 'http://127.0.0.1:1/v1', flavor: 'ollama' });
  for (const name of ['tools', 'tool_streaming'] as const) {
    const look = claims[name].look as (at: object, signal: AbortSignal) => Promise<object | undefined>;
    assert.ok('unknown' in ((await look({ engine }, new AbortController().signal)) ?? {}), name);
  }
  await engine.close();
});
