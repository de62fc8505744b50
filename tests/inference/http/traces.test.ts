/** What a collector of the test's own receives of requests that end in every way. */
import assert from 'node:assert/strict';
import { after, before, beforeEach, describe, test } from 'node:test';

import { OtlpCollector, type ReceivedSpan } from '../../support/otlp-collector.ts';
import { InnerService, until } from '../../support/service.ts';
import { chatChunk, event, Upstream, usageChunk, type UpstreamExchange } from '../../support/upstream.ts';

const usage = { prompt_tokens: 7, completion_tokens: 2, total_tokens: 9, prompt_tokens_details: { cached_tokens: 4 } };

function say(exchange: UpstreamExchange): void {
  if (exchange.path.endsWith('/embeddings'))
    return exchange.json(200, { data: [{ index: 0, embedding: [1, 0] }], usage: { prompt_tokens: 3 } });
  if (exchange.path.endsWith('/rerank'))
    return exchange.json(200, { results: [{ index: 0, relevance_score: 0.5 }], usage: { total_tokens: 5 } });
  const isChat = exchange.path.endsWith('/chat/completions');
  const choice = (text: string, finish: string | null) =>
    event({
      id: 'c',
      object: 'text_completion',
      created: 1,
      model: 'm',
      choices: [{ index: 0, text, finish_reason: finish }],
    });
  exchange.events();
  exchange.chunk(isChat ? chatChunk({ content: 'hello' }) : choice('hello', null));
  exchange.chunk((isChat ? chatChunk({}, 'stop') : choice('', 'stop')) + usageChunk(usage) + event('[DONE]'));
  exchange.endChunks();
}

let handle: (exchange: UpstreamExchange) => void = say;
let handleSecond: (exchange: UpstreamExchange) => void = say;
let upstream: Upstream;
let second: Upstream;
let collector: OtlpCollector;
let service: InnerService;

before(async () => {
  upstream = await Upstream.start((exchange) => handle(exchange));
  second = await Upstream.start((exchange) => handleSecond(exchange));
  collector = await OtlpCollector.start();
  const model = (id: string, backends: string, capabilities = '{}', cents = 5): string => `  - id: ${id}
    context_length: 8192
    pricing: { input_cents_per_million: ${cents}, output_cents_per_million: 20 }
    capabilities: ${capabilities}
    backends: [ ${backends} ]
`;
  const at = (url: string, more = ''): string => `{ engine: openai, flavor: vllm, url: "${url}"${more} }`;
  service = new InnerService({
    config: `telemetry:
  endpoint: ${collector.url}/base/
  headers: authorization=Bearer%20secret,x-tenant=7
  service_name: inference
  resource_attributes: deployment.environment.name=test
models:
${model('near', '{ engine: scripted, scripts: [ { say: [ { text: "hi" } ] } ] }')}${model('far', at(upstream.url))}${model(
      'two',
      `${at(upstream.url, ', name: gpu-1, rank: 1')}, ${at(second.url, ', name: gpu-2, rank: 2')}`,
    )}${model('narrow', at(upstream.url, ', max_concurrency: 1'))}${model('full', at(upstream.url, ', max_concurrency: 1, queue: 0'))}${model(
      'vectors',
      at(upstream.url),
      '{ embeddings: { supported: true }, rerank: { supported: true } }',
    )}${model('dear', at(upstream.url), '{}', 1_000_000_000)}`,
  });
  await service.start();
});
after(async () => {
  await service.dispose();
  await Promise.all([upstream.close(), second.close(), collector.close()]);
});
beforeEach(() => {
  handle = say;
  handleSecond = say;
  upstream.exchanges.length = 0;
  second.exchanges.length = 0;
});

const ask = (
  path: string,
  body: object,
  headers: Record<string, string> = {},
  signal?: AbortSignal,
): Promise<Response> =>
  fetch(service.url + path, {
    method: 'POST',
    headers: { authorization: `Bearer ${service.key}`, 'content-type': 'application/json', ...headers },
    body: JSON.stringify(body),
    ...(signal === undefined ? {} : { signal }),
  });

const hexDigits = (length: number): string =>
  Array.from({ length }, () => Math.floor(Math.random() * 16).toString(16)).join('');
