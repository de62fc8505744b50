/**
 * A model that cannot serve a request, and the models that may serve it instead (docs/decisions/040-another-model.md): the
 * answer names the one that served, in every family; it is charged at that model's prices; and where none can, the first model's
 * error is the answer and nothing is charged.
 */
import assert from 'node:assert/strict';
import { after, before, beforeEach, describe, test } from 'node:test';

import type { UsageRow } from '../../src/store/ledger.ts';
import { dataUri, pngOf } from '../support/image-files.ts';
import { newRequestId } from '../support/raw-client.ts';
import { InnerService, until } from '../support/service.ts';
import { TestLedger } from '../support/test-ledger.ts';
import { chatChunk, event, Upstream, usageChunk } from '../support/upstream.ts';
import type { UpstreamExchange } from '../support/upstream.ts';
import { ask, say } from '../suites/families/exchange.ts';
import { families } from '../suites/families/families.ts';

type Play = (exchange: UpstreamExchange) => void;

const piece = (exchange: UpstreamExchange, text: string, reason: string | null): string =>
  exchange.path === '/v1/completions'
    ? event({ id: 'c', object: 'text_completion', created: 1, choices: [{ index: 0, text, finish_reason: reason }] })
    : chatChunk({ role: 'assistant', content: text }, reason);

/** Prompts have 10 tokens, of which 4 are in a cache, and answers 2. */
const answer: Play = (exchange) => {
  const usage = { prompt_tokens: 10, completion_tokens: 2, prompt_tokens_details: { cached_tokens: 4 } };
  exchange.events();
  exchange.chunk(piece(exchange, 'hel', null) + piece(exchange, 'lo', null));
  exchange.chunk(piece(exchange, '', 'stop') + usageChunk(usage) + event('[DONE]'));
  exchange.endChunks();
};
const fail: Play = (exchange) => exchange.json(500, {});
const breakOff: Play = (exchange) => {
  exchange.events();
  exchange.chunk(piece(exchange, 'hel', null));
  exchange.reset();
};

/** What each server does next, by its name. */
const plays = new Map<string, Play>();
const names = ['first', 'second', 'third', 'plain'] as const;
const servers = new Map<(typeof names)[number], Upstream>();
const server = (name: (typeof names)[number]): Upstream => servers.get(name)!;

/** Microcents for a token of prompt, cache and answer. */
const prices = { first: [5_000n, 2_500n, 20_000n], second: [7_000n, 3_000n, 30_000n], third: [1n, 1n, 2n] } as const;
const costAt = (name: keyof typeof prices, prompt: bigint, cached: bigint, completion: bigint): bigint =>
  (prompt - cached) * prices[name][0] + cached * prices[name][1] + completion * prices[name][2];

let service: InnerService;
let ledger: TestLedger;
let onlyFirst = '';

before(
  async () => {
    for (const name of names) {
      const upstream = await Upstream.start((exchange) => {
        if (exchange.path.endsWith('/tokenize'))
          exchange.json(200, { count: exchange.body.length < 500 ? 10 : 100, max_model_len: 8_192, tokens: [] });
        else (plays.get(name) ?? answer)(exchange);
      });
      servers.set(name, upstream);
    }
    const model = (id: string, of: (typeof names)[number], more = '', backend = ''): string => {
      const [input, cacheRead, output] = prices[of === 'plain' ? 'first' : of];
      return `  - id: ${id}
    context_length: 8192
    pricing: { input_cents_per_million: ${input}, cache_read_cents_per_million: ${cacheRead}, output_cents_per_million: ${output} }
    backends: [ { engine: openai, name: ${of}, flavor: vllm, url: "${server(of).url}"${backend} } ]
${more.replace(/^(?=.)/gm, '    ')}`;
    };
    service = await new InnerService({
      limits: '  first_token_timeout_seconds: 2',
      config: `models:
${[
  model('first', 'first', `fallback: [ SECOND ]\ncapabilities: { vision: true }`, ', zdr: true'),
  model('full', 'first', `fallback: [ second ]`, ', max_concurrency: 1, queue: 0'),
  model('long', 'first', 'fallback: [ plain, tiny, short, dedicated, gone, third, second ]', ', zdr: true'),
  model('poor', 'first', 'fallback: [ dear, second ]'),
  model('alone', 'first', 'fallback: [ dear ]'),
  model('formats', 'first', 'fallback: [ plain ]'),
  model('narrow', 'first', 'fallback: [ tiny ]'),
  model('second', 'second', 'fallback: [ third ]'),
  model('third', 'third'),
  model('plain', 'plain', 'capabilities: { tools: false, chat_completions: { n: false, json_schema: false } }'),
  model('tiny', 'second').replace('8192', '16'),
  model('short', 'second', 'max_output_tokens: 64'),
  model('dedicated', 'second', 'dedicated_to: [ acct_1C9VER1i2IGG ]'),
  model('gone', 'second', 'deprecation_date: "2026-01-02"'),
  model('dear', 'second').replaceAll(/: (7000|30000)/g, ': 900000000'),
].join('\n')}`,
    }).start();
    ledger = new TestLedger(service);
    const create = async (...flags: readonly string[]): Promise<string> => {
      const { stdout, stderr } = await service.command('keys', 'create', '--json', ...flags);
      assert.notEqual(stdout, '', stderr);
      return (JSON.parse(stdout) as { key: string }).key;
    };
    onlyFirst = await create('--model', 'first');
  },
  { timeout: 120_000 },
);

