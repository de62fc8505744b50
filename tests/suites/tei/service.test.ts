/**
 * A real text-embeddings-inference that embeds, and one that ranks, behind the service and OpenAI's own client: vectors, scores, tokens
 * and money are what the server says to the same request, and what it would do without a word is refused.
 */
import assert from 'node:assert/strict';
import { spawn, type ChildProcess } from 'node:child_process';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';

import { OpenAI } from '../../clients/official.ts';
import { freePort } from '../../support/free-port.ts';
import { until } from '../../support/service.ts';
import { taskModel, TaskScene } from '../../support/task-scene.ts';
import { writeTinyBert } from './bert-files.ts';

const window = 256;
const texts = ['the sky is blue', 'a', 'why is the grass green?', 'sea '.repeat(12)];
const tooLong = 'sea '.repeat(400);
const query = 'sky';

interface Embeddings {
  readonly data: readonly { readonly index: number; readonly embedding: readonly number[] }[];
  readonly usage: { readonly prompt_tokens: number };
}

/** A server, behind a model with its window and one whose card promises more. */
class Scene extends TaskScene {
  readonly #purpose: 'embed' | 'rank';
  readonly #folder = mkdtempSync(join(tmpdir(), 'tokenhouse-tei-'));
  #child: ChildProcess | undefined;
  #port = 0;

  constructor(purpose: 'embed' | 'rank') {
    super();
    this.#purpose = purpose;
  }

  get url(): string {
    return `http://127.0.0.1:${this.#port}`;
  }

