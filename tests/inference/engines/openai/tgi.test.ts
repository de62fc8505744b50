import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import type { EngineRequest } from '../../../../src/generation/request.ts';
import { event, usageChunk, type UpstreamHandler } from '../../../support/upstream.ts';
import { lastUsage, textOf } from '../contract.ts';
import { answeredBy } from './answered.ts';

/**
 * Conversations as text-generation-inference writes them, after the answers that its own tests have recorded
 * (integration-tests/models/__snapshots__ at db931fcf, versions 3.1.2 and 3.2.1) and router/src/chat.rs: not run here.
 */
const chunk = (delta: object, finish: string | null = null, more: object = {}): string =>
  event({
    ...{
      object: 'chat.completion.chunk',
      id: '',
      created: 1_741_689_423,
      model: 'm',
      system_fingerprint: '3.1.2-native',
    },
    choices: [{ index: 0, delta: { role: 'assistant', ...delta }, logprobs: null, finish_reason: finish, ...more }],
    usage: null,
  });
const call = (name: string | null, text: string, finish: string | null = null): string =>
  chunk({ tool_calls: [{ index: 0, id: '0', type: 'function', function: { name, arguments: text } }] }, finish);
const usage = usageChunk({ prompt_tokens: 39, completion_tokens: 3, total_tokens: 42 });
const done = event('[DONE]');

const answered = (handler: UpstreamHandler, more: Partial<EngineRequest> = {}) => answeredBy('tgi', handler, more);

const streamed =
  (...chunks: readonly string[]): UpstreamHandler =>
  (exchange) => {
    exchange.events();
    for (const each of chunks) exchange.chunk(each);
    exchange.endChunks();
  };

const finishOf = (batches: Awaited<ReturnType<typeof answered>>) =>
  batches.flat().find((one) => one.type === 'finish') ?? assert.fail('no finish');

describe('an answer of TGI', { timeout: 60_000 }, () => {
  test('text, an empty last piece with the reason, and usage', async () => {
    const batches = await answered(
      streamed(chunk({ content: 'Hel' }), chunk({ content: 'lo' }), chunk({ content: '' }, 'stop'), usage, done),
    );
    assert.equal(textOf(batches), 'Hello');
    assert.equal(finishOf(batches).reason, 'stop');
    const found = lastUsage(batches)?.usage;
    assert.deepEqual([found?.promptTokens, found?.completionTokens], [39, 3]);
  });

  test('a call, whose stream has no finish reason', async () => {
    const batches = await answered(
      streamed(call('get_weather', '{'), call(null, ' "city'), call(null, '": "Paris'), call(null, '"}'), usage, done),
    );
    const events = batches.flat();
    const text = events.map((one) => (one.type === 'tool-arguments' ? one.text : '')).join('');
    assert.deepEqual(JSON.parse(text), { city: 'Paris' });
    assert.equal(events.filter((one) => one.type === 'tool-call' && one.name === 'get_weather').length, 1);
    assert.equal(finishOf(batches).reason, 'tool-calls');
    assert.equal(lastUsage(batches)?.usage.completionTokens, 3);
  });

  test('a call that is cut has one', async () => {
    const batches = await answered(streamed(call('get_weather', '{'), call(null, ' "city', 'length'), usage, done));
    assert.equal(finishOf(batches).reason, 'length');
  });

  test('a text without a finish reason is a failure all the same', async () => {
    await assert.rejects(answered(streamed(chunk({ content: 'Hel' }), usage, done)), { code: 'backend_http_error' });
  });

  const stop = ['\n\n', 'END'];
  const pieces: readonly (readonly [readonly string[], string, string | undefined])[] = [
    [['Hello', '\n', '\n'], 'Hello', '\n\n'],
    [['Hello E', 'ND'], 'Hello ', 'END'],
    [['HelloEND and', ' more'], 'Hello', 'END'],
    [['Hello\n'], 'Hello\n', undefined],
    [['E', 'N'], 'EN', undefined],
  ];
  for (const [texts, expected, sequence] of pieces)
    test(`the stop sequence at the end of ${JSON.stringify(texts)} is cut off`, async () => {
      const finish = sequence === undefined ? 'stop' : 'stop_sequence';
      const chunks = texts.map((content, at) => chunk({ content }, at === texts.length - 1 ? finish : null));
      const batches = await answered(streamed(...chunks, usage, done), { stop });
      assert.equal(textOf(batches), expected);
      const event = finishOf(batches);
      assert.equal(event.reason, 'stop');
      assert.equal('stopSequence' in event ? event.stopSequence : undefined, sequence);
    });

  test('with probabilities: those of held text come with it, those of the stop sequence do not', async () => {
    const withLogprob = (content: string, finish: string | null = null): string =>
      chunk({ content }, finish, { logprobs: { content: [{ token: content, logprob: -0.5, top_logprobs: [] }] } });
    const read = async (...chunks: readonly string[]) => {
      const batches = await answered(streamed(...chunks, usage, done), { stop, logprobs: 0 });
      const tokens = batches.flat().flatMap((one) => (one.type === 'text' ? (one.logprobs ?? []) : []));
      return tokens.map(({ token }) => token);
    };
    assert.deepEqual(await read(withLogprob('a'), withLogprob('E'), withLogprob('x', 'stop')), ['a', 'E', 'x']);
    assert.deepEqual(await read(withLogprob('a'), withLogprob('E'), withLogprob('N', 'length')), ['a', 'E', 'N']);
    assert.deepEqual(await read(withLogprob('a'), withLogprob('E'), withLogprob('ND', 'stop_sequence')), ['a']);
  });
});

