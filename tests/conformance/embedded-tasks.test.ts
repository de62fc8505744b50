/** `/v1/embeddings` and `/v1/rerank` on models of the embedded engine: what clients see, and what they pay. */
import assert from 'node:assert/strict';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, test } from 'node:test';

import { newRequestId } from '../support/raw-client.ts';
import { InnerService, until } from '../support/service.ts';
import { TestLedger } from '../support/test-ledger.ts';
import { writeTinyBert, type TinyBertOptions } from '../support/tiny-bert.ts';
import { sha256Of } from '../support/folder.ts';

type Json = Record<string, any>; // oxlint-disable-line typescript/no-explicit-any

const inputPrice = 5;
const folder = mkdtempSync(join(tmpdir(), 'tokenhouse-embedded-'));

function model(id: string, capabilities: string, options: TinyBertOptions): string {
  const path = join(folder, `${id}.gguf`);
  writeTinyBert(path, options);
  const sha256 = sha256Of(path);
  return `  - id: ${id}
    context_length: 64
    pricing: { input_cents_per_million: ${inputPrice}, output_cents_per_million: 0 }
    capabilities: ${capabilities}
    backends: [ { engine: llama, sources: [ "file:${path}" ], sha256: ${sha256}, threads: 1 } ]
`;
}

let service: InnerService;
let ledger: TestLedger;
before(async () => {
  service = new InnerService({
    config: `models:\n${model('embeds', '{ embeddings: { supported: true, dimensions: true } }', {})}${model('ranks', '{ rerank: { supported: true } }', { pooling: 'rank' })}`,
  });
  await service.start();
  ledger = new TestLedger(service);
});
after(async () => {
  try {
    await service?.verify();
  } finally {
    await service?.dispose();
    rmSync(folder, { recursive: true, force: true });
  }
});

interface Sent {
  readonly signal?: AbortSignal;
  readonly id?: string;
}

async function ask(
  path: string,
  body: object,
  { signal, id = newRequestId() }: Sent = {},
): Promise<{ readonly status: number; readonly json: Json }> {
  const response = await fetch(service.url + path, {
    method: 'POST',
    headers: { authorization: `Bearer ${service.key}`, 'content-type': 'application/json', 'x-request-id': id },
    body: JSON.stringify(body),
    ...(signal === undefined ? {} : { signal }),
  });
  return { status: response.status, json: (await response.json()) as Json };
}
const embed = (body: object, sent?: Sent) => ask('/v1/embeddings', { model: 'embeds', ...body }, sent);

test('every form of input has its vector; numbers and base64 are the same, and cut ones have length 1', async () => {
  const input = ['the sky', 'green grass'];
  const { status, json } = await embed({ input });
  assert.equal(status, 200, JSON.stringify(json));
  assert.deepEqual(json['usage'], { prompt_tokens: 8, total_tokens: 8 });
  const vectors = json['data'].map(({ embedding }: Json) => embedding as number[]) as number[][];
  const base64 = await embed({ input, encoding_format: 'base64' });
  for (const [index, vector] of vectors.entries()) {
    assert.equal(vector.length, 64);
    assert.ok(Math.abs(Math.hypot(...vector) - 1) < 1e-5);
    const bytes = Buffer.from(base64.json['data'][index].embedding, 'base64');
    vector.forEach((value, at) => assert.ok(Math.abs(value - bytes.readFloatLE(at * 4)) < 1e-6));
  }
  const cut = (await embed({ input: input[0], dimensions: 16 })).json['data'][0].embedding as number[];
  assert.ok(cut.length === 16 && Math.abs(Math.hypot(...cut) - 1) < 1e-5);
  const ids = (
    await embed({
      input: [
        [2, 5, 9, 3],
        [2, 5, 3],
      ],
    })
  ).json;
  assert.deepEqual(ids['usage'], { prompt_tokens: 7, total_tokens: 7 });
  assert.ok(ids['data'][0].embedding.every((value: number, at: number) => Math.abs(value - vectors[0]![at]!) < 1e-5));
});

test('documents are ranked, the most relevant one first', async () => {
  const documents = ['the sky is blue', 'grass', 'the fox'];
  const { status, json } = await ask('/v1/rerank', { model: 'ranks', query: 'why', documents, top_n: 2 });
  assert.equal(status, 200, JSON.stringify(json));
  const scores = json['results'].map(({ relevance_score }: Json) => relevance_score as number) as number[];
  assert.ok(scores.length === 2 && scores[0]! > scores[1]! && scores[0]! < 1 && scores[1]! > 0);
});

test('what is too long, or is not there, is refused in words and costs nothing', async () => {
  const before = await ledger.balance();
  for (const [path, body, status, code, param] of [
    ['/v1/embeddings', { model: 'embeds', input: ['a', 'a '.repeat(64)] }, 400, 'context_length_exceeded', 'input[1]'],
    ['/v1/embeddings', { model: 'embeds', input: [100_000] }, 400, 'unsupported_value', 'input[0]'],
    ['/v1/embeddings', { model: 'embeds', input: 'a', dimensions: 65 }, 400, 'unsupported_value', 'dimensions'],
    [
      '/v1/rerank',
      { model: 'ranks', query: 'a '.repeat(50), documents: ['a', 'a '.repeat(20)] },
      400,
      'context_length_exceeded',
      'documents[1]',
    ],
    ['/v1/embeddings', { model: 'ranks', input: 'a' }, 400, 'unsupported_feature', 'model'],
    [
      '/v1/chat/completions',
      { model: 'embeds', messages: [{ role: 'user', content: 'a' }] },
      400,
      'unsupported_feature',
      'model',
    ],
  ] as const) {
    const { status: got, json } = await ask(path, body);
    assert.deepEqual([got, json['error'].code, json['error'].param], [status, code, param], JSON.stringify(json));
  }
  assert.equal(await ledger.balance(), before);
});

test('requests at once are charged for their own tokens, and one that is left is settled', async () => {
  const before = await ledger.balance();
  const answers = await Promise.all(Array.from({ length: 12 }, (_, index) => embed({ input: 'a '.repeat(index + 1) })));
  const tokens = answers.map(({ json }, index) => {
    assert.equal(json['usage'].prompt_tokens, index + 3);
    return index + 3;
  });
  const cost = BigInt(tokens.reduce((sum, each) => sum + each, 0) * inputPrice);
  assert.equal(before - (await ledger.balance()), cost);
});

test('a request that its client leaves is settled once, and its rest is not computed', async () => {
  const before = await ledger.balance();
  const id = newRequestId();
  const leaving = new AbortController();
  const input = Array.from({ length: 2048 }, () => 'a '.repeat(60));
  const left = embed({ input }, { signal: leaving.signal, id });
  left.catch(() => {});
  await until(async () => (await ledger.openRequests()) > 0, 60_000);
  leaving.abort();
  await assert.rejects(left);
  const row = await ledger.row(id, 60_000);
  assert.equal(row.ending, 'client_left');
  assert.equal(row.costMicrocents, BigInt(row.promptTokens * inputPrice));
  assert.equal(before - (await ledger.balance()), row.costMicrocents);
  // It has the model to itself at once.
  assert.equal((await embed({ input: 'a' })).status, 200);
});
