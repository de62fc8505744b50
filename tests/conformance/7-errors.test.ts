import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';

import { errorExamples } from '../../src/platform/error-examples.ts';
import type { ErrorExample } from '../../src/platform/error-examples.ts';
import { errorTable } from '../../src/platform/errors.ts';
import type { ErrorCode } from '../../src/platform/errors.ts';
import { askChat, plainBody } from '../inference/http/chat.ts';
import { assertEnvelope } from '../inference/http/envelope.ts';
import { sendUpload, uploadBody } from '../inference/http/file-requests.ts';
import { RawConnection, exchange } from '../inference/http/raw.ts';
import type { RawAnswer, RawRequest } from '../inference/http/raw.ts';
import { RawClient, chatBytes, newRequestId } from '../support/raw-client.ts';
import type { TestService } from '../support/service.ts';
import { InnerService, noFeatures, scriptedModel, until } from '../support/service.ts';
import { Upstream } from '../support/upstream.ts';

/** Specification part 7: every code, through the whole service, with its status, `param`, extra fields and headers. */

/** A backend for each way to fail, so that one that is left out for a while does not hide another. */
const faulty = ['overloaded', 'full', 'failing', 'silent'] as const;
const upstream = await Upstream.start(({ body, json }) => {
  const { model } = JSON.parse(body === '' ? '{}' : body) as { model?: string };
  if (model === 'overloaded') json(429, { error: { message: 'too many' } }, { 'retry-after': '7' });
  if (model === 'full') json(503, { error: { message: 'the queue is full' } }, { 'retry-after': '3' });
  if (model === 'rejecting') json(400, { error: { message: 'failed to load image' } });
  if (model === 'failing') json(500, { error: { message: 'secret of the backend' } });
});
const nobody = await Upstream.start(() => {});
const nobodyUrl = nobody.url;
await nobody.close();

const remote = (id: string, url: string, flavor = 'openai'): string => `
  - id: ${id}
    context_length: 8192
    pricing: { input_cents_per_million: 5, output_cents_per_million: 20 }
    backends: [ { engine: openai, flavor: ${flavor}, url: "${url}" } ]`;
const scripted = (id: string, contextLength: number, script: string, settings = ''): string => `
  - id: ${id}
    context_length: ${contextLength}
    pricing: { input_cents_per_million: ${id === 'dear' ? '1000000000' : '5'}, output_cents_per_million: 20 }
${settings.replace(/^(?=.)/gm, '    ')}
    backends: [ { engine: scripted, scripts: [ ${script} ] } ]`;
const hello = '{ say: [ { text: hello } ] }';

const service = new InnerService({
  limits: '  body_bytes_max: 100000\n  first_token_timeout_seconds: 5\n  headers_timeout_seconds: 5',
  config: `plans: [ { name: standard, included_requests: 1, window_hours: 8784 } ]
models:
${scripted('demo', 8192, hello)}${scripted('plain', 8192, hello, noFeatures)}${scripted('small', 64, hello)}
${scripted('private', 8192, hello).replace('engine: scripted,', 'engine: scripted, zdr: true,')}${scripted('medium', 128, hello)}${scripted('dear', 8192, hello)}
${scripted('seeing', 8192, hello, 'capabilities: { vision: true }')}
${scripted('always', 8192, hello, 'reasoning: { efforts: [low, high] }')}
${scripted('broken', 8192, '{ say: [], fault: { after_tokens: 0, type: error, code: internal_error } }')}
${scripted('down', 8192, '{ say: [], fault: { after_tokens: 0, type: error, code: no_healthy_backends } }')}
${faulty.map((id) => remote(id, upstream.url)).join('')}${remote('unreachable', nobodyUrl)}${remote('rejecting', upstream.url, 'llama-server')}`,
});
/** One request of an account, and one of all, at a time. */
const narrow = new InnerService({
  limits: '  concurrency_per_account_max: 1',
  config: scriptedModel('- say: [ { text: [ "word " ] } ]\n  repeat: 10000\n  pace_ms: 20'),
});
const full = new InnerService({
  limits: '  requests_running_max: 1',
  config: scriptedModel('- say: [ { text: [ "word " ] } ]\n  repeat: 10000\n  pace_ms: 20'),
});
const services = [service, narrow, full];
before(() => Promise.all(services.map((each) => each.start())));
after(async () => {
  await Promise.all(services.map((each) => each.dispose()));
  await upstream.close();
});

