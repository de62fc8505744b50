/**
 * A real llama-server that embeds, and one that ranks, behind the service and OpenAI's own client: vectors, scores, tokens and money
 * are what the server says to the same request. One slot, because in a batch with another input it rounds otherwise.
 */
import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';

import { OpenAI } from '../../clients/official.ts';
import { taskModel, TaskScene } from '../../support/task-scene.ts';
import { LlamaServer, TinyModels, stopServer } from './llama-server.ts';

const window = 512;
const models = new TinyModels();
after(() => models.dispose());

const texts = ['the sky is blue', 'a', 'Why is the GREEN grass green, and not blue?', 'the sea '.repeat(20)];
const query = 'why is the sky blue';

interface Embeddings {
  readonly data: readonly { readonly index: number; readonly embedding: readonly number[] }[];
  readonly usage: { readonly prompt_tokens: number; readonly total_tokens: number };
}

interface Ranks {
  readonly results: readonly { readonly index: number; readonly relevance_score: number }[];
  readonly usage: { readonly prompt_tokens: number; readonly total_tokens: number };
}

/** The server behind a model with its window, and behind one whose card promises more. */
class Scene extends TaskScene {
  readonly #modelFile: string;
  readonly #flag: string;
  readonly #card: string;
  server!: LlamaServer;

  constructor(modelFile: string, flag: string, card: string) {
    super();
    this.#modelFile = modelFile;
    this.#flag = flag;
    this.#card = card;
  }

  async start(): Promise<void> {
    this.server = await LlamaServer.start({
      modelFile: this.#modelFile,
      slots: 1,
      contextLength: window,
      arguments: [this.#flag, '-ub', String(window), '-b', String(window)],
    });
    const backend = `{ engine: openai, flavor: llama-server, url: "${this.server.url}" }`;
    const model = (id: string, contextLength: number): string =>
      taskModel(id, contextLength, `${this.#card}: { supported: true }`, backend);
    await this.serve([model('real', window), model('wide', 8192)]);
  }

  override async dispose(): Promise<void> {
    try {
      await super.dispose();
    } finally {
      if (this.server !== undefined) await stopServer(this.server);
    }
  }

  async direct<Answer>(path: string, body: object): Promise<Answer> {
    const answer = await this.server.post(path, body);
    assert.equal(answer.status, 200, this.server.output);
    return (await answer.json()) as Answer;
  }
}

const distance = (a: readonly number[], b: readonly number[]): number =>
  Math.max(...a.map((value, index) => Math.abs(value - b[index]!)));

describe('a llama-server that embeds', { timeout: 600_000 }, () => {
  const file = models.writeBert('mean', { pooling: 'mean', contextLength: window, layers: 3 });
  const scene = new Scene(file, '--embedding', 'embeddings');
  let openai: OpenAI;
  before(async () => {
    await scene.start();
    openai = new OpenAI({ apiKey: scene.service.key, baseURL: `${scene.service.url}/v1`, maxRetries: 0 });
  });
  after(() => scene.dispose());

  const idsOf = async (content: string): Promise<readonly number[]> =>
    (await scene.direct<{ readonly tokens: number[] }>('/tokenize', { content, add_special: true })).tokens;

  for (const [name, inputOf] of [
    ['a text', async () => texts[0]!],
    ['a batch', async () => texts],
    ['token ids', () => idsOf(texts[2]!)],
    ['a batch of token ids', () => Promise.all(texts.map(idsOf))],
  ] as const)
    test(`${name}: the vectors, tokens and money are the server's`, async () => {
      const input = (await inputOf()) as string | string[];
      const direct = await scene.direct<Embeddings>('/v1/embeddings', { input });
      let through!: Embeddings;
      const paid = await scene.tokensPaid(async () => {
        through = await openai.embeddings.create({ model: 'real', input });
      });
      const { prompt_tokens: tokens } = direct.usage;
      assert.ok(tokens > 0);
      assert.deepEqual([through.usage.prompt_tokens, through.usage.total_tokens, paid], [tokens, tokens, tokens]);
      assert.deepEqual(
        through.data.map(({ index }) => index),
        direct.data.map((_, index) => index),
      );
      for (const { index, embedding } of direct.data)
        assert.ok(distance(embedding, through.data[index]!.embedding) < 1e-6, String(index));
    });

  test('an input that is too long is named, whoever notices, and not charged', async () => {
    const tooLong = 'the sea '.repeat(2 * window);
    const ids = Array.from({ length: window + 1 }, () => 10);
    for (const [model, input, param] of [
      ['real', ['a', tooLong], 'input[1]'],
      ['real', [[1], ids], 'input[1]'],
      ['wide', ['a', tooLong], 'input[1]'],
      ['wide', [[1], ids], 'input[1]'],
    ] as const)
      assert.deepEqual(
        await scene.refusal('/embeddings', { model, input }),
        [400, 'context_length_exceeded', param],
        `${model} ${typeof input[1]}`,
      );
  });

  test('a token that the model does not have is the fault of the client', async () => {
    assert.deepEqual(await scene.refusal('/embeddings', { input: [[1], [1, 9_999_999]] }), [
      400,
      'unsupported_value',
      'input[1][1]',
    ]);
  });

  test('`backends add` makes a model of it', async () => {
    await scene.assertAdded([scene.server.url], /^can {6}embeddings: .*\nmakes {4}vectors of \d+ numbers/m, {
      route: '/embeddings',
      fields: {
        input: 'a',
      },
    });
  });
});

describe('a llama-server that embeds with a model that could write', { timeout: 600_000 }, () => {
  const scene = new Scene(models.write('last', { poolingType: 3, contextLength: window }), '--embedding', 'embeddings');
  before(() => scene.start());
  after(() => scene.dispose());

  test('`backends add` makes a model of it that embeds: it was started for that', async () => {
    await scene.assertAdded([scene.server.url], /^can {6}embeddings: /m, {
      route: '/embeddings',
      fields: { input: 'a' },
    });
  });
});

describe('a llama-server that ranks', { timeout: 600_000 }, () => {
  const file = models.writeBert('rank', { pooling: 'rank', contextLength: window });
  const scene = new Scene(file, '--reranking', 'rerank');
  before(() => scene.start());
  after(() => scene.dispose());

  test("scores, their order, tokens and money are the server's", async () => {
    const direct = await scene.direct<Ranks>('/v1/rerank', { query, documents: texts });
    let through!: Ranks;
    const paid = await scene.tokensPaid(async () => {
      through = (await scene.client.json('/rerank', { query, documents: texts })) as unknown as Ranks;
    });
    const { prompt_tokens: tokens } = direct.usage;
    assert.deepEqual([through.usage.prompt_tokens, through.usage.total_tokens, paid], [tokens, tokens, tokens]);
    const relevance = new Map(
      direct.results.map(({ index, relevance_score: logit }) => [index, 1 / (1 + Math.exp(-logit))]),
    );
    const expected = [...relevance].toSorted(([, a], [, b]) => b - a).map(([index]) => index);
    assert.deepEqual(
      through.results.map(({ index }) => index),
      expected,
    );
    for (const { index, relevance_score } of through.results)
      assert.ok(Math.abs(relevance_score - relevance.get(index)!) < 1e-6, String(index));
  });

  test('`backends add` makes a model of it', async () => {
    await scene.assertAdded([scene.server.url], /^can {6}rerank/m, {
      route: '/rerank',
      fields: { query, documents: ['a', 'b'] },
    });
  });
});
