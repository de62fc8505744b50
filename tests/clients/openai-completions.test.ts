import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';

import OpenAI, { APIError, BadRequestError, UnprocessableEntityError } from 'openai';
import type { Completion } from 'openai/resources/completions';

import { InnerService, scriptedModel } from '../support/service.ts';

/** The official client's `completions` against the running service. */
const service = new InnerService({
  config: scriptedModel(
    `
- when: { last_text: "fail in the middle" }
  say: [ { text: "one two three" } ]
  pace_ms: 5
  fault: { after_tokens: 2, type: error, code: backend_timeout }
- say: [ { text: "hello big world" } ]
`,
    { settings: 'capabilities: { logprobs: true }' },
  ),
});
let client: OpenAI;
before(async () => {
  await service.start();
  client = new OpenAI({ apiKey: service.key, baseURL: `${service.url}/v1`, maxRetries: 0, timeout: 60_000 });
});
after(async () => {
  await service.verify();
  await service.dispose();
});

test('a text, whole', async () => {
  const answer = await client.completions.create({ model: 'demo', prompt: 'Say:', max_tokens: 10 });
  assert.equal(answer.object, 'text_completion');
  assert.match(answer.id, /^cmpl-/);
  assert.match(answer._request_id ?? '', /^req_[0-9a-f]{12}$/);
  const [choice] = answer.choices;
  assert.deepEqual([choice?.text, choice?.finish_reason, choice?.logprobs], ['hello big world', 'stop', null]);
  assert.deepEqual([answer.usage?.prompt_tokens, answer.usage?.completion_tokens], [1, 3]);
});

test('token ids, and batches of both kinds', async () => {
  for (const [prompt, count] of [
    [[1, 2, 3], 1],
    [[[1, 2], [3]], 2],
    [['a', 'b', 'c'], 3],
  ] as const) {
    const answer = await client.completions.create({ model: 'demo', prompt: prompt as unknown as string[], n: 2 });
    assert.deepEqual(
      answer.choices.map(({ index }) => index),
      Array.from({ length: count * 2 }, (_, index) => index),
    );
  }
});

test('a stream says what the whole answer says, text and logprobs, and ends with the usage', async () => {
  const fields = { model: 'demo', prompt: 'Say: é', logprobs: 2, echo: true } as const;
  const whole = await client.completions.create(fields);
  const chunks: Completion[] = [];
  for await (const chunk of await client.completions.create({ ...fields, stream: true })) chunks.push(chunk);
  const choices = chunks.flatMap((chunk) => chunk.choices);
  assert.equal(choices.map(({ text }) => text).join(''), 'Say: éhello big world');
  assert.equal(choices.map(({ text }) => text).join(''), whole.choices[0]?.text);
  for (const list of ['tokens', 'token_logprobs', 'top_logprobs', 'text_offset'] as const) {
    assert.deepEqual(
      choices.flatMap(({ logprobs }): readonly unknown[] => logprobs?.[list] ?? []),
      whole.choices[0]?.logprobs?.[list],
    );
  }
  assert.equal(choices.at(-1)?.finish_reason, 'stop');
  assert.deepEqual(chunks.at(-1)?.choices, []);
  assert.deepEqual(chunks.at(-1)?.usage, whole.usage);
});

test('stop, max_tokens and fields of other servers', async () => {
  const stopped = await client.completions.create({ model: 'demo', prompt: 'x', stop: ' big' });
  assert.deepEqual([stopped.choices[0]?.text, stopped.choices[0]?.finish_reason], ['hello', 'stop']);
  const cut = await client.completions.create({ model: 'demo', prompt: 'x', max_tokens: 2 });
  assert.deepEqual([cut.choices[0]?.text, cut.choices[0]?.finish_reason], ['hello big', 'length']);
  const extra = { return_token_ids: true } as object;
  const reported = await client.completions.create({ model: 'demo', prompt: 'x', ...extra });
  const { token_ids } = reported.choices[0] as unknown as { token_ids: number[] };
  assert.equal(token_ids.length, reported.usage?.completion_tokens);
});

test('errors are the classes that the client has for them, with code and param', async () => {
  const thrown = async (body: object): Promise<unknown> =>
    client.completions.create({ model: 'demo', prompt: 'x', ...body }).then(
      () => undefined,
      (error: unknown) => error,
    );
  const bad = await thrown({ best_of: 2 });
  assert.ok(bad instanceof BadRequestError);
  assert.deepEqual([bad.code, bad.param], ['unsupported_parameter', 'best_of']);
  const token = await thrown({ prompt: [1, 99_999_999] });
  assert.ok(token instanceof BadRequestError);
  assert.equal(token.param, 'prompt[1]');
  const shape = await thrown({ logprobs: 6 });
  assert.ok(shape instanceof UnprocessableEntityError);
  assert.equal(shape.param, 'logprobs');
});

test('what fails in mid-stream is thrown with its code', async () => {
  const stream = await client.completions.create({ model: 'demo', prompt: 'fail in the middle', stream: true });
  let text = '';
  await assert.rejects(
    async () => {
      for await (const chunk of stream) text += chunk.choices[0]?.text ?? '';
    },
    (error) => error instanceof APIError && error.code === 'backend_timeout',
  );
  assert.equal(text, 'one two');
});