interface Expectation {
  readonly param?: string;
  readonly extra?: readonly string[];
  /** Headers of the code, lower case, each with its value or what it looks like. */
  readonly headers?: Readonly<Record<string, string | RegExp>>;
}
type Ask = () => Promise<RawAnswer>;

const says = (content: unknown) => [{ role: 'user', content }];
const tool = { type: 'function', function: { name: 'look', parameters: { type: 'object', properties: {} } } };
const call = { id: 'call_1', type: 'function', function: { name: 'look', arguments: '{}' } };
const chat =
  (fields: Readonly<Record<string, unknown>>, headers: readonly (readonly [string, string])[] = []): Ask =>
  () =>
    askChat(service, { ...plainBody, ...fields }, headers);
const send =
  (request: RawRequest): Ask =>
  () =>
    exchange(service.url, request);
const bytes =
  (text: string): Ask =>
  async () => {
    const connection = await RawConnection.open(service.url);
    connection.write(text);
    const answer = await connection.answer();
    connection.close();
    return answer;
  };
/** While another request runs at the same service. */
const beside =
  (busy: TestService): Ask =>
  async () => {
    const client = await RawClient.connect(busy.url);
    client.send(chatBytes(busy.key, newRequestId(), { ...plainBody, stream: true }));
    await until(() => client.text.includes('word'), 60_000);
    const answer = await askChat(busy);
    client.reset();
    return answer;
  };
/** Requests of a new key until one is refused: the second, unless a minute has just begun. */
const untilRefused =
  (...limits: readonly string[]): Ask =>
  async () => {
    await service.command('accounts', 'plan', 'standard');
    const key = (await service.command('keys', 'create', ...limits)).stdout.trim();
    const request: RawRequest = {
      method: 'POST',
      path: '/v1/chat/completions',
      headers: [['Authorization', `Bearer ${key}`]],
      body: JSON.stringify(plainBody),
    };
    const first = await exchange(service.url, request);
    assert.equal(first.status, 200, first.body);
    for (let tries = 0; ; tries++) {
      const answer = await exchange(service.url, request);
      if (answer.status !== 200 || tries > 20) return answer;
    }
  };
const model = { extra: ['model'] };
const full1 = { 'retry-after': '1', 'ratelimit-limit': '1', 'ratelimit-remaining': '0', 'ratelimit-reset': '1' };

