/**
 * A real llama-server that embeds, and one that ranks, behind the service and OpenAI's own client: vectors, scores, tokens and money
 * are what the server says to the same request. One slot, because in a batch with another input it rounds otherwise.
 */
import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';

import { OpenAI } from '../../clients/official.ts';
import { newRequestId } from '../../support/raw-client.ts';
import { TestService } from '../../support/service.ts';
import { TestLedger } from '../../support/test-ledger.ts';
import { LlamaServer, TinyModels, stopServer } from './llama-server.ts';

const centsPerMillion = 5000;
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
class Scene {
  readonly #modelFile: string;
  readonly #flag: string;
  readonly #card: string;
  server!: LlamaServer;
  service!: TestService;
  ledger!: TestLedger;

  constructor(modelFile: string, flag: string, card: string) {
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
    const model = (id: string, contextLength: number): string => `  - id: ${id}
    context_length: ${contextLength}
    pricing: { input_cents_per_million: ${centsPerMillion}, output_cents_per_million: 20000 }
    capabilities: { ${this.#card}: { supported: true } }
    backends: [ { engine: openai, flavor: llama-server, url: "${this.server.url}" } ]`;
    this.service = await new TestService({
      config: `models:\n${model('real', window)}\n${model('wide', 8192)}`,
    }).start();
    this.ledger = new TestLedger(this.service);
  }

  async dispose(): Promise<void> {
    try {
      await this.ledger?.verify({ owned: true });
    } finally {
      await this.service?.dispose();
      if (this.server !== undefined) await stopServer(this.server);
    }
  }

  async direct<Answer>(path: string, body: object): Promise<Answer> {
    const answer = await this.server.post(path, body);
    assert.equal(answer.status, 200, this.server.output);
    return (await answer.json()) as Answer;
  }

  async ask(path: string, fields: object): Promise<{ readonly status: number; readonly body: unknown }> {
    const answer = await fetch(this.service.url + path, {
      method: 'POST',
      headers: {
        authorization: `Bearer ${this.service.key}`,
        'content-type': 'application/json',
        'x-request-id': newRequestId(),
      },
      body: JSON.stringify({ model: 'real', ...fields }),
    });
    return { status: answer.status, body: await answer.json() };
  }

  /** Runs it, and resolves with what it has cost in tokens of the input's price. */
  async tokensPaid(run: () => Promise<unknown>): Promise<number> {
    const balance = await this.ledger.balance();
    await run();
    return Number(balance - (await this.ledger.balance())) / centsPerMillion;
  }

  /** What it refuses it does not charge. */
  async refusal(path: string, fields: object): Promise<readonly [status: number, code: unknown, param: unknown]> {
    let answer!: Awaited<ReturnType<Scene['ask']>>;
    assert.equal(await this.tokensPaid(async () => (answer = await this.ask(path, fields))), 0);
    const { error } = answer.body as { readonly error: { readonly code: unknown; readonly param: unknown } };
    return [answer.status, error.code, error.param];
  }

  /** `backends add` finds out what it is for, and it answers at once. */
  async assertAdded(made: RegExp, path: string, fields: object): Promise<void> {
    const { code, stdout, stderr } = await this.service.command('backends', 'add', this.server.url, '--id', 'added');
    assert.equal(code, 0, stderr);
    assert.match(stdout, made);
    const { status, body } = await this.ask(path, { model: 'added', ...fields });
    assert.equal(status, 200, JSON.stringify(body));
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
        await scene.refusal('/v1/embeddings', { model, input }),
        [400, 'context_length_exceeded', param],
        `${model} ${typeof input[1]}`,
      );
  });

  test('a token that the model does not have is the fault of the client', async () => {
    assert.deepEqual(await scene.refusal('/v1/embeddings', { input: [[1], [1, 9_999_999]] }), [
      400,
      'unsupported_value',
      'input[1][1]',
    ]);
  });

  test('`backends add` makes a model of it', async () => {
    await scene.assertAdded(/^can {6}embeddings: .*\nmakes {4}vectors of \d+ numbers/m, '/v1/embeddings', {
      input: 'a',
    });
  });
});

describe('a llama-server that embeds with a model that could write', { timeout: 600_000 }, () => {
  const scene = new Scene(models.write('last', { poolingType: 3, contextLength: window }), '--embedding', 'embeddings');
  before(() => scene.start());
  after(() => scene.dispose());

  test('`backends add` makes a model of it that embeds: it was started for that', async () => {
    await scene.assertAdded(/^can {6}embeddings: /m, '/v1/embeddings', { input: 'a' });
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
      const { status, body } = await scene.ask('/v1/rerank', { query, documents: texts });
      assert.equal(status, 200, JSON.stringify(body));
      through = body as Ranks;
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
    await scene.assertAdded(/^can {6}rerank/m, '/v1/rerank', { query, documents: ['a', 'b'] });
  });
});