  async start(): Promise<void> {
    this.#port = await freePort();
    const model = writeTinyBert(join(this.#folder, 'tiny'), this.#purpose, window);
    const place = ['--hostname', '127.0.0.1', '--port', String(this.#port)];
    this.#child = spawn(process.env['TEI']!, ['--model-id', model, '--dtype', 'float32', ...place], {
      stdio: 'ignore',
      env: { ...process.env, HF_HUB_OFFLINE: '1' },
    });
    await until(async () => {
      assert.equal(this.#child!.exitCode, null, 'it has ended');
      return await fetch(`${this.url}/health`).then(
        ({ status }) => status === 200,
        () => false,
      );
    }, 60_000);
    const card = this.#purpose === 'embed' ? 'embeddings' : 'rerank';
    const entry = (id: string, contextLength: number): string =>
      taskModel(
        id,
        contextLength,
        `${card}: { supported: true }`,
        `{ engine: openai, flavor: tei, url: "${this.url}/v1" }`,
      );
    await this.serve([entry('real', window), entry('wide', 8192)]);
  }

  override async dispose(): Promise<void> {
    try {
      await super.dispose();
    } finally {
      this.#child?.kill('SIGKILL');
      rmSync(this.#folder, { recursive: true, force: true });
    }
  }

  async direct<Answer>(path: string, body: object): Promise<{ readonly tokens: number; readonly answer: Answer }> {
    const answer = await fetch(this.url + path, {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify(body),
    });
    assert.equal(answer.status, 200);
    return { tokens: Number(answer.headers.get('x-compute-tokens')), answer: (await answer.json()) as Answer };
  }

  /** By `backends add` and by `doctor`. */
  async assertKnown(made: RegExp, route: string, fields: object): Promise<void> {
    const said = await this.assertAdded([this.url], made, { route, fields });
    assert.match(said, new RegExp(`^added · tei · ${this.url}/v1 .*\\nwindow {3}${window} tokens\\n`));
    const { stdout: found } = await this.service.command('doctor');
    assert.match(found, /^ok .*\breal\b/m, found);
    assert.match(found, new RegExp(`window is ${window} tokens, but context_length is 8192`), found);
  }
}

describe('a real text-embeddings-inference that embeds', { timeout: 600_000 }, () => {
  const scene = new Scene('embed');
  let openai: OpenAI;
  before(async () => {
    await scene.start();
    openai = new OpenAI({ apiKey: scene.service.key, baseURL: `${scene.service.url}/v1`, maxRetries: 0 });
  });
  after(() => scene.dispose());

  for (const [name, input] of [
    ['a text', texts[0]!],
    ['a batch', texts],
  ] as const)
    test(`${name}: the vectors, tokens and money are the server's`, async () => {
      const { answer } = await scene.direct<Embeddings>('/v1/embeddings', { input, model: 'any' });
      let through!: Embeddings;
      const paid = await scene.tokensPaid(async () => {
        through = await openai.embeddings.create({ model: 'real', input: input as string | string[] });
      });
      const { prompt_tokens: tokens } = answer.usage;
      assert.deepEqual([through.usage.prompt_tokens, paid], [tokens, tokens]);
      for (const { index, embedding } of answer.data)
        for (const [at, value] of embedding.entries())
          assert.ok(Math.abs(value - through.data[index]!.embedding[at]!) < 1e-6, `${index} ${at}`);
    });

  test('more texts than it takes at once', async () => {
    const input = Array.from({ length: 70 }, (_, index) => `text ${index}`);
    const { data, usage } = await openai.embeddings.create({ model: 'real', input });
    assert.deepEqual(
      data.map(({ index }) => index),
      input.map((_, index) => index),
    );
    const last = await scene.direct<Embeddings>('/v1/embeddings', { input: input[69], model: 'any' });
    assert.ok(Math.abs(data[69]!.embedding[0]! - last.answer.data[0]!.embedding[0]!) < 1e-6);
    assert.ok(usage.prompt_tokens > 70 * 4);
  });

  test('a text that it would cut is refused by its name', async () => {
    assert.deepEqual(await scene.refusal('/embeddings', { input: ['a', tooLong] }), [
      400,
      'context_length_exceeded',
      'input[1]',
    ]);
  });

  test('token ids, of which it would make another text, are refused', async () => {
    for (const input of [
      [5, 6],
      [[5, 6], [7]],
    ])
      assert.deepEqual(await scene.refusal('/embeddings', { input }), [400, 'unsupported_feature', 'input']);
  });

  test('`backends add` and doctor know it', async () => {
    await scene.assertKnown(/^can {6}embeddings: .*\nmakes {4}vectors of 32 numbers/m, '/embeddings', { input: 'a' });
  });
});

describe('a real text-embeddings-inference that ranks', { timeout: 600_000 }, () => {
  const scene = new Scene('rank');
  before(() => scene.start());
  after(() => scene.dispose());

  test("scores, their order, tokens and money are the server's", async () => {
    type Scores = readonly { readonly index: number; readonly score: number }[];
    const { tokens, answer } = await scene.direct<Scores>('/rerank', { query, texts });
    let through!: {
      readonly results: readonly { readonly index: number; readonly relevance_score: number }[];
      readonly usage: { readonly prompt_tokens: number };
    };
    const paid = await scene.tokensPaid(async () => {
      through = (await scene.client.json('/rerank', { query, documents: texts })) as unknown as typeof through;
    });
    assert.ok(tokens > 0);
    assert.deepEqual([through.usage.prompt_tokens, paid], [tokens, tokens]);
    assert.deepEqual(
      through.results.map(({ index }) => index),
      answer.map(({ index }) => index),
    );
    for (const [at, { score }] of answer.entries())
      assert.ok(Math.abs(score - through.results[at]!.relevance_score) < 1e-6);
  });

  test('a document that it would cut is refused', async () => {
    for (const model of ['real', 'wide']) {
      const [status, code] = await scene.refusal('/rerank', { model, query, documents: ['a', tooLong] });
      assert.deepEqual([status, code], [400, 'context_length_exceeded'], model);
    }
  });

  test('`backends add` and doctor know it', async () => {
    await scene.assertKnown(/^can {6}rerank/m, '/rerank', { query, documents: ['a', 'b'] });
  });
});