let parents = 0;
const newParent = () => ({ traceId: `1${hexDigits(31)}`, spanId: `${(++parents).toString(16).padStart(16, '0')}` });

/** The spans of a trace, once its server span has come: all of a request come together. */
async function traceOf(traceId: string): Promise<{ root: ReceivedSpan; children: readonly ReceivedSpan[] }> {
  let spans: readonly ReceivedSpan[] = [];
  await until(() => {
    spans = collector.spans.filter((span) => span.traceId === traceId);
    return spans.length > 0;
  }, 30_000);
  const [root, ...more] = spans.filter(({ kind }) => kind === 2);
  assert.ok(root !== undefined && more.length === 0, 'one server span');
  const children = spans.filter((span) => span !== root);
  for (const child of children) {
    assert.equal(child.parentSpanId, root.spanId);
    assert.ok(child.startedNs >= root.startedNs && child.endedNs <= root.endedNs, child.name);
  }
  for (const span of spans) {
    assert.ok(span.endedNs >= span.startedNs, span.name);
    assert.equal(span.flags & 0xff, 1);
  }
  assert.equal(new Set(spans.map(({ spanId }) => spanId)).size, spans.length);
  return { root, children };
}

/** Sends a request with a parent of its own; resolves with what it got, and what the collector got. */
async function traced(path: string, body: object, headers: Record<string, string> = {}) {
  const parent = newParent();
  const response = await ask(path, body, { traceparent: `00-${parent.traceId}-${parent.spanId}-01`, ...headers });
  const text = await response.text();
  const trace = await traceOf(parent.traceId);
  assert.equal(trace.root.parentSpanId, parent.spanId);
  assert.equal(trace.root.flags, 0x301, 'its parent is elsewhere');
  return { response, text, ...trace };
}

const names = (spans: readonly ReceivedSpan[]): readonly string[] => spans.map(({ name }) => name);
const chat = (model: string, more: object = {}) => ({ model, messages: [{ role: 'user', content: 'Hi' }], ...more });
const attemptsOf = (spans: readonly ReceivedSpan[]): readonly ReceivedSpan[] =>
  spans.filter(({ attributes }) => 'tokenhouse.attempt' in attributes);

