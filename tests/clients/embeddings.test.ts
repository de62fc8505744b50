import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';

import { createOpenAI } from '@ai-sdk/openai';
import { createOpenAICompatible } from '@ai-sdk/openai-compatible';
import { OpenAIEmbeddings } from '@langchain/openai';
import { cosineSimilarity, embed, embedMany } from 'ai';
import OpenAI, { BadRequestError } from 'openai';

import { InnerService } from '../support/service.ts';

/** Official clients on `/v1/embeddings`: what an application that is written with them gets. */
const service = new InnerService({
  config: `models:
  - id: demo
    context_length: 64
    pricing: { input_cents_per_million: 5, output_cents_per_million: 20 }
    capabilities: { embeddings: { supported: true, dimensions: true } }
    backends: [ { engine: scripted, scripts: [ { say: [] } ] } ]`,
});
before(() => service.start());
after(async () => {
  await service.verify();
  await service.dispose();
});

const baseURL = (): string => `${service.url}/v1`;
const texts = ['the sky is blue', 'grass is green'];
const isUnit = (vector: readonly number[]): boolean => Math.abs(Math.hypot(...vector) - 1) < 1e-6;

test('openai: it asks for base64 by itself, and gets numbers', async () => {
  const client = new OpenAI({ apiKey: service.key, baseURL: baseURL(), maxRetries: 0 });
  const { data, usage, model } = await client.embeddings.create({ model: 'demo', input: texts });
  assert.deepEqual([data.length, model, usage.prompt_tokens, usage.total_tokens], [2, 'demo', 8, 8]);
  for (const { embedding } of data) assert.ok(isUnit(embedding) && embedding.length === 16);
  const asNumbers = await client.embeddings.create({ model: 'demo', input: texts, encoding_format: 'float' });
  assert.deepEqual(asNumbers.data, data);
  const short = await client.embeddings.create({ model: 'demo', input: 'a text', dimensions: 4 });
  assert.equal(short.data[0]?.embedding.length, 4);
  await assert.rejects(
    client.embeddings.create({ model: 'demo', input: ['a', 'b'.repeat(500)] }),
    (error: unknown) =>
      error instanceof BadRequestError && error.code === 'context_length_exceeded' && error.param === 'input[1]',
  );
});

test('LangChain embeds documents and a query', async () => {
  const embeddings = new OpenAIEmbeddings({
    model: 'demo',
    apiKey: service.key,
    maxRetries: 0,
    configuration: { baseURL: baseURL() },
  });
  const documents = await embeddings.embedDocuments(texts);
  const query = await embeddings.embedQuery(texts[0]!);
  assert.ok(documents.every(isUnit));
  assert.deepEqual(query, documents[0]);
});

for (const [name, modelOf] of [
  ['its OpenAI provider', () => createOpenAI({ apiKey: service.key, baseURL: baseURL() }).textEmbeddingModel('demo')],
  [
    'its provider for compatible servers',
    () =>
      createOpenAICompatible({ name: 'tokenhouse', apiKey: service.key, baseURL: baseURL() }).textEmbeddingModel(
        'demo',
      ),
  ],
] as const) {
  test(`AI SDK with ${name}`, async () => {
    const { embeddings, usage } = await embedMany({ model: modelOf(), values: texts });
    assert.ok(embeddings.every(isUnit));
    assert.equal(usage.tokens, 8);
    const { embedding } = await embed({ model: modelOf(), value: texts[0]! });
    assert.ok(cosineSimilarity(embedding, embeddings[0]!) > 0.999999);
  });
}
