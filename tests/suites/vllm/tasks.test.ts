/**
 * A real vLLM that embeds, and one that ranks, behind the service and OpenAI's own client: vectors, scores, tokens and money are what
 * vLLM says to the same request. 32-bit floats, because with fewer bits a text has another vector in another batch.
 */
import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';

import { BadRequestError, OpenAI } from '../../clients/official.ts';
import { patienceMs, words } from '../../support/fleet-load.ts';
import { mulberry32 } from '../../support/random.ts';
import { until } from '../../support/service.ts';
import { centsPerMillion, taskModel, TaskScene } from '../../support/task-scene.ts';
import { contextLength, keyVariable, VllmServer } from './vllm-server.ts';

const texts = ['The sky is blue.', 'Grass is green, says the café.', 'a', 'Why does the wind blow? '.repeat(20)];
/** Beyond the window of the server. */
const tooLong = words(mulberry32(5), 8_000);
/** Of several blocks of vLLM's cache, which are 128 tokens each. */
const long = words(mulberry32(6), 1_000);

/** A server in the role that the arguments give it, behind three models that promise different things. */
class Scene extends TaskScene {
  readonly #args: readonly string[];
  readonly #card: string;
  server!: VllmServer;

  constructor(args: readonly string[], card: string) {
    super();
    this.#args = args;
    this.#card = card;
  }