describe('an answer', () => {
  const prompt = { model: 'far', prompt: 'one two three four five', max_tokens: 20 };
  const families: readonly (readonly [path: string, body: object, operation: string, streams: boolean])[] = [
    ['/v1/chat/completions', chat('far'), 'chat', true],
    ['/v1/completions', prompt, 'text_completion', true],
    ['/v1/messages', chat('far', { max_tokens: 20 }), 'chat', true],
    ['/v1/responses', { model: 'far', input: 'Hi' }, 'chat', true],
    ['/v1/embeddings', { model: 'vectors', input: 'Hi' }, 'embeddings', false],
    ['/v1/rerank', { model: 'vectors', query: 'Hi', documents: ['Ho'] }, 'rerank', false],
  ];
  for (const [path, body, operation, streams] of families)
    for (const stream of streams ? [false, true] : [false])
      test(`${path}, ${stream ? 'streamed' : 'whole'}`, async () => {
        const { response, text, root, children } = await traced(path, stream ? { ...body, stream } : body);
        assert.equal(response.status, 200, text);
        const { model } = body as { model: string };
        assert.deepEqual(names(children), ['hold', `${operation} ${model}`, 'settle']);
        assert.equal(root.name, `POST ${path}`);
        const isText = operation === 'chat' || operation === 'text_completion';
        const figures = isText ? [7, 4, 2] : [operation === 'embeddings' ? 3 : 5, 0, 0];
        const ofUsage = {
          'gen_ai.usage.input_tokens': figures[0],
          'gen_ai.usage.cache_read.input_tokens': figures[1],
          'gen_ai.usage.output_tokens': figures[2],
          'gen_ai.usage.reasoning.output_tokens': 0,
        };
        const { 'gen_ai.response.time_to_first_chunk': ofRoot, ...rootAttributes } = root.attributes;
        assert.deepEqual(rootAttributes, {
          'http.request.method': 'POST',
          'http.route': path,
          'url.path': path,
          'url.scheme': 'http',
          'http.response.status_code': 200,
          'gen_ai.operation.name': operation,
          'gen_ai.provider.name': 'tokenhouse',
          'gen_ai.request.model': model,
          'gen_ai.request.stream': stream,
          'gen_ai.response.finish_reasons': ['stop'],
          'tokenhouse.request.id': response.headers.get('x-request-id'),
          'tokenhouse.account.id': service.accountId,
          'tokenhouse.key.id': root.attributes['tokenhouse.key.id'],
          'tokenhouse.ending': 'finished',
          ...ofUsage,
        });
        assert.match(String(root.attributes['tokenhouse.key.id']), /^key_/);
        const [attempt] = attemptsOf(children);
        const { 'gen_ai.response.time_to_first_chunk': ofAttempt, ...attributes } = attempt!.attributes;
        assert.deepEqual(attributes, {
          'gen_ai.operation.name': operation,
          'gen_ai.provider.name': 'vllm',
          'gen_ai.request.model': model,
          'gen_ai.response.model': model,
          'tokenhouse.backend': 'openai',
          'tokenhouse.attempt': 1,
          'tokenhouse.outcome': 'answered',
          ...ofUsage,
        });
        assert.ok(Number(ofAttempt) >= 0 && Number(ofRoot) >= Number(ofAttempt) - 0.001, `${ofRoot} ${ofAttempt}`);
        assert.equal(attempt!.kind, 3);
        assert.deepEqual(
          attempt!.events.map(({ name }) => name),
          ['tokenhouse.first_token'],
        );
        assert.ok([root, ...children].every(({ isError }) => !isError));
        // The backend's own spans are below the attempt.
        assert.equal(upstream.exchanges.at(-1)?.headers.get('traceparent'), `00-${root.traceId}-${attempt!.spanId}-01`);
      });

  test('of a backend in the service itself, and the resource that all spans are of', async () => {
    const { children, root } = await traced('/v1/chat/completions', chat('near'));
    const [attempt] = attemptsOf(children);
    assert.deepEqual([attempt!.kind, attempt!.attributes['gen_ai.provider.name']], [1, 'scripted']);
    const {
      'service.instance.id': instance,
      'service.version': version,
      'process.pid': pid,
      ...resource
    } = root.resource;
    assert.match(String(instance), /^[0-9a-f-]{36}$/);
    assert.match(String(version), /^\d+\.\d+\.\d+/);
    assert.equal(pid, process.pid);
    assert.deepEqual(resource, {
      'service.name': 'inference',
      'deployment.environment.name': 'test',
      'telemetry.sdk.name': 'tokenhouse',
      'telemetry.sdk.language': 'nodejs',
      'telemetry.sdk.version': version,
    });
    const [post] = collector.posts;
    assert.equal(post!.path, '/base/v1/traces');
    assert.equal(post!.headers.authorization, 'Bearer secret');
    assert.equal(post!.headers['x-tenant'], '7');
    assert.equal(post!.headers['content-type'], 'application/x-protobuf');
  });

  test('that counts tokens', async () => {
    const { root, children, response } = await traced('/v1/messages/count_tokens', chat('near'));
    assert.equal(response.status, 200);
    assert.deepEqual(names(children), []);
    assert.equal(root.attributes['gen_ai.operation.name'], 'count_tokens');
  });
});

