/** A real Ollama behind the service: what clients see, what they pay, and what it is not asked for. */
import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';

import { OpenAI } from '../../clients/official.ts';
import { TestService } from '../../support/service.ts';
import { TestLedger } from '../../support/test-ledger.ts';
import { defaultModelFile } from '../llama-server/llama-server.ts';
import { clientOf, type Client } from '../../support/service-client.ts';
import { OllamaServer, contextLength } from './ollama-server.ts';

const price = { input: 5_000, output: 20_000 };
const user = (content: string) => ({ messages: [{ role: 'user', content }] });
const brief = { temperature: 0, max_tokens: 12 };

interface Direct {
  readonly choices: readonly { readonly message: { readonly content: string }; readonly finish_reason: string }[];
  readonly usage: { readonly prompt_tokens: number; readonly completion_tokens: number };
}

describe('a real Ollama', { timeout: 1_200_000 }, () => {
  let server: OllamaServer;
  let service: TestService;
  let ledger: TestLedger;
  let client: Client;
  let openai: OpenAI;

  before(async () => {
    server = await OllamaServer.start('smollm2', defaultModelFile());
    const backend = `{ engine: openai, flavor: ollama, url: "${server.url}/v1", model: smollm2 }`;
    const model = (id: string, window: number, more = ''): string => `  - id: ${id}
    context_length: ${window}
    pricing: { input_cents_per_million: ${price.input}, output_cents_per_million: ${price.output} }${more}
    backends: [ ${backend} ]`;
    service = new TestService({
      config: `models:
${model('real', contextLength)}
${model('wide', 8192)}
${model('vectors', contextLength, '\n    capabilities: { embeddings: { supported: true } }')}`,
    });
    await service.start();
    ledger = new TestLedger(service);
    client = clientOf(service);
    openai = new OpenAI({ apiKey: service.key, baseURL: `${service.url}/v1`, maxRetries: 0 });
  });
  after(async () => {
    try {
      await ledger?.verify({ owned: true });
    } finally {
      await service?.dispose();
      await server?.stop();
    }
  });

  /** Runs it, and resolves with what it has cost, in microcents. */
  const paid = async (run: () => Promise<unknown>): Promise<number> => {
    const balance = await ledger.balance();
    await run();
    return Number(balance - (await ledger.balance()));
  };

  test('an answer, whole and streamed: its words, tokens and money are those of the server', async () => {
    const asked = { ...user('Say hello.'), ...brief };
    const direct = await server.post<Direct>('/v1/chat/completions', { model: 'smollm2', ...asked });
    const [choice] = direct.choices;
    let answer!: Awaited<ReturnType<Client['chat']>>;
    const cost = await paid(async () => (answer = await client.chat(asked)));
    assert.equal(answer.choices[0]!.message.content, choice!.message.content);
    assert.equal(answer.choices[0]!.finish_reason, choice!.finish_reason);
    const { prompt_tokens: prompt, completion_tokens: completion } = answer.usage;
    assert.deepEqual([prompt, completion], [direct.usage.prompt_tokens, direct.usage.completion_tokens]);
    assert.equal(cost, prompt * price.input + completion * price.output);
    const streamed = await client.stream(asked);
    assert.deepEqual([streamed.text, streamed.finish], [choice!.message.content, choice!.finish_reason]);
  });

  test('max_completion_tokens, which it does not know, is kept', async () => {
    const { choices, usage } = await client.chat({
      ...user('Tell a long story.'),
      temperature: 0,
      max_completion_tokens: 5,
    });
    assert.deepEqual([choices[0]!.finish_reason, usage.completion_tokens], ['length', 5]);
  });

  test('a stop sequence ends the answer before it', async () => {
    const asked = { ...user('Count from one to ten.'), temperature: 0, max_tokens: 40 };
    const { text } = await client.answer('/chat/completions', asked);
    const stop = text.split(/\s+/).at(2)!;
    const { text: ended, finish } = await client.answer('/chat/completions', { ...asked, stop: [stop] });
    assert.equal(finish, 'stop');
    assert.equal(ended, text.slice(0, text.indexOf(stop)));
  });

  test('the same seed is the same answer', async () => {
    const asked = { ...user('Invent a name.'), temperature: 1, max_tokens: 12 };
    const [first, second, other] = [
      await client.answer('/chat/completions', { ...asked, seed: 7 }),
      await client.answer('/chat/completions', { ...asked, seed: 7 }),
      await client.answer('/chat/completions', { ...asked, seed: 8 }),
    ];
    assert.equal(first.text, second.text);
    assert.notEqual(first.text, other.text);
  });

  test('an answer to a schema fits it, and one to json_object is an object', async () => {
    const schema = {
      type: 'object',
      properties: { city: { type: 'string', maxLength: 12 }, big: { type: 'boolean' } },
      required: ['city', 'big'],
      additionalProperties: false,
    };
    const asked = { ...user('Which city is the capital of France?'), temperature: 0, max_tokens: 80 };
    const { text } = await client.answer('/chat/completions', {
      ...asked,
      response_format: { type: 'json_schema', json_schema: { name: 'city', strict: true, schema } },
    });
    const { city, big } = JSON.parse(text) as { readonly city: unknown; readonly big: unknown };
    assert.deepEqual([typeof city, typeof big], ['string', 'boolean']);
    const loose = await client.answer('/chat/completions', {
      ...asked,
      max_tokens: 400,
      response_format: { type: 'json_object' },
    });
    if (loose.finish === 'stop') assert.equal(typeof JSON.parse(loose.text), 'object');
    else assert.equal(loose.finish, 'length');
  });

  for (const [fields, param] of [
    [
      { tools: [{ type: 'function', function: { name: 'f', parameters: { type: 'object', properties: {} } } }] },
      'tools',
    ],
    [{ n: 2 }, 'n'],
    [{ logit_bias: { 5: 10 } }, 'logit_bias'],
  ] as const)
    test(`what it cannot do is refused, and costs nothing: ${param}`, async () => {
      let refused!: Awaited<ReturnType<Client['refused']>>;
      const cost = await paid(
        async () => (refused = await client.refused('/chat/completions', { ...user('hi'), ...brief, ...fields })),
      );
      assert.deepEqual([refused.status, refused.param, cost], [400, param, 0], JSON.stringify(refused.body));
    });

  test('an answer that its client leaves ends there too', async () => {
    const leave = new AbortController();
    const { requestId, response } = await client.send(
      '/chat/completions',
      { ...user('Tell a very long story about the sea.'), max_tokens: 1500, stream: true },
      leave.signal,
    );
    const reader = (await response).body!.getReader();
    await reader.read();
    leave.abort();
    const row = await ledger.row(requestId);
    assert.equal(row.ending, 'client_left');
    assert.ok(row.completionTokens < 1500);
    // It answers one at a time, so the next one says that the place is free.
    await client.chat({ ...user('Say hello.'), ...brief });
  });

  test('embeddings are those of the server', async () => {
    const input = ['the sky is blue', 'grass is green'];
    const direct = await server.post<{
      readonly data: readonly { readonly embedding: readonly number[] }[];
      readonly usage: { readonly prompt_tokens: number };
    }>('/v1/embeddings', { model: 'smollm2', input });
    let through!: OpenAI.CreateEmbeddingResponse;
    const cost = await paid(async () => (through = await openai.embeddings.create({ model: 'vectors', input })));
    for (const [index, { embedding }] of direct.data.entries())
      for (const [at, value] of embedding.entries())
        assert.ok(Math.abs(value - through.data[index]!.embedding[at]!) < 1e-4, `${index} ${at}`);
    assert.equal(through.usage.prompt_tokens, direct.usage.prompt_tokens);
    assert.equal(cost, direct.usage.prompt_tokens * price.input);
  });

  test('`backends add` knows it, its model and the window of what is loaded', async () => {
    const { code, stdout, stderr } = await service.command('backends', 'add', server.url, '--id', 'added');
    assert.equal(code, 0, stderr);
    assert.match(stdout, /^added · ollama · /m);
    assert.match(stdout, new RegExp(`^window +${contextLength} tokens`, 'm'));
    await client.chat({ model: 'added', ...user('hi'), ...brief });
  });

  test('doctor finds the card that promises a larger window than it has', async () => {
    const { stdout } = await service.command('doctor');
    assert.match(stdout, /^ok +backend +real · /m, stdout);
    assert.match(stdout, /window is 2048 tokens, but context_length is 8192/, stdout);
  });
});