/** Code, condition as the specification words it, how to meet it, and what comes back. */
const rows: readonly (readonly [ErrorCode, string, Ask, Expectation?])[] = [
  // §7.2
  ['schema_validation_failed', 'the body does not match', chat({ temperature: 'hot' }), { param: 'temperature' }],
  ['schema_validation_failed', 'a nested field', chat({ messages: [{ role: 5 }] }), { param: 'messages[0].role' }],
  [
    'tool_schema_invalid',
    'parameters are no schema of an object',
    chat({ tools: [{ type: 'function', function: { name: 'look', parameters: { type: 'string' } } }] }),
    { param: 'tools[0].function.parameters' },
  ],
  [
    'tool_choice_unknown_tool',
    'it names no declared tool',
    chat({ tools: [tool], tool_choice: { type: 'function', function: { name: 'hear' } } }),
    { param: 'tool_choice.function.name' },
  ],
  [
    'orphan_tool_message',
    'an id that nobody issued',
    chat({ messages: [...says('hi'), { role: 'tool', tool_call_id: 'call_1', content: 'x' }] }),
    { param: 'messages[1].tool_call_id' },
  ],
  [
    'missing_tool_call_id',
    'a tool message without it',
    chat({
      messages: [
        { role: 'assistant', tool_calls: [call] },
        { role: 'tool', content: 'x' },
      ],
    }),
    { param: 'messages[1].tool_call_id' },
  ],
  [
    'unsupported_parameter',
    'the model does not support it',
    chat({ model: 'plain', logit_bias: { '5': 1 } }),
    { param: 'logit_bias' },
  ],
  ['unsupported_feature', 'n > 1', chat({ model: 'plain', n: 2 }), { param: 'n' }],
  ['unsupported_feature', 'tools', chat({ model: 'plain', tools: [tool], stream: true }), { param: 'tools' }],
  [
    'unsupported_feature',
    'a forced tool choice on a model that always reasons',
    chat({ model: 'always', tools: [tool], tool_choice: 'required' }),
    { param: 'tool_choice' },
  ],
  [
    'unsupported_response_format',
    'grammar without the flag',
    chat({ model: 'plain', response_format: { type: 'grammar', grammar: 'root ::= "a"' } }),
    { param: 'response_format.type' },
  ],
  ['unsupported_regex', 'the model does not support it', chat({ model: 'plain', regex: 'a+' }), { param: 'regex' }],
  [
    'unsupported_tool_type',
    'other than function',
    chat({ tools: [{ type: 'web_search' }] }),
    { param: 'tools[0].type' },
  ],
  [
    'json_schema_refs_unsupported',
    'a reference that leads nowhere',
    chat({ response_format: { type: 'json_schema', json_schema: { name: 'a', schema: { $ref: '#/$defs/none' } } } }),
    { param: 'response_format.json_schema.schema' },
  ],
  [
    'json_schema_refs_unsupported',
    'a reference to another document, in the schema of a tool',
    chat({
      tools: [
        {
          type: 'function',
          function: {
            name: 'look',
            parameters: { type: 'object', properties: { a: { $ref: 'https://example.org/schema.json' } } },
          },
        },
      ],
    }),
    { param: 'tools[0].function.parameters' },
  ],
  ['duplicate_tool_name', 'two tools share a name', chat({ tools: [tool, tool] }), { param: 'tools[1].function.name' }],
  [
    'context_length_exceeded',
    'the request exceeds the window',
    chat({ model: 'small', messages: says('word '.repeat(200)) }),
    { param: 'messages', extra: ['model', 'context_length_limit', 'prompt_tokens', 'max_tokens', 'suggested_models'] },
  ],
  ['model_not_found', 'it matches nothing that the key can access', chat({ model: 'nothing' }), { param: 'model' }],
  ['invalid_zdr_header', 'a value other than required', chat({}, [['Service-ZDR', 'yes']]), { param: 'Service-ZDR' }],
  ['model_zdr_not_supported', 'the model has none', chat({}, [['Service-ZDR', 'required']]), { param: 'model' }],
  ['invalid_json_request', 'not valid JSON', () => askChat(service, '{')],
  ['invalid_json_request', 'an empty body', () => askChat(service, '')],
  [
    'invalid_json_request',
    'a required top-level field is missing',
    () => askChat(service, { model: 'demo' }),
    { param: 'messages' },
  ],
  ['request_body_too_large', 'the body exceeds the cap', () => askChat(service, 'x'.repeat(100_000))],
  [
    'model_request_rejected',
    'the image URL could not be fetched',
    chat({
      model: 'seeing',
      messages: says([{ type: 'image_url', image_url: { url: 'https://nobody.invalid/x.png' } }]),
    }),
    { param: 'messages[0].content[0].image_url.url' },
  ],
  [
    'unsupported_value',
    'an image URL that points at a private network',
    chat({ model: 'seeing', messages: says([{ type: 'image_url', image_url: { url: 'https://10.0.0.1/x.png' } }]) }),
    { param: 'messages[0].content[0].image_url.url' },
  ],
  ['model_request_rejected', 'a backend could not fetch an image', chat({ model: 'rejecting' })],
  ['unsupported_value', 'an unknown effort', chat({ reasoning_effort: 'minimal' }), { param: 'reasoning_effort' }],
  // §7.3
  [
    'missing_api_key',
    'no credentials',
    send({ method: 'POST', path: '/v1/chat/completions', body: '{}' }),
    { headers: { 'x-should-retry': 'false' } },
  ],
  [
    'invalid_api_key',
    'it does not match a live key',
    send({ method: 'POST', path: '/v1/chat/completions', headers: [['x-api-key', 'wrong']], body: '{}' }),
    { headers: { 'x-should-retry': 'false' } },
  ],
  // §7.4
  [
    'http_403',
    'without access to the resource',
    () => exchange(service.accountUrl, { path: '/metrics', headers: [['Host', 'elsewhere.example']] }),
  ],
  [
    'files_require_user_key',
    'a key of no user',
    async () => {
      const key = (await service.command('keys', 'create', '--name', 'legacy')).stdout.trim();
      return await sendUpload(service, uploadBody('x', 'x.txt'), [['Authorization', `Bearer ${key}`]]);
    },
  ],
  // §7.5
  ['concurrency_limit_exceeded', 'too many in-flight requests of the account', beside(narrow), { headers: full1 }],
  [
    'request_quota_exceeded',
    'the included requests of the window are used',
    untilRefused('--plan'),
    {
      extra: ['request_limit', 'window_end', 'plan_tier'],
      headers: { 'ratelimit-limit': '1', 'ratelimit-remaining': '0' },
    },
  ],
  [
    'rate_limit_exceeded',
    'a general rate limit',
    untilRefused('--requests-per-minute', '1'),
    {
      extra: ['limit_of', 'limit_unit', 'limit_window_seconds'],
      headers: { 'ratelimit-limit': '1', 'ratelimit-remaining': '0' },
    },
  ],
  ['backend_at_capacity', 'all places of the service are taken', beside(full), { headers: full1 }],
  [
    'backend_at_capacity',
    'a backend answers 503 with a queue-full signal',
    chat({ model: 'full' }),
    { ...model, headers: { 'retry-after': '3', 'ratelimit-remaining': '0', 'ratelimit-reset': '3' } },
  ],
  [
    'backend_overloaded',
    'the backend itself returned 429',
    chat({ model: 'overloaded' }),
    { ...model, headers: { 'retry-after': '7', 'ratelimit-remaining': '0', 'ratelimit-reset': '7' } },
  ],
  // §7.6
  [
    'insufficient_credits',
    'the balance is insufficient',
    chat({ model: 'dear' }),
    { extra: ['credits_available_cents', 'credits_required_cents_estimate', 'topup_url'] },
  ],
  // §7.7
  ['no_healthy_backends', 'all backends are unavailable', chat({ model: 'down' }), model],
  ['backend_timeout', 'it did not respond in time', chat({ model: 'silent' }), model],
  ['backend_connect_error', 'the connection could not be opened', chat({ model: 'unreachable' }), model],
  ['backend_http_error', 'an HTTP error that means nothing', chat({ model: 'failing' }), model],
  // §7.8
  ['internal_error', 'a failure of the service', chat({ model: 'broken' }), model],
  // Contracts decision 19.
  ['http_404', 'an unknown route', send({ path: '/v2/models' })],
  [
    'http_405',
    'another method',
    send({ method: 'DELETE', path: '/v1/chat/completions' }),
    { headers: { allow: 'POST' } },
  ],
  ['http_408', 'headers that do not end', bytes('GET /healthz HTTP/1.1\r\nHost: a\r\n')],
  [
    'http_409',
    'an idempotency key whose answer was not kept',
    async () => {
      const ask = chat({ model: 'private' }, [
        ['Service-ZDR', 'required'],
        ['Idempotency-Key', 'once'],
      ]);
      await ask();
      return await ask();
    },
    { param: 'Idempotency-Key', extra: ['first_request_id'], headers: { 'x-should-retry': 'false' } },
  ],
  [
    'http_415',
    'a multipart body',
    send({
      method: 'POST',
      path: '/v1/chat/completions',
      headers: [['Content-Type', 'multipart/form-data; boundary=x']],
      body: '{}',
    }),
  ],
  [
    'http_417',
    'an expectation that nobody meets',
    bytes('GET /healthz HTTP/1.1\r\nHost: a\r\nExpect: miracles\r\n\r\n'),
  ],
  [
    'http_431',
    'headers that are too large',
    bytes(`GET /healthz HTTP/1.1\r\nHost: a\r\nX: ${'a'.repeat(20_000)}\r\n\r\n`),
  ],
  ['http_505', 'another version of HTTP', bytes('GET /healthz HTTP/2.0\r\nHost: a\r\n\r\n')],
  ['http_400', 'no HTTP at all', bytes('NONSENSE\r\n\r\n')],
];