beforeEach(() => {
  plays.clear();
  for (const { exchanges } of servers.values()) exchanges.length = 0;
});
after(async () => {
  await service.verify();
  await service.dispose();
  for (const each of servers.values()) await each.close();
});

/** What a row says of the models that did not serve it. */
const stepsOf = ({ fallbacks }: UsageRow): readonly string[] =>
  (fallbacks ?? []).map(({ model, reason, isSkipped }) => `${model} ${isSkipped ? 'skipped' : 'failed'} ${reason}`);

/** Every name of a model in an answer. */
const modelsIn = (text: string): readonly string[] => [
  ...new Set([...text.matchAll(/"model":"([^"]+)"/g)].map(([, model]) => model!)),
];

/** All holds are gone: what is free here is the balance. */
const assertNoHold = (): Promise<void> => until(async () => (await ledger.openRequests()) === 0);

for (const family of families)
  for (const stream of [false, true])
    describe(`${family.name}, ${stream ? 'streamed' : 'whole'}`, () => {
      test('another model serves what the first one cannot: it is named, charged at its prices, and the receipt says why', async () => {
        plays.set('first', fail);
        const balance = await ledger.balance();
        const { id, status, headers, text } = await ask(
          service,
          family,
          say('hello, how are you today?', { model: 'first', stream }),
        );
        assert.equal(status, 200, text);
        assert.equal(headers.get('service-fallback-from'), 'first');
        const read = stream ? family.readStream(text) : family.readWhole(text);
        assert.deepEqual([read.text, read.usage.prompt, read.usage.completion], ['hello', 10, 2]);
        assert.deepEqual(modelsIn(text), ['second']);
        const row = await ledger.row(id);
        assert.deepEqual([row.modelId, row.ending, row.errorCode], ['second', 'finished', null]);
        assert.deepEqual(stepsOf(row), ['first failed backend_http_error']);
        assert.equal(row.costMicrocents, costAt('second', 10n, 4n, 2n));
        assert.deepEqual(
          [row.inputPrice, row.outputPrice],
          [prices.second[0] * 1_000_000n, prices.second[2] * 1_000_000n],
        );
        assert.deepEqual(
          row.attempts?.map(({ backend, model = null, failed }) => ({ backend, model, failed })),
          [
            { backend: 'first', model: 'first', failed: 'backend_http_error' },
            { backend: 'second', model: null, failed: null },
          ],
        );
        assert.equal(await ledger.balance(), balance - row.costMicrocents);
        await assertNoHold();
      });

      test('an answer of the first model that breaks off is not continued by another: the client has text already', async () => {
        plays.set('first', breakOff);
        const { id, status, text } = await ask(
          service,
          family,
          say('hello, how are you today?', { model: 'first', stream }),
        );
        const error = stream ? family.streamErrorOf(text) : family.errorOf(text);
        assert.deepEqual([status, error.code], [stream ? 200 : 502, 'backend_http_error']);
        const row = await ledger.row(id);
        assert.deepEqual([row.modelId, row.ending, row.costMicrocents, stepsOf(row)], ['first', 'failed', 0n, []]);
        assert.equal(server('second').exchanges.length, 0);
      });

      test('where the other model fails too, the answer is the error of the first, and nothing is charged', async () => {
        plays.set('first', (exchange) => exchange.json(503, {}));
        plays.set('second', fail);
        const { id, status, headers, text } = await ask(
          service,
          family,
          say('hello, how are you today?', { model: 'first', stream }),
        );
        assert.deepEqual([status, family.errorOf(text).code], [503, 'no_healthy_backends'], text);
        assert.match(text, /"model":"first"/);
        assert.equal(headers.get('service-fallback-from'), null);
        const row = await ledger.row(id);
        assert.deepEqual([row.modelId, row.ending, row.costMicrocents], ['first', 'failed', 0n]);
        assert.deepEqual(stepsOf(row), ['first failed no_healthy_backends', 'second failed backend_http_error']);
        // The list of `second` is not followed.
        assert.equal(server('third').exchanges.length, 0);
        await assertNoHold();
      });
    });

const [chat] = families;
const chatAs = (model: string, more: Readonly<Record<string, unknown>> = {}, options = {}) =>
  ask(service, chat!, say('hello, how are you today?', { model, more }), options);

test('a model without a fallback answers with its own error', async () => {
  plays.set('third', fail);
  const { id, status } = await chatAs('third');
  assert.equal(status, 502);
  assert.equal((await ledger.row(id)).fallbacks, undefined);
});

test('a model whose places are all taken lets another serve', async () => {
  const held: UpstreamExchange[] = [];
  plays.set('first', (exchange) => void held.push(exchange));
  const first = chatAs('full');
  await until(() => held.length === 1);
  const { id, status, text } = await chatAs('full');
  assert.deepEqual([status, modelsIn(text)], [200, ['second']]);
  assert.deepEqual(stepsOf(await ledger.row(id)), ['full failed backend_at_capacity']);
  answer(held[0]!);
  const own = await first;
  assert.deepEqual([own.status, modelsIn(own.text)], [200, ['full']]);
});

test('a first token that does not come in time lets another serve', async () => {
  plays.set('first', () => {});
  const { id, text } = await chatAs('first');
  assert.deepEqual(modelsIn(text), ['second']);
  assert.deepEqual(stepsOf(await ledger.row(id)), ['first failed backend_timeout']);
});

interface Skip {
  readonly what: string;
  readonly model: string;
  readonly body?: Readonly<Record<string, unknown>>;
  readonly headers?: Readonly<Record<string, string>>;
  readonly key?: () => string;
  /** The models that are left out, with the codes. */
  readonly skipped: readonly string[];
  /** undefined: none. */
  readonly serves?: string;
}
const tool = { type: 'function', function: { name: 'f', parameters: { type: 'object', properties: {} } } };
const image = { type: 'image_url', image_url: { url: dataUri('image/png', pngOf(8, 8)) } };
const format = { type: 'json_schema', json_schema: { name: 'x', schema: { type: 'object' } } };
const skips: readonly Skip[] = [
  {
    what: 'tools',
    model: 'long',
    body: { tools: [tool], max_tokens: 64 },
    skipped: ['plain skipped unsupported_feature', 'tiny skipped unsupported_feature'],
    serves: 'short',
  },
  {
    what: 'a longer answer',
    model: 'long',
    body: { tools: [tool], max_tokens: 65 },
    skipped: [
      'plain skipped unsupported_feature',
      'tiny skipped unsupported_feature',
      'short skipped unsupported_feature',
      'dedicated skipped model_not_found',
      'gone skipped model_not_found',
    ],
    serves: 'third',
  },
  {
    what: 'a long prompt',
    model: 'narrow',
    body: { messages: [{ role: 'user', content: 'word '.repeat(100) }] },
    skipped: ['tiny skipped context_length_exceeded'],
  },
  {
    what: 'a schema',
    model: 'formats',
    body: { response_format: format },
    skipped: ['plain skipped unsupported_response_format'],
  },
  { what: 'several answers', model: 'formats', body: { n: 2 }, skipped: ['plain skipped unsupported_feature'] },
  {
    what: 'an image',
    model: 'first',
    body: { messages: [{ role: 'user', content: [{ type: 'text', text: 'What is this?' }, image] }] },
    skipped: ['SECOND skipped unsupported_feature'],
  },
  {
    what: 'zero data retention',
    model: 'first',
    headers: { 'service-zdr': 'required' },
    skipped: ['SECOND skipped model_zdr_not_supported'],
  },
  {
    what: 'a key for some models',
    model: 'first',
    key: () => onlyFirst,
    skipped: ['SECOND skipped model_not_allowed'],
  },
  { what: 'a price that credit does not cover', model: 'alone', skipped: ['dear skipped insufficient_credits'] },
  {
    what: 'a price that credit does not cover',
    model: 'poor',
    skipped: ['dear skipped insufficient_credits'],
    serves: 'second',
  },
];
for (const { what, model, body, headers = {}, key = () => service.key, skipped, serves } of skips)
  test(`${what}, ${model}: a model that does not fit is left out${serves === undefined ? ', and the first error is the answer' : ', and the next one serves'}`, async () => {
    plays.set('first', fail);
    const balance = await ledger.balance();
    const { status, text } = await chatAs(model, body, { headers, key: key() });
    assert.deepEqual([status, modelsIn(text)], serves === undefined ? [502, [model]] : [200, [serves]], text);
    // The id of a request under zero data retention is not kept.
    const [row] = await ledger.newest(1);
    assert.ok(row !== undefined);
    assert.deepEqual(stepsOf(row), [`${model} failed backend_http_error`, ...skipped]);
    assert.equal(row.modelId, serves ?? model);
    assert.equal(await ledger.balance(), balance - row.costMicrocents);
    if (serves === undefined) assert.equal(row.costMicrocents, 0n);
    await assertNoHold();
    // All that was set aside on the way is free again.
    const whole = await chatAs('third');
    assert.equal(whole.status, 200, whole.text);
  });

test('a client that leaves while the other model reads its prompt pays for that at its prices; one that left before pays nothing', async () => {
  const held: UpstreamExchange[] = [];
  plays.set('first', fail);
  plays.set('second', (exchange) => void held.push(exchange));
  const leaving = new AbortController();
  const id = newRequestId();
  const body = { model: 'first', messages: [{ role: 'user', content: 'hello' }] };
  const asked = service.chat(body, { signal: leaving.signal, headers: { 'x-request-id': id } });
  await until(() => held.length === 1);
  leaving.abort();
  await assert.rejects(asked);
  await held[0]!.closed;
  const row = await ledger.row(id);
  assert.deepEqual([row.modelId, row.ending], ['second', 'client_left']);
  assert.equal(row.costMicrocents, costAt('second', BigInt(row.promptTokens), 0n, 0n));
  assert.ok(row.promptTokens > 0);
});

/** What differs between an answer and its repeat: when, what the connection is, and what of the limits is left. */
const ownHeaders =
  /^(date|connection|keep-alive|idempotent-replayed|ratelimit-.*|x-ratelimit-.*|content-length|transfer-encoding)$/;
const headersOf = ({ headers }: { readonly headers: Headers }): readonly (readonly [string, string])[] =>
  [...headers].filter(([name]) => !ownHeaders.test(name));

for (const stream of [false, true]) {
  test(`the repeat of a request with an Idempotency-Key is the answer of the model that served, with its headers (stream: ${stream})`, async () => {
    plays.set('first', fail);
    const options = { headers: { 'idempotency-key': `fallback-${stream}` } };
    const [first, twin] = await Promise.all([
      chatAs('first', { stream }, options),
      chatAs('first', { stream }, options),
    ]);
    const again = await chatAs('first', { stream }, options);
    for (const { headers, text } of [twin, again]) {
      assert.equal(text, first.text);
      assert.equal(headers.get('service-fallback-from'), 'first');
    }
    assert.equal(again.headers.get('idempotent-replayed'), 'true');
    assert.deepEqual(headersOf(again), headersOf(first));
    assert.deepEqual(modelsIn(again.text), ['second']);
    assert.equal(server('second').exchanges.length, 1);
  });
}

test('the receipt and the list of the command line, the log and the metrics say it', async () => {
  plays.set('first', fail);
  const { id } = await chatAs('first');
  const row = await ledger.row(id);
  const { stdout } = await service.command('explain', row.publicId);
  assert.match(stdout, /instead {2}of first, which failed with backend_http_error/);
  assert.match(stdout, /backend {2}first of first, failed with backend_http_error/);
  assert.match(stdout, /"second" served it instead of "first" \(backend_http_error\), at its own prices/);
  const listed = await service.command('usage', '--limit', '1');
  assert.match(listed.stdout, new RegExp(`${row.publicId} +second, not first `));
  const { requests } = await service.usage();
  const own = requests.filter(({ model, fallback_from: from }) => model === 'third' && from === null);
  assert.ok(
    own.length > 0 && requests.some(({ model, fallback_from: from }) => model === 'second' && from === 'first'),
  );
  const line = service.log.find((each) => each['event'] === 'answer' && each['request_id'] === row.publicId);
  assert.deepEqual([line?.['model'], line?.['fallback_from']], ['second', 'first']);
});