/** Before the first token an error stands in an answer with status 200, always as 422. */
const refusals: readonly (readonly [message: string, code: string, param?: string])[] = [
  ['Model is overloaded', 'backend_overloaded'],
  ['Request failed during generation: Server error: CUDA out of memory', 'backend_http_error'],
  ['Input validation error: `stop` supports up to 4 stop sequences. Given: 5', 'unsupported_value', 'stop'],
  ['Input validation error: `top_n_tokens` must be >= 0 and <= 5. Given: 20', 'unsupported_value', 'top_logprobs'],
  ["Input validation error: grammar is not valid: Grammar must have a 'properties' field", 'unsupported_value'],
  ['Input validation error: image modality is not supported', 'unsupported_feature'],
  [
    'Input validation error: `inputs` tokens + `max_new_tokens` must be <= 2048. Given: 2000 `inputs` tokens and 100 `max_new_tokens`',
    'context_length_exceeded',
  ],
  ['Input validation error: `inputs` must have less than 1024 tokens. Given: 1500', 'context_length_exceeded'],
];
for (const [message, code, param] of refusals)
  test(`in the stream and before it: ${message}`, { timeout: 60_000 }, async () => {
    const inStream = streamed(event({ error: { message, http_status_code: 422 } }), done);
    const before: UpstreamHandler = (exchange) => exchange.json(422, { error: message, error_type: 'validation' });
    for (const handler of [inStream, before])
      await assert.rejects(answered(handler), (error: { code: string; param?: string }) => {
        assert.equal(error.code, code);
        if (param !== undefined) assert.equal(error.param, param);
        return true;
      });
  });

test('how much of the window is used is told as it counts', { timeout: 60_000 }, async () => {
  const message =
    'Input validation error: `inputs` tokens + `max_new_tokens` must be <= 2048. Given: 2000 `inputs` tokens and 100 `max_new_tokens`';
  await assert.rejects(
    answered((exchange) => exchange.json(422, { error: message, error_type: 'validation' })),
    (error: { extra: object }) => {
      assert.deepEqual(error.extra, { model: 'm', context_length_limit: 2_048, prompt_tokens: 2_000 });
      return true;
    },
  );
});