  async start(): Promise<void> {
    // Two texts at once: its counters move after each step only.
    const own = ['--runner', 'pooling', '--dtype', 'float32', '--max-num-seqs', '2'];
    this.server = await VllmServer.start('model', [...own, ...this.#args]);
    const model = (id: string, window: number, more = ''): string =>
      taskModel(
        id,
        window,
        `${this.#card}: { supported: true${more} }`,
        this.server.backend.replace(' }', ', zdr: true }'),
      );
    await this.serve([
      model('real', contextLength),
      model('wide', 8192),
      ...(this.#card === 'embeddings' ? [model('cut', contextLength, ', dimensions: true')] : []),
    ]);
  }

  override async dispose(): Promise<void> {
    try {
      await super.dispose();
    } finally {
      await this.server?.stop();
    }
  }

  /** What vLLM itself says. */
  async direct<Answer>(route: string, fields: object): Promise<Answer> {
    const { status, body } = await this.server.post(route, fields);
    assert.equal(status, 200, JSON.stringify(body));
    return body as Answer;
  }

  /** Tokens of its prompts that vLLM found in its cache while that ran. */
  async cachedTokens(run: () => Promise<unknown>): Promise<number> {
    const before = await this.server.metric('vllm:prefix_cache_hits_total');
    await run();
    return (await this.server.metric('vllm:prefix_cache_hits_total')) - before;
  }

  async assertFound(made: RegExp, route: string, fields: object): Promise<void> {
    const args = [this.server.url, '--api-key-env', keyVariable];
    const said = await this.assertAdded(args, made, { route, fields });
    assert.match(said, /^added · vllm · .*\nwindow {3}2048 tokens\n/);
  }

  /** The same prompt of one account is found again, and of nobody else. */
  async assertCachesApart(route: string, fields: object): Promise<void> {
    const created = await this.service.command(
      'accounts',
      'create',
      'second',
      ...['--credit', '$1', '--key', 'k', '--json'],
    );
    assert.equal(created.code, 0, created.stderr);
    const { key } = (JSON.parse(created.stdout) as { readonly key: { readonly key: string } }).key;
    const send = async (apiKey: string, headers: Readonly<Record<string, string>> = {}): Promise<void> => {
      const answer = await fetch(`${this.service.url}/v1${route}`, {
        method: 'POST',
        headers: { authorization: `Bearer ${apiKey}`, 'content-type': 'application/json', ...headers },
        body: JSON.stringify({ model: 'real', ...fields }),
      });
      assert.equal(answer.status, 200, await answer.text());
    };
    await send(this.service.key);
    assert.ok((await this.cachedTokens(() => send(this.service.key))) >= 128, 'vLLM keeps a cache');
    assert.equal(await this.cachedTokens(() => send(key)), 0, 'of another account');
    const required = { 'service-zdr': 'required' };
    assert.equal(
      await this.cachedTokens(() => send(this.service.key, required)),
      0,
      'of a request that leaves nothing',
    );
    assert.equal(await this.cachedTokens(() => send(this.service.key, required)), 0, 'of two of them');
  }
}

interface Embeddings {
  readonly data: readonly { readonly index: number; readonly embedding: readonly number[] }[];
  readonly usage: { readonly prompt_tokens: number; readonly total_tokens: number };
}

/** 1 − cosine. */
function distance(a: readonly number[], b: readonly number[]): number {
  assert.equal(a.length, b.length);
  const product = a.reduce((sum, value, index) => sum + value * b[index]!, 0);
  return Math.abs(1 - product / (Math.hypot(...a) * Math.hypot(...b)));
}

describe('embeddings', () => {
  const scene = new Scene(['--convert', 'embed'], 'embeddings');
  let openai: OpenAI;
  before(async () => {
    await scene.start();
    openai = new OpenAI({ apiKey: scene.service.key, baseURL: `${scene.service.url}/v1`, maxRetries: 0 });
  });
  after(() => scene.dispose());

  /** By vLLM's own tokenizer. */
  const idsOf = async (prompt: string): Promise<readonly number[]> =>
    (await scene.direct<{ tokens: number[] }>('/../tokenize', { prompt })).tokens;

  const inputs: Readonly<Record<string, () => Promise<string | readonly unknown[]>>> = {
    'a text': async () => texts[0]!,
    'a batch': async () => texts,
    'token ids': () => idsOf(texts[1]!),
    'a batch of token ids': () => Promise.all(texts.map(idsOf)),
    'more texts than run at once': async () => Array.from({ length: 12 }, (_, index) => `text ${index}`),
  };
  for (const [name, inputOf] of Object.entries(inputs)) {
    test(`${name}: the vectors, tokens and money are vLLM's`, async () => {
      const input = (await inputOf()) as string | string[];
      const direct = await scene.direct<Embeddings>('/embeddings', { input });
      let through!: Embeddings;
      const paid = await scene.tokensPaid(async () => {
        through = await openai.embeddings.create({ model: 'real', input });
      });
      const prompts = await Promise.all(
        (Array.isArray(input) && typeof input[0] !== 'number' ? input : [input]).map(async (one) =>
          typeof one === 'string' ? await idsOf(one) : (one as unknown as readonly number[]),
        ),
      );
      const tokens = prompts.reduce((sum, ids) => sum + ids.length, 0);
      assert.deepEqual(
        [through.usage.prompt_tokens, through.usage.total_tokens, direct.usage.prompt_tokens, paid],
        [tokens, tokens, tokens, tokens],
      );
      assert.deepEqual(
        through.data.map(({ index }) => index),
        prompts.map((_, index) => index),
      );
      for (const [index, { embedding }] of through.data.entries()) {
        const far = distance(embedding, direct.data[index]!.embedding);
        assert.ok(far <= 1e-6, `${index}: ${far}`);
        assert.ok(Math.abs(Math.hypot(...embedding) - 1) < 1e-6);
      }
      if (through.data.length > 1)
        assert.ok(distance(through.data[0]!.embedding, through.data[1]!.embedding) > 1e-4, 'two texts are two vectors');
    });
  }

  test('float and base64 are the same numbers', async () => {
    const [asked] = texts;
    const { data } = (await scene.client.json('/embeddings', { input: asked })) as unknown as Embeddings;
    const [encoded] = (
      (await scene.client.json('/embeddings', { input: asked, encoding_format: 'base64' })) as {
        readonly data: readonly { readonly embedding: string }[];
      }
    ).data;
    const bytes = Buffer.from(encoded!.embedding, 'base64');
    const numbers = Array.from({ length: bytes.length / 4 }, (_, index) => bytes.readFloatLE(index * 4));
    assert.ok(distance(numbers, data[0]!.embedding) <= 1e-6);
    const direct = await scene.server.post('/embeddings', { input: asked, encoding_format: 'base64' });
    const same = (direct.body as { readonly data: readonly { readonly embedding: string }[] }).data[0]!.embedding;
    assert.equal(same.length, encoded!.embedding.length);
  });

  test('dimensions: refused where the card has none, as by vLLM, which is never asked; else the beginning of the vector', async () => {
    const fields = { input: texts[0]!, dimensions: 64 };
    assert.equal((await scene.server.post('/embeddings', fields)).status, 400);
    await assert.rejects(
      openai.embeddings.create({ model: 'real', ...fields }),
      (error: unknown) =>
        error instanceof BadRequestError && error.code === 'unsupported_parameter' && error.param === 'dimensions',
    );
    const whole = await scene.direct<Embeddings>('/embeddings', { input: texts[0]! });
    const cut = await openai.embeddings.create({ model: 'cut', ...fields });
    assert.ok(distance(cut.data[0]!.embedding, whole.data[0]!.embedding.slice(0, 64)) <= 1e-6);
    assert.deepEqual(await scene.refusal('/embeddings', { model: 'cut', input: 'a', dimensions: 60_000 }), [
      400,
      'unsupported_value',
      'dimensions',
    ]);
  });

  test('an input that is too long is named, whoever notices, and not charged', async () => {
    const ids = Array.from({ length: contextLength + 1 }, () => 100);
    for (const [model, input, param] of [
      ['real', ['a', tooLong], 'input[1]'],
      ['real', tooLong, 'input'],
      ['real', [[1], ids], 'input[1]'],
      // Its card promises more than the server has.
      ['wide', ['a', tooLong], 'input[1]'],
      ['wide', [[1], ids], 'input[1]'],
      // Of more characters than any 2,048 tokens have.
      ['wide', 'a '.repeat(60_000), 'input'],
    ] as const)
      assert.deepEqual(
        await scene.refusal('/embeddings', { model, input }),
        [400, 'context_length_exceeded', param],
        `${model} ${param}`,
      );
    const { body } = await scene.client.refused('/embeddings', { model: 'wide', input: ['a', tooLong] });
    assert.equal(body['context_length_limit'], contextLength);
    // The longest that fits.
    const paid = await scene.tokensPaid(() => openai.embeddings.create({ model: 'real', input: ids.slice(1) }));
    assert.equal(paid, contextLength);
  });

  test('a token that the model does not have is the fault of the client', async () => {
    assert.deepEqual(await scene.refusal('/embeddings', { input: [[1], [1, 9_999_999]] }), [
      400,
      'unsupported_value',
      'input[1][1]',
    ]);
  });

  test('what it keeps of a text is found again by the same account only', async () => {
    await scene.assertCachesApart('/embeddings', { input: long });
  });

  test('`backends add` makes a model of it', async () => {
    await scene.assertFound(/^can {6}embeddings: .*\nmakes {4}vectors of 576 numbers, /m, '/embeddings', {
      input: 'a',
    });
  });

  test('a request that its client leaves is ended there, and charged', async (t) => {
    const leave = new AbortController();
    const input = Array.from({ length: 30 }, (_, index) => `${index} ${long}`);
    const { requestId, response } = await scene.client.send('/embeddings', { input }, leave.signal);
    const reading = response.then((answer) => answer.text()).catch(() => undefined);
    // After its first step, of two of these texts; what runs it counts between steps only, when nothing does.
    const read = () => scene.server.metric('vllm:prompt_tokens_total');
    const before = await read();
    await until(async () => (await read()) > before, patienceMs);
    leave.abort();
    await reading;
    const row = await scene.ledger.row(requestId);
    assert.equal(row.ending, 'client_left');
    assert.equal(Number(row.costMicrocents), row.promptTokens * centsPerMillion);
    // Whoever asks next waits for what is left of it.
    await scene.direct('/embeddings', { input: 'a' });
    const all = (await Promise.all(input.map(idsOf))).reduce((sum, { length }) => sum + length, 0);
    const wasRead = (await read()) - before;
    t.diagnostic(`charged for ${row.promptTokens} tokens of ${all}, of which vLLM read ${wasRead}`);
    assert.ok(row.promptTokens <= all, `${row.promptTokens} of ${all}`);
    assert.ok(wasRead < all, 'vLLM does not read all of it');
  });

  test('doctor finds the server, and the window of the card that promises more', async () => {
    const { stdout } = await scene.service.command('doctor');
    assert.match(stdout, /^ok .*\breal\b/m, stdout);
    assert.match(stdout, /window is 2048 tokens, but context_length is 8192/, stdout);
  });
});

interface Ranks {
  readonly results: readonly {
    readonly index: number;
    readonly relevance_score: number;
    readonly document?: { readonly text: string };
  }[];
  readonly usage: { readonly prompt_tokens: number; readonly total_tokens: number };
}

describe('ranks', () => {
  // The likelihood of one token against another at the end makes a cross-encoder of any model that writes.
  const head = { classifier_from_token: ['Ġno', 'Ġyes'], method: 'from_2_way_softmax' };
  const scene = new Scene(['--convert', 'classify', '--hf-overrides', JSON.stringify(head)], 'rerank');
  before(() => scene.start());
  after(() => scene.dispose());

  const query = 'Why is the sky blue?';
  test("scores, their order, tokens and money are vLLM's", async () => {
    const direct = await scene.direct<Ranks>('/rerank', { query, documents: texts });
    let through!: Ranks;
    const paid = await scene.tokensPaid(async () => {
      through = (await scene.client.json('/rerank', { query, documents: texts })) as unknown as Ranks;
    });
    const { prompt_tokens: tokens } = direct.usage;
    assert.deepEqual([through.usage.prompt_tokens, through.usage.total_tokens, paid], [tokens, tokens, tokens]);
    assert.ok(tokens > texts.length * 5, `the query is read with each: ${tokens}`);
    assert.deepEqual(
      through.results.map(({ index }) => index),
      direct.results.map(({ index }) => index),
    );
    for (const [at, { relevance_score: score }] of through.results.entries())
      assert.ok(Math.abs(score - direct.results[at]!.relevance_score) <= 1e-6, JSON.stringify([through, direct]));
    assert.ok(through.results[0]!.relevance_score - through.results.at(-1)!.relevance_score > 1e-4, 'they differ');
  });

  test('top_n and return_documents', async () => {
    const all = await scene.direct<Ranks>('/rerank', { query, documents: texts });
    const fields = { query, documents: texts, top_n: 2, return_documents: true };
    const { results } = (await scene.client.json('/rerank', fields)) as unknown as Ranks;
    assert.deepEqual(
      results.map(({ index, document }) => [index, document?.text]),
      all.results.slice(0, 2).map(({ index }) => [index, texts[index]]),
    );
  });

  test('a document that is too long is named, and not charged', async () => {
    for (const model of ['real', 'wide'])
      assert.deepEqual(await scene.refusal('/rerank', { model, query, documents: ['a', tooLong] }), [
        400,
        'context_length_exceeded',
        'documents[1]',
      ]);
  });

  test('`backends add` makes a model of it', async () => {
    const fields = { query, documents: texts };
    await scene.assertFound(/^can {6}rerank: .*\nmakes {4}a score for each document, /m, '/rerank', fields);
  });

  test('what it keeps of a pair is found again by the same account only', async () => {
    await scene.assertCachesApart('/rerank', { query, documents: [long] });
  });
});
