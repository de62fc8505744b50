import { after, before, test } from 'node:test';

import type { ErrorCode } from '../../src/errors.ts';
import { TestService, scriptedModel } from '../support/service.ts';
import { assertEnvelope } from './envelope.ts';
import { exchange } from './raw.ts';
import type { RawAnswer } from './raw.ts';

/**
 * Contracts decision 10: when several things are wrong, the first of them answers. The table goes through the order:
 * each row repairs what the row before was refused for, and leaves everything that comes after it wrong.
 */
const service = new TestService({
  limits: '  body_bytes_max: 3000\n  concurrency_per_account_max: 1',
  firstCreditCents: '0',
  config: `${scriptedModel(`
- when: { last_text: "down" }
  say: []
  fault: { after_tokens: 0, type: error, code: no_healthy_backends }
- say: [ { text: "hello" } ]
`)}
  - id: tiny
    context_length: 64
    pricing: { input_cents_per_million: 5, output_cents_per_million: 20 }
    backends: [ { engine: scripted, scripts: [ { say: [ { text: "hello" } ] } ] } ]`,
});
before(() => service.start());
after(() => service.dispose());

type Header = readonly [string, string];
interface Row {
  readonly code: ErrorCode;
  readonly param?: string;
  readonly extra?: readonly string[];
  readonly method?: string;
  readonly path?: string;
  readonly headers?: readonly Header[];
  readonly body?: string;
}

const path = '/v1/chat/completions';
const multipart: Header = ['Content-Type', 'multipart/form-data; boundary=x'];
const wrongKey: Header = ['Authorization', 'Bearer nonsense'];
const wrongZdr: Header = ['Service-ZDR', 'please'];
const key = (): Header => ['Authorization', `Bearer ${service.key}`];

/** Everything that can be wrong in a body, each part of which a row may repair. */
const body = (repaired: Record<string, unknown> = {}): string =>
  JSON.stringify({
    model: 'nothing',
    messages: [
      { role: 'user', content: 'down' },
      { role: 'tool', tool_call_id: 'orphan', content: 'x' },
    ],
    temperature: 9,
    n: 2,
    reasoning_effort: 'minimal',
    ...repaired,
  });
const down = [{ role: 'user', content: 'down' }];
const long = [{ role: 'user', content: 'word '.repeat(200) }];

const rows: readonly (readonly [string, () => Row])[] = [
  [
    'the route',
    () => ({
      code: 'http_404',
      method: 'GET',
      path: '/v1/nothing',
      headers: [multipart, wrongKey, wrongZdr],
      body: '{',
    }),
  ],
  ['the method', () => ({ code: 'http_405', method: 'PUT', headers: [multipart, wrongKey, wrongZdr], body: '{' })],
  ['the content type', () => ({ code: 'http_415', headers: [multipart, wrongKey, wrongZdr], body: '{' })],
  [
    'the content encoding',
    () => ({ code: 'http_415', headers: [['Content-Encoding', 'gzip'], wrongKey, wrongZdr], body: '{' }),
  ],
  ['the missing key', () => ({ code: 'missing_api_key', headers: [wrongZdr], body: 'x'.repeat(5000) })],
  ['the key', () => ({ code: 'invalid_api_key', headers: [wrongKey, wrongZdr], body: 'x'.repeat(5000) })],
  [
    'the service headers',
    () => ({ code: 'invalid_zdr_header', param: 'Service-ZDR', headers: [key(), wrongZdr], body: 'x'.repeat(5000) }),
  ],
  ['the size of the body', () => ({ code: 'request_body_too_large', headers: [key()], body: 'x'.repeat(5000) })],
  ['the JSON', () => ({ code: 'invalid_json_request', headers: [key()], body: body().slice(0, -1) })],
  [
    'a required field',
    () => ({ code: 'invalid_json_request', param: 'messages', headers: [key()], body: body({ messages: undefined }) }),
  ],
  [
    'the shape of a field',
    () => ({ code: 'schema_validation_failed', param: 'temperature', headers: [key()], body: body() }),
  ],
  ['the model', () => ({ code: 'model_not_found', param: 'model', headers: [key()], body: body({ temperature: 1 }) })],
  [
    'the model, and what it offers of zero data retention',
    () => ({
      code: 'model_zdr_not_supported',
      param: 'model',
      headers: [key(), ['Service-ZDR', 'required']],
      body: body({ temperature: 1, model: 'demo' }),
    }),
  ],
  [
    'the tools',
    () => ({
      code: 'orphan_tool_message',
      param: 'messages[1].tool_call_id',
      headers: [key()],
      body: body({ temperature: 1, model: 'demo' }),
    }),
  ],
  [
    'the features',
    () => ({
      code: 'unsupported_feature',
      param: 'n',
      headers: [key()],
      body: body({ temperature: 1, model: 'tiny', messages: long }),
    }),
  ],
  [
    'the effort',
    () => ({
      code: 'unsupported_value',
      param: 'reasoning_effort',
      headers: [key()],
      body: body({ temperature: 1, model: 'tiny', messages: long, n: 1 }),
    }),
  ],
  [
    'the length',
    () => ({
      code: 'context_length_exceeded',
      param: 'messages',
      extra: ['model', 'context_length_limit', 'suggested_models'],
      headers: [key()],
      body: body({ temperature: 1, model: 'tiny', messages: long, n: 1, reasoning_effort: 'none' }),
    }),
  ],
  [
    'the credit',
    () => ({
      code: 'insufficient_credits',
      extra: ['credits_available_cents', 'credits_required_cents_estimate', 'topup_url'],
      headers: [key()],
      body: body({ temperature: 1, model: 'demo', messages: down, n: 1, reasoning_effort: 'none' }),
    }),
  ],
];

for (const [what, rowOf] of rows) {
  test(`${what} answers`, async () => {
    const row = rowOf();
    assertEnvelope(await send(row), row.code, row);
  });
}

const send = ({ method = 'POST', path: to = path, headers = [], body: text = '' }: Row): Promise<RawAnswer> =>
  exchange(service.url, { method, path: to, headers, body: text });
