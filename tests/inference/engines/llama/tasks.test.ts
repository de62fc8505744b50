/** Models that embed or rank, in a real child. */
import assert from 'node:assert/strict';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, describe, test, type TestContext } from 'node:test';
import type { GenerationEvent } from '../../../../src/generation/event.ts';
import type { EngineRequest } from '../../../../src/generation/request.ts';
import { ApiError } from '../../../../src/platform/errors.ts';
import { writeTinyBert, type TinyBertOptions } from '../../../support/tiny-bert.ts';
import { writeTinyGguf } from '../../../support/tiny-gguf.ts';
import { all, engineRequest } from '../contract.ts';
import { chat, never, startEngine, until } from './support.ts';

const folder = mkdtempSync(join(tmpdir(), 'tokenhouse-tasks-'));
after(() => rmSync(folder, { recursive: true, force: true }));

function bert(name: string, options: TinyBertOptions = {}): string {
  const path = join(folder, `${name}.gguf`);
  writeTinyBert(path, options);
  return path;
}

const request = (changes: Partial<EngineRequest>): EngineRequest => engineRequest('', { maxTokens: 0, ...changes });
const embed = (prompts: readonly string[], changes: Partial<EngineRequest> = {}): EngineRequest =>
  request({
    prompt: { type: 'texts', prompts },
    task: { type: 'embed', field: 'input', dimensions: undefined },
    ...changes,
  });
const rank = (query: string, prompts: readonly string[]): EngineRequest =>
  request({ prompt: { type: 'texts', prompts }, task: { type: 'rank', field: 'documents', query } });

interface Found {
  readonly vectors: readonly Float32Array[];
  readonly scores: readonly number[];
  readonly promptTokens: number | undefined;
}

function foundIn(events: readonly GenerationEvent[]): Found {
  const vectors: Float32Array[] = [];
  const scores: number[] = [];
  for (const event of events) {
    if (event.type === 'vector') vectors[event.choice] = event.vector;
    if (event.type === 'score') scores[event.choice] = event.score;
  }
  const [start] = events;
  assert.equal(start?.type, 'start');
  const finished = events.flatMap((event) => (event.type === 'finish' ? [event.choice] : []));
  assert.deepEqual(
    finished.toSorted((a, b) => a - b),
    finished.map((_, index) => index),
  );
  return { vectors, scores, promptTokens: start.type === 'start' ? start.promptTokens : undefined };
}

type Engine = Awaited<ReturnType<typeof startEngine>>['engine'];
const found = async (engine: Engine, work: EngineRequest, signal = never): Promise<Found> =>
  foundIn((await all(engine, work, signal)).flat());

const cosine = (a: Float32Array, b: Float32Array): number =>
  a.reduce((sum, value, index) => sum + value * b[index]!, 0);
const same = (a: Float32Array | undefined, b: Float32Array | undefined, what: string): void =>
  assert.ok(a !== undefined && b !== undefined && cosine(a, b) > 1 - 1e-6, what);
const refusal = (code: string, param?: string) => (error: unknown) =>
  error instanceof ApiError && error.code === code && (param === undefined || error.param === param);

const texts = ['the sky is blue', 'green grass', 'a', 'the quick brown fox is a fox', 'why'];
const embedder = (context: TestContext, options: TinyBertOptions = {}, slots = 3) =>
  startEngine(context, bert('embed', options), { purpose: 'embed', contextLength: 128, slots });