describe('what may go wrong', () => {
  test('a retry at a second backend', async () => {
    handle = (exchange) => exchange.json(500, {});
    const { response, root, children } = await traced('/v1/chat/completions', chat('two'));
    assert.equal(response.status, 200);
    const [first, other] = attemptsOf(children);
    const facts = ({ attributes }: ReceivedSpan) =>
      ['backend', 'attempt', 'outcome'].map((name) => attributes[`tokenhouse.${name}`]);
    assert.deepEqual(facts(first!), ['gpu-1', 1, 'failed']);
    assert.deepEqual(facts(other!), ['gpu-2', 2, 'answered']);
    assert.deepEqual([first!.isError, first!.attributes['error.type']], [true, 'backend_http_error']);
    assert.deepEqual([other!.isError, root.isError], [false, false]);
    assert.ok(first!.endedNs <= other!.startedNs);
    assert.equal(typeof other!.attributes['tokenhouse.routing.expected_cached_tokens'], 'number');
    const page = await (await fetch(`${service.accountUrl}/metrics`)).text();
    assert.match(page, /^tokenhouse_backend_found_cached_tokens_total\{model="two",backend="gpu-2"\} 4$/m);
    assert.deepEqual(
      [upstream, second].map(({ exchanges }) => exchanges[0]?.headers.get('traceparent')),
      [first!, other!].map(({ traceId, spanId }) => `00-${traceId}-${spanId}-01`),
    );
  });

  test('a wait for a place', async () => {
    const held: UpstreamExchange[] = [];
    handle = (exchange) => void held.push(exchange);
    const first = traced('/v1/chat/completions', chat('narrow'));
    await until(() => held.length === 1);
    const waiting = traced('/v1/chat/completions', chat('narrow'));
    const metric = async (): Promise<string> => (await fetch(`${service.accountUrl}/metrics`)).text();
    await until(async () => /tokenhouse_model_waiting\{model="narrow",tier="default"\} 1/.test(await metric()));
    handle = say;
    say(held[0]!);
    assert.deepEqual(names((await first).children), ['hold', 'chat narrow', 'settle']);
    const { children } = await waiting;
    assert.deepEqual(names(children), ['hold', 'queue', 'chat narrow', 'settle']);
    const [, queue, attempt] = children;
    assert.ok(queue!.endedNs > queue!.startedNs && queue!.endedNs <= attempt!.startedNs);
  });

  test('refused for lack of credit', async () => {
    const { response, root, children } = await traced('/v1/chat/completions', chat('dear'));
    assert.equal(response.status, 402);
    assert.deepEqual(names(children), ['hold']);
    assert.deepEqual([children[0]!.isError, children[0]!.attributes['error.type']], [true, 'insufficient_credits']);
    assert.deepEqual(
      [root.attributes['http.response.status_code'], root.attributes['error.type'], root.isError],
      [402, 'insufficient_credits', false],
    );
  });

  test('refused because everything is taken', async () => {
    const held: UpstreamExchange[] = [];
    handle = (exchange) => void held.push(exchange);
    const first = ask('/v1/chat/completions', chat('full'));
    await until(() => held.length === 1);
    const { response, root, children } = await traced('/v1/chat/completions', chat('full', { stream: true }));
    say(held[0]!);
    await (await first).text();
    assert.equal(response.status, 429);
    assert.deepEqual(names(children), ['hold', 'settle']);
    assert.deepEqual(
      [root.attributes['http.response.status_code'], root.attributes['error.type'], root.isError],
      [429, 'backend_at_capacity', false],
    );
  });

  test('refused before there was a model', async () => {
    for (const [status, code, path, body, headers] of [
      [401, 'invalid_api_key', '/v1/chat/completions', chat('far'), { authorization: 'Bearer tkh_none' }],
      [404, 'model_not_found', '/v1/messages', chat('nobody', { max_tokens: 3 }), {}],
    ] as const) {
      const { response, root, children } = await traced(path, body, headers);
      assert.equal(response.status, status);
      assert.deepEqual(names(children), []);
      assert.deepEqual([root.attributes['error.type'], root.isError], [code, false]);
      assert.ok(!('gen_ai.request.model' in root.attributes));
    }
  });

  test('a client that hangs up', async () => {
    handle = (exchange) => {
      exchange.events();
      exchange.chunk(chatChunk({ content: 'hello' }));
    };
    const parent = newParent();
    const cut = new AbortController();
    const traceparent = `00-${parent.traceId}-${parent.spanId}-01`;
    const response = await ask('/v1/chat/completions', chat('far', { stream: true }), { traceparent }, cut.signal);
    await response.body!.getReader().read();
    cut.abort();
    const { root, children } = await traceOf(parent.traceId);
    assert.deepEqual(names(children), ['hold', 'chat far', 'settle']);
    assert.equal(root.attributes['tokenhouse.ending'], 'client_left');
    const [attempt] = attemptsOf(children);
    assert.deepEqual([attempt!.attributes['tokenhouse.outcome'], attempt!.isError], ['cancelled', false]);
    assert.ok(!('error.type' in root.attributes));
  });

  test('an answer that breaks off', async () => {
    handle = (exchange) => {
      exchange.events();
      exchange.chunk(chatChunk({ content: 'hello' }));
      exchange.reset();
    };
    const { response, root, children } = await traced('/v1/chat/completions', chat('far', { stream: true }));
    assert.equal(response.status, 200);
    assert.deepEqual([root.isError, root.attributes['error.type']], [true, 'backend_http_error']);
    assert.deepEqual([root.attributes['tokenhouse.ending'], attemptsOf(children)[0]!.isError], ['failed', true]);
  });
});

