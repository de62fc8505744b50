/** Text completions on a real llama-server, behind the service and beside the embedded engine's promises (contracts §1.1). */
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';

import { readCompletion, readCompletionStream } from '../../conformance/completions-reader.ts';
import type { ReadCompletion } from '../../conformance/completions-reader.ts';
import { TestService } from '../../support/service.ts';
import { LlamaServer, defaultModelFile, stopServer } from './llama-server.ts';

let server: LlamaServer;
let service: TestService;
before(async () => {
  server = await LlamaServer.start({ modelFile: defaultModelFile(), slots: 2 });
  service = await new TestService({
    config: `models:
  - id: real
    context_length: 1024
    pricing: { input_cents_per_million: 5, output_cents_per_million: 20 }
    backends: [ { engine: openai, flavor: llama-server, url: "${server.url}" } ]`,
  }).start();
});
after(async () => {
  await service.verify();
  await service.dispose();
  await stopServer(server);
});

const ask = (body: object): Promise<Response> =>
  fetch(`${service.url}/v1/completions`, {
    method: 'POST',
    headers: { authorization: `Bearer ${service.key}`, 'content-type': 'application/json' },
    body: JSON.stringify({ model: 'real', temperature: 0, seed: 1, ...body }),
  });

async function both(body: object): Promise<ReadCompletion> {
  const [whole, stream] = [await ask(body), await ask({ ...body, stream: true })];
  const [text, sse] = [await whole.text(), await stream.text()];
  assert.deepEqual([whole.status, stream.status], [200, 200], text + sse);
  const one = readCompletion(text);
  const other = readCompletionStream(sse.replaceAll(/^:.*\n\n/gm, ''));
  assert.deepEqual(
    other.choices.map((choice) => choice.text),
    one.choices.map((choice) => choice.text),
  );
  assert.equal(other.usage?.completion_tokens, one.usage?.completion_tokens);
  return one;
}

async function refused(body: object): Promise<readonly [string, string | undefined]> {
  const answer = await ask(body);
  assert.equal(answer.status, 400);
  const { error } = (await answer.json()) as { error: { code: string; param?: string } };
  return [error.code, error.param];
}

test('a text goes on, echoed or not', async () => {
  const plain = await both({ prompt: '1, 2, 3, 4, 5, 6,', max_tokens: 12 });
  assert.match(plain.choices[0]?.text ?? '', /^ ?7, 8/);
  const echoed = await both({ prompt: '1, 2, 3, 4, 5, 6,', max_tokens: 12, echo: true });
  assert.equal(echoed.choices[0]?.text, `1, 2, 3, 4, 5, 6,${plain.choices[0]?.text}`);
});

test('batches of texts and of ids, with n', async () => {
  const prompt = ['1, 2, 3, 4, 5, 6,', '11, 12, 13, 14, 15, 16,'];
  const texts = await both({ prompt, max_tokens: 12, echo: true });
  assert.match(texts.choices[0]?.text ?? '', /^1, 2, 3, 4, 5, 6, ?7, 8/);
  assert.match(texts.choices[1]?.text ?? '', /^11, 12, 13, 14, 15, 16, ?17, 18/);
  const ids = await Promise.all(prompt.map(tokenize));
  const byIds = await both({ prompt: ids, max_tokens: 12 });
  assert.equal(byIds.usage?.prompt_tokens, ids.flat().length);
  assert.match(byIds.choices[1]?.text ?? '', /^ ?17, 18/);
  const several = await both({ prompt: prompt[0], n: 2, max_tokens: 6 });
  assert.equal(several.choices.length, 2);
});

test('a grammar, a regular expression and a schema hold', async () => {
  const prompt = 'The capital of France is';
  const text = async (more: object): Promise<string> =>
    (await both({ prompt, max_tokens: 40, ...more })).choices[0]?.text ?? '';
  assert.match(await text({ ebnf: 'root ::= " " ("Rome" | "Oslo")' }), /^ (Rome|Oslo)$/);
  assert.match(await text({ regex: '[0-9]{4}' }), /^[0-9]{4}$/);
  const schema = { type: 'object', properties: { a: { enum: [1, 2] } }, required: ['a'], additionalProperties: false };
  assert.match(await text({ json_schema: JSON.stringify(schema) }), /^\{\s*"a"\s*:\s*[12]\s*\}$/);
});

test('logprobs stand where their tokens do, by text or by id', async () => {
  const { choices } = await both({ prompt: '1, 2, 3,', max_tokens: 6, logprobs: 2 });
  const [choice] = choices;
  assert.ok(choice && choice.logprobs.tokens.length > 0);
  const characters = [...choice.text];
  for (const [index, offset] of choice.logprobs.text_offset.entries()) {
    const token: string = choice.logprobs.tokens[index] ?? '';
    assert.equal(characters.slice(offset, offset + [...token].length).join(''), token);
  }
  const named = await both({ prompt: '1, 2, 3,', max_tokens: 6, logprobs: 1, return_tokens_as_token_ids: true });
  assert.ok(named.choices[0]?.logprobs.tokens.every((token) => /^token_id:\d+$/.test(token)));
});

test('ignore_eos goes on; what the server cannot do is refused', async () => {
  const on = await both({ prompt: 'The end.', max_tokens: 40, ignore_eos: true });
  assert.equal(on.usage?.completion_tokens, 40);
  assert.deepEqual(await refused({ prompt: 'x', return_token_ids: true }), [
    'unsupported_parameter',
    'return_token_ids',
  ]);
  assert.deepEqual(await refused({ prompt: 'x', stop_token_ids: [1] }), ['unsupported_parameter', 'stop_token_ids']);
  assert.deepEqual(await refused({ prompt: [1], echo: true }), ['unsupported_parameter', 'echo']);
});

test('token ids outside the vocabulary are refused by their place', async () => {
  assert.deepEqual(await refused({ prompt: [1, 2, 99_999_999, 3] }), ['unsupported_value', 'prompt[2]']);
});

async function tokenize(content: string): Promise<readonly number[]> {
  const { tokens } = (await await fetch(`${server.url.replace(/\/v1$/, '')}/tokenize`, {
    method: 'POST',
    body: JSON.stringify({ content, add_special: true }),
  }).then((answer) => answer.json())) as { tokens: number[] };
  return tokens;
}