describe('§7 every code, its condition, status, param, extra fields and headers', () => {
  for (const [code, condition, ask, expected = {}] of rows) {
    test(`${code}: ${condition}`, async () => {
      const answer = await ask();
      const { param, extra, headers = {} } = expected;
      assertEnvelope(answer, code, {
        ...(param === undefined ? {} : { param }),
        ...(extra === undefined ? {} : { extra }),
      });
      assert.doesNotMatch(answer.body, /secret of the backend/);
      for (const [name, value] of Object.entries(headers)) assert.equal(answer.headers[name], value, name);
      // What its page tells of it.
      const example: ErrorExample = errorExamples[code];
      for (const name of extra ?? []) assert.ok(name in (example.extra ?? {}) || code === 'internal_error', name);
      const reported = Object.keys(example.headers ?? {}).map((name) => name.toLowerCase());
      for (const name of ['retry-after', 'ratelimit-limit', 'ratelimit-remaining', 'ratelimit-reset', 'allow'])
        if (answer.headers[name] !== undefined) assert.ok(reported.includes(name), `the page does not tell of ${name}`);
    });
  }

  test('model_not_allowed: the key is not entitled', async () => {
    const made = await service.command('keys', 'create', '--model', 'small', '--json');
    const { key } = JSON.parse(made.stdout) as { key: string };
    const answer = await exchange(service.url, {
      method: 'POST',
      path: '/v1/chat/completions',
      headers: [['Authorization', `Bearer ${key}`]],
      body: JSON.stringify(plainBody),
    });
    assertEnvelope(answer, 'model_not_allowed', { param: 'model' });
  });
});