describe('the trace of the caller', () => {
  test('that is not sampled is passed on as it came, with its state, and not recorded', async () => {
    const { traceId, spanId } = newParent();
    const headers = { traceparent: `00-${traceId}-${spanId}-00`, tracestate: 'rojo=1, congo=2' };
    await (await ask('/v1/chat/completions', chat('far'), headers)).text();
    const sent = upstream.exchanges.at(-1)!.headers;
    assert.deepEqual(
      [sent.get('traceparent'), sent.get('tracestate')],
      [`00-${traceId}-${spanId}-00`, 'rojo=1,congo=2'],
    );
    await traced('/v1/chat/completions', chat('near'));
    assert.ok(!collector.spans.some((span) => span.traceId === traceId));
  });

  test('that is recorded has its state passed on', async () => {
    await traced('/v1/embeddings', { model: 'vectors', input: 'Hi' }, { tracestate: 'rojo=1' });
    assert.equal(upstream.exchanges.at(-1)!.headers.get('tracestate'), 'rojo=1');
    await traced('/v1/chat/completions', chat('far'), { tracestate: 'rojo=1' });
    assert.equal(upstream.exchanges.at(-1)!.headers.get('tracestate'), 'rojo=1');
  });

  test('that is malformed counts for nothing: the request has a trace of its own', async () => {
    const before = collector.spans.length;
    const headers = { traceparent: '00-not-a-trace-01', tracestate: 'rojo=1' };
    const response = await ask('/v1/chat/completions', chat('far'), headers);
    await response.text();
    const id = response.headers.get('x-request-id');
    const mine = () =>
      collector.spans.slice(before).find(({ attributes }) => attributes['tokenhouse.request.id'] === id);
    await until(() => mine() !== undefined, 30_000);
    assert.deepEqual([mine()!.parentSpanId, mine()!.flags], ['', 0x101]);
    const sent = upstream.exchanges.at(-1)!.headers;
    assert.match(sent.get('traceparent')!, new RegExp(`^00-${mine()!.traceId}-`));
    assert.equal(sent.get('tracestate'), undefined);
  });
});

describe('a service without a collector', () => {
  let plain: InnerService;
  before(async () => {
    plain = await new InnerService({
      config: `models:
  - id: far
    context_length: 8192
    pricing: { input_cents_per_million: 5, output_cents_per_million: 20 }
    backends: [ { engine: openai, flavor: vllm, url: "${upstream.url}" } ]`,
    }).start();
  });
  after(() => plain.dispose());

  const { traceId, spanId } = newParent();
  const good = `00-${traceId}-${spanId}-01`;
  for (const [name, headers, traceparent, tracestate] of [
    ['passes a trace on as it came', { traceparent: good, tracestate: 'rojo=1' }, good, 'rojo=1'],
    ['leaves out a state that is malformed', { traceparent: good, tracestate: 'rojo' }, good, undefined],
    ['leaves out what is malformed', { traceparent: `${good}0`, tracestate: 'rojo=1' }, undefined, undefined],
    ['makes none itself', {}, undefined, undefined],
  ] as const)
    test(name, async () => {
      const answer = await plain.chat(chat('far'), { headers });
      assert.equal(answer.status, 200, await answer.text());
      const sent = upstream.exchanges.at(-1)!.headers;
      assert.deepEqual([sent.get('traceparent'), sent.get('tracestate')], [traceparent, tracestate]);
    });
});