describe('an embedded model that embeds', () => {
  test('makes the same unit vectors of a text alone, in a list, and beside other requests', async (context) => {
    const { engine } = await embedder(context);
    const alone: Float32Array[] = [];
    for (const text of texts) alone.push((await found(engine, embed([text]))).vectors[0]!);
    for (const vector of alone) assert.ok(vector.length === 64 && Math.abs(Math.hypot(...vector) - 1) < 1e-5);
    assert.ok(cosine(alone[0]!, alone[1]!) < 0.999, 'different texts have different vectors');
    const together = await Promise.all(texts.map(() => found(engine, embed(texts))));
    for (const { vectors } of together)
      for (const [index, vector] of vectors.entries()) same(vector, alone[index], texts[index]!);
    assert.equal((await engine.measure()).working, 0);
  });

  test('counts what it reads, and the marks around it', async (context) => {
    const { engine } = await embedder(context);
    assert.equal((await found(engine, embed(['the sky', 'blue']))).promptTokens, 4 + 3);
    assert.equal(await engine.countTokens(embed(['the sky', 'blue']), never), 4 + 3);
  });

  test('takes token ids as they are, marks included', async (context) => {
    const { engine } = await embedder(context);
    const text = await found(engine, embed(['the sky']));
    const marked = [2, 5, 9, 3];
    const ids = await found(engine, request({ ...embed([]), prompt: { type: 'token-ids', prompts: [marked] } }));
    same(text.vectors[0], ids.vectors[0], 'the same tokens');
    assert.equal(ids.promptTokens, 4);
    const unknown = request({ ...embed([]), prompt: { type: 'token-ids', prompts: [[2], [3, 100_000]] } });
    await assert.rejects(found(engine, unknown), refusal('unsupported_value', 'input[1][1]'));
  });

  test('cuts vectors to the dimensions that are asked for, and no further than they go', async (context) => {
    const { engine } = await embedder(context);
    const of = (dimensions: number) => embed(['the sky'], { task: { type: 'embed', field: 'input', dimensions } });
    const whole = (await found(engine, embed(['the sky']))).vectors[0]!;
    const cut = (await found(engine, of(8))).vectors[0]!;
    assert.equal(cut.length, 8);
    const length = Math.hypot(...whole.subarray(0, 8));
    same(
      cut,
      whole.subarray(0, 8).map((value) => value / length),
      'the first ones, of length 1 again',
    );
    await assert.rejects(found(engine, of(65)), refusal('unsupported_value', 'dimensions'));
  });

  test('reads a text that spells its marks as text', async (context) => {
    const { engine } = await embedder(context);
    const { promptTokens } = await found(engine, embed(['the [SEP] sky']));
    assert.ok(promptTokens! > 5, `${promptTokens} tokens: brackets and letters`);
    // What has no token is the unknown one.
    assert.equal((await found(engine, embed(['\u{1F600}']))).promptTokens, 3);
  });

  test('refuses what is longer than its window, and computes what fills it', async (context) => {
    const { engine } = await embedder(context);
    await assert.rejects(found(engine, embed(['a', 'a '.repeat(127)])), refusal('context_length_exceeded', 'input[1]'));
    assert.equal((await found(engine, embed(['a '.repeat(126)]))).promptTokens, 128);
  });

  test('gives one text its turn beside two thousand of another account, and forgets what is cancelled', async (context) => {
    const { engine } = await embedder(context, {}, 1);
    const abort = new AbortController();
    const many = embed(
      Array.from({ length: 2048 }, () => 'a '.repeat(100)),
      { cacheScope: 'other' },
    );
    let results = 0;
    const long = engine.generate(many, abort.signal, (batch) => {
      results += batch.filter(({ type }) => type === 'vector').length;
      return true;
    });
    long.catch(() => {});
    await until(() => results > 0, 'it has begun');
    await found(engine, embed(['why'], { cacheScope: 'own' }));
    assert.ok(results < 2048, 'it did not wait for all of them');
    const reason = new Error('left');
    abort.abort(reason);
    await assert.rejects(long, (error) => error === reason);
    await until(async () => (await engine.measure()).working === 0, 'the rest is not computed');
    assert.ok(results < 2048);
  });

  test('with the last token of a causal model, in pieces for a long text', async (context) => {
    const file = join(folder, 'last.gguf');
    writeTinyGguf(file, { poolingType: 3, contextLength: 2048 });
    const options = { purpose: 'embed', contextLength: 1024, slots: 2 } as const;
    const { engine } = await startEngine(context, file, options);
    const long = 'The quick brown fox. '.repeat(50);
    const [first, second] = [await found(engine, embed([long])), await found(engine, embed([long, 'short']))];
    assert.ok(first.promptTokens! > 512);
    same(first.vectors[0], second.vectors[0], 'nothing of an earlier text is left');
    const other = await found(engine, embed([`Another beginning. ${long}`]));
    assert.ok(cosine(first.vectors[0]!, other.vectors[0]!) < 0.9999, 'the beginning counts too');
  });

  test('ends its requests when it is killed, and answers the next ones', async (context) => {
    const { engine } = await embedder(context, {}, 1);
    const many = embed(Array.from({ length: 2048 }, () => 'a '.repeat(100)));
    let begun = false;
    const lost = engine.generate(many, never, () => (begun = true));
    lost.catch(() => {});
    await until(() => begun, 'it has begun');
    process.kill(engine.pid!, 'SIGKILL');
    await assert.rejects(lost, refusal('backend_http_error'));
    await until(() => engine.status().state === 'ready', 'it is loaded again');
    assert.equal((await found(engine, embed(['why']))).vectors.length, 1);
  });
});

describe('an embedded model that ranks', () => {
  test('scores each document, whatever else is ranked', async (context) => {
    const { engine } = await startEngine(context, bert('rank', { pooling: 'rank' }), {
      purpose: 'rank',
      contextLength: 128,
      slots: 2,
    });
    const { scores, promptTokens } = await found(engine, rank('why', texts));
    assert.equal(scores.length, texts.length);
    for (const score of scores) assert.ok(score > 0 && score < 1);
    assert.ok(new Set(scores).size === texts.length, `${scores}`);
    const [alone] = (await found(engine, rank('why', [texts[3]!]))).scores;
    assert.ok(Math.abs(alone! - scores[3]!) < 1e-6);
    assert.notEqual((await found(engine, rank('sky', [texts[3]!]))).scores[0], alone);
    assert.equal(promptTokens, await engine.countTokens(rank('why', texts), never));
    await assert.rejects(found(engine, embed(['a'])), refusal('unsupported_feature'));
    await assert.rejects(found(engine, chat('hi')), refusal('unsupported_feature'));
  });
});

test('a file is not loaded for what it was not made for', async (context) => {
  const tiny = join(folder, 'writes.gguf');
  writeTinyGguf(tiny);
  for (const [file, purpose, words] of [
    [bert('mean'), 'write', /cannot write.*embeddings/],
    [bert('ranks', { pooling: 'rank' }), 'write', /cannot write.*rerank/],
    [bert('ranks', { pooling: 'rank' }), 'embed', /cannot embed/],
    [bert('mean'), 'rank', /cannot rank/],
    [bert('silent', { statesPooling: false }), 'embed', /pooling_type/],
    [tiny, 'embed', /pooling_type/],
  ] as const) {
    await assert.rejects(startEngine(context, file, { purpose, contextLength: 128 }), words);
  }
});