test('§7.2 context_length_exceeded: the fields have the types of the specification, and the message says what to do', async () => {
  const error = (await chat({ model: 'small', messages: says('word '.repeat(200)) })()).json()['error'] as Record<
    string,
    unknown
  >;
  assert.deepEqual([error['model'], error['context_length_limit']], ['small', 64]);
  const suggested = error['suggested_models'] as { id: string; context_length: number }[];
  assert.deepEqual(suggested[0], { id: 'medium', context_length: 128 });
  assert.match(String(error['message']), /max_tokens.*prompt.*model with a larger context/);
});

test('§7.6 insufficient_credits: integers, and a URL', async () => {
  const error = (await chat({ model: 'dear' })()).json()['error'] as Record<string, unknown>;
  const { credits_available_cents: available, credits_required_cents_estimate: required, topup_url: url } = error;
  assert.ok(Number.isInteger(available) && Number.isInteger(required), JSON.stringify(error));
  assert.ok(Number(required) > Number(available));
  assert.equal(url, `${service.accountUrl}/topup`);
});

test('every code is met above, or in a test of its own', () => {
  // A dedicated model: tests/conformance/8-dedicated.test.ts.
  const met = new Set<string>([...rows.map(([code]) => code), 'model_not_allowed', 'invalid_request_tag']);
  for (const code of Object.keys(errorTable)) assert.ok(met.has(code), `${code} needs a row of this test`);
});

test('every code of part 7 is in the table, in its bucket and with its status', () => {
  const buckets: Readonly<Record<string, readonly (readonly [ErrorCode, number])[]>> = {
    invalid_request_error: [
      ['schema_validation_failed', 422],
      ['tool_schema_invalid', 400],
      ['tool_choice_unknown_tool', 400],
      ['orphan_tool_message', 400],
      ['missing_tool_call_id', 400],
      ['unsupported_parameter', 400],
      ['unsupported_feature', 400],
      ['unsupported_response_format', 400],
      ['unsupported_regex', 400],
      ['unsupported_tool_type', 400],
      ['json_schema_refs_unsupported', 400],
      ['duplicate_tool_name', 400],
      ['context_length_exceeded', 400],
      ['model_not_found', 404],
      ['model_not_allowed', 403],
      ['invalid_zdr_header', 400],
      ['invalid_request_tag', 400],
      ['model_zdr_not_supported', 400],
      ['invalid_json_request', 400],
      ['request_body_too_large', 413],
      ['model_request_rejected', 400],
      ['unsupported_value', 400],
    ],
    authentication_error: [
      ['missing_api_key', 401],
      ['invalid_api_key', 401],
    ],
    permission_error: [
      ['http_403', 403],
      ['files_require_user_key', 403],
    ],
    rate_limit_error: [
      ['concurrency_limit_exceeded', 429],
      ['request_quota_exceeded', 429],
      ['rate_limit_exceeded', 429],
      ['backend_at_capacity', 429],
      ['backend_overloaded', 429],
    ],
    insufficient_credits: [['insufficient_credits', 402]],
    routing_error: [['no_healthy_backends', 503]],
    server_error: [
      ['backend_timeout', 504],
      ['backend_connect_error', 502],
      ['backend_http_error', 502],
    ],
    internal_error: [['internal_error', 500]],
  };
  for (const [bucket, codes] of Object.entries(buckets))
    for (const [code, status] of codes)
      assert.deepEqual([errorTable[code].type, errorTable[code].status], [bucket, status], code);
  const listed = Object.values(buckets)
    .flat()
    .map(([code]) => code as string);
  const others = Object.keys(errorTable).filter((code) => !listed.includes(code));
  assert.ok(
    others.every((code) => /^http_[45]\d\d$/.test(code)),
    'contracts decision 19',
  );
});
