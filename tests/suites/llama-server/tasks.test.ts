/** Vectors and scores of the embedded engine are those of llama-server with the same file. */
import assert from 'node:assert/strict';
import { after, describe, test } from 'node:test';

import { createLlamaEngine } from '../../../src/inference/engines/llama/engine.ts';
import type { EngineRequest } from '../../../src/generation/request.ts';
import { all, engineRequest } from '../../inference/engines/contract.ts';
import { LlamaServer, TinyModels, stopServer } from './llama-server.ts';

const models = new TinyModels();
after(() => models.dispose());

const window = 512;
const texts = [
  'the sky is blue',
  'a',
  'Why is the GREEN grass green, and not blue?',
  'the quick brown fox of the sea '.repeat(20),
  '\u{1F600} caf\u00e9 na\u00efve',
];
const query = 'why is the sky blue';

interface Answer {
  readonly data?: readonly { readonly index: number; readonly embedding: readonly number[] }[];
  readonly results?: readonly { readonly index: number; readonly relevance_score: number }[];
  readonly usage: { readonly prompt_tokens: number };
}

async function serverAnswers(modelFile: string, flag: string, path: string, body: object): Promise<Answer> {
  const server = await LlamaServer.start({
    modelFile,
    // In a batch with another input the same server rounds otherwise: by up to 1.6e-4, because flash attention computes in 16 bits.
    slots: 1,
    contextLength: window,
    arguments: [flag, '-ub', String(window), '-b', String(window)],
  });
  try {
    const answer = await server.post(path, body);
    assert.equal(answer.status, 200, server.output);
    return (await answer.json()) as Answer;
  } finally {
    await stopServer(server);
  }
}

/** What the embedded engine finds, and the tokens that it read. */
async function ownFindings(modelFile: string, purpose: 'embed' | 'rank', changes: Partial<EngineRequest>) {
  const engine = createLlamaEngine({
    name: 'own',
    modelFile: Promise.resolve(modelFile),
    purpose,
    contextLength: window,
    slots: 2,
    threads: 1,
    defaultSystem: 'template',
    log: () => {},
  });
  try {
    await engine.ready;
    const request = engineRequest('', { prompt: { type: 'texts', prompts: texts }, maxTokens: 0, ...changes });
    const events = (await all(engine, request, new AbortController().signal)).flat();
    const findings: (Float32Array | number)[] = [];
    let tokens = 0;
    for (const event of events) {
      if (event.type === 'start') tokens = event.promptTokens ?? 0;
      if (event.type === 'vector') findings[event.choice] = event.vector;
      if (event.type === 'score') findings[event.choice] = event.score;
    }
    return { findings, tokens };
  } finally {
    await engine.close();
  }
}

describe('embeddings equal those of llama-server to 1e-4', { timeout: 600_000 }, () => {
  for (const [name, file] of [
    ['mean', models.writeBert('mean', { pooling: 'mean', contextLength: window, layers: 3 })],
    ['cls', models.writeBert('cls', { pooling: 'cls', contextLength: window, dimensions: 128 })],
    ['last', models.write('last', { poolingType: 3, contextLength: window })],
    ['last-spm', models.write('last-spm', { poolingType: 3, contextLength: window, tokenizer: 'spm' })],
  ] as const) {
    test(name, async () => {
      const said = await serverAnswers(file, '--embedding', '/v1/embeddings', { input: texts });
      const task = { type: 'embed', field: 'input', dimensions: undefined } as const;
      const { findings, tokens } = await ownFindings(file, 'embed', { task });
      assert.equal(tokens, said.usage.prompt_tokens);
      const distances = (said.data ?? []).map(({ index, embedding }) => {
        const own = findings[index] as Float32Array;
        assert.equal(own.length, embedding.length);
        return Math.max(...embedding.map((value, at) => Math.abs(value - own[at]!)));
      });
      assert.ok(
        distances.every((distance) => distance < 1e-4),
        distances.join(' '),
      );
      assert.equal(said.data?.length, texts.length);
    });
  }
});

test('scores equal those of llama-server to 1e-4', { timeout: 600_000 }, async () => {
  const file = models.writeBert('rank', { pooling: 'rank', contextLength: window });
  const said = await serverAnswers(file, '--reranking', '/v1/rerank', { query, documents: texts });
  const task = { type: 'rank', field: 'documents', query } as const;
  const { findings, tokens } = await ownFindings(file, 'rank', { task });
  assert.equal(tokens, said.usage.prompt_tokens);
  assert.equal(said.results?.length, texts.length);
  for (const { index, relevance_score } of said.results ?? []) {
    const score = 1 / (1 + Math.exp(-relevance_score));
    assert.ok(Math.abs(score - (findings[index] as number)) < 1e-4, `${index}: ${score}`);
  }
});
