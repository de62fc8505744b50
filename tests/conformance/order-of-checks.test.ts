import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';

import type { ErrorCode } from '../../src/platform/errors.ts';
import { exchange } from '../inference/http/raw.ts';
import { RawClient, chatBytes, newRequestId } from '../support/raw-client.ts';
import { InnerService, until } from '../support/service.ts';

/**
 * Contracts decision 10: when two things are wrong with a request, the one that is checked first is reported. Every fault is
 * combined with every later one; alone, each gives its own code.
 */
const script = (isDown: boolean): string =>
  isDown
    ? '{ say: [], fault: { after_tokens: 0, type: error, code: no_healthy_backends } }'
    : '{ say: [ { text: [ "word " ] } ], repeat: 10000, pace_ms: 20 }';
const model = (isDear: boolean, isDown: boolean): string => `
  - id: demo${isDear ? '-dear' : ''}${isDown ? '-down' : ''}
    context_length: 2048
    pricing: { input_cents_per_million: ${isDear ? '200000000' : '1'}, output_cents_per_million: 1 }
    capabilities: { vision: true, chat_completions: { n: false } }
    backends: [ { engine: scripted, scripts: [ ${script(isDown)} ] } ]`;
const service = new InnerService({
  limits: '  body_bytes_max: 50000\n  concurrency_per_account_max: 1',
  config: `models:${model(false, false)}${model(true, false)}${model(false, true)}${model(true, true)}
  - id: another
    context_length: 2048
    pricing: { input_cents_per_million: 1, output_cents_per_million: 1 }
    backends: [ { engine: scripted, scripts: [ { say: [] } ] } ]`,
});
let limitedKey = '';
/** Its budget does not pay for one token of the dear model. */
let poorKey = '';
const damaged = `data:application/pdf;base64,${Buffer.from('%PDF-1.7\nnothing of a PDF follows here').toString('base64')}`;
/** Takes the account's only place while a test wants it taken. */
let busy: RawClient;
before(async () => {
  await service.start();
  const made = await service.command('keys', 'create', '--model', 'another', '--json');
  limitedKey = (JSON.parse(made.stdout) as { key: string }).key;
  const poor = await service.command('keys', 'create', '--budget', '1.00', '--budget-per', 'total', '--json');
  poorKey = (JSON.parse(poor.stdout) as { key: string }).key;
});
after(() => service.dispose());

interface Draft {
  method: string;
  path: string;
  readonly headers: Map<string, string>;
  readonly body: Record<string, unknown>;
  messages: unknown[];
  isDear: boolean;
  isDown: boolean;
  isCut: boolean;
  isBusy: boolean;
}

interface Fault {
  readonly name: string;
  readonly code: ErrorCode;
  readonly param?: string;
  /** Spoils a request that may have later faults already. */
  spoil(draft: Draft): unknown;
}

const toolWithReference = {
  type: 'function',
  function: { name: 'look', parameters: { type: 'object', properties: { a: { $ref: '#/$defs/none' } } } },
};

const picture = (url: string) => ({ role: 'user', content: [{ type: 'image_url', image_url: { url } }] });

/** In the order in which they are reported. */
const faults: readonly Fault[] = [
  { name: 'route', code: 'http_404', spoil: (draft) => (draft.path = '/v1/nothing') },
  { name: 'method', code: 'http_405', spoil: (draft) => (draft.method = 'PUT') },
  {
    name: 'content type',
    code: 'http_415',
    spoil: ({ headers }) => headers.set('Content-Type', 'multipart/form-data; boundary=x'),
  },
  {
    name: 'content encoding',
    code: 'http_415',
    spoil: ({ headers }) => headers.set('Content-Encoding', 'gzip'),
  },
  { name: 'missing key', code: 'missing_api_key', spoil: ({ headers }) => headers.delete('Authorization') },
  { name: 'key', code: 'invalid_api_key', spoil: ({ headers }) => headers.set('Authorization', 'Bearer nonsense') },
  {
    name: 'service headers',
    code: 'invalid_zdr_header',
    param: 'Service-ZDR',
    spoil: ({ headers }) => headers.set('Service-ZDR', 'please'),
  },
  { name: 'body size', code: 'request_body_too_large', spoil: ({ body }) => (body['user'] = 'x'.repeat(60_000)) },
  { name: 'JSON', code: 'invalid_json_request', spoil: (draft) => (draft.isCut = true) },
  {
    name: 'required fields',
    code: 'invalid_json_request',
    param: 'messages',
    spoil: ({ body }) => (body['messages'] = undefined),
  },
  {
    name: 'field shapes',
    code: 'schema_validation_failed',
    param: 'temperature',
    spoil: ({ body }) => (body['temperature'] = 9),
  },
  { name: 'model', code: 'model_not_found', param: 'model', spoil: ({ body }) => (body['model'] = 'nothing') },
  {
    name: 'entitlement',
    code: 'model_not_allowed',
    param: 'model',
    spoil: ({ headers }) => headers.set('Authorization', `Bearer ${limitedKey}`),
  },
  {
    name: 'zero data retention of the model',
    code: 'model_zdr_not_supported',
    param: 'model',
    spoil: ({ headers }) => headers.set('Service-ZDR', 'required'),
  },
  {
    name: 'tools',
    code: 'missing_tool_call_id',
    param: 'messages[1].tool_call_id',
    spoil: ({ messages }) => (messages[1] = { role: 'tool', content: 'x' }),
  },
  {
    name: 'schema references',
    code: 'json_schema_refs_unsupported',
    param: 'tools[0].function.parameters',
    spoil: ({ body }) => (body['tools'] = [toolWithReference]),
  },
  {
    name: 'addresses of images',
    code: 'unsupported_value',
    param: 'messages[0].content[0].image_url.url',
    spoil: ({ messages }) => (messages[0] = picture('https://127.0.0.1/x.png')),
  },
  { name: 'features of the card', code: 'unsupported_feature', param: 'n', spoil: ({ body }) => (body['n'] = 2) },
  {
    name: 'effort',
    code: 'unsupported_value',
    param: 'reasoning_effort',
    spoil: ({ body }) => (body['reasoning_effort'] = 'minimal'),
  },
  { name: 'limits', code: 'concurrency_limit_exceeded', spoil: (draft) => (draft.isBusy = true) },
  {
    name: 'credit at all',
    code: 'insufficient_credits',
    spoil: (draft) => {
      draft.headers.set('Authorization', `Bearer ${poorKey}`);
      draft.isDear = true;
      // Work, which needs credit first.
      draft.body['response_format'] = { type: 'json_object' };
    },
  },
  {
    name: 'a form that cannot be compiled',
    code: 'unsupported_value',
    param: 'response_format.json_schema.schema',
    spoil: ({ body }) =>
      (body['response_format'] = {
        type: 'json_schema',
        json_schema: { name: 'x', schema: { type: 'string', pattern: '(' } },
      }),
  },
  {
    name: 'files',
    code: 'unsupported_value',
    param: 'messages[0].content[0].file.file_data',
    spoil: ({ messages }) =>
      (messages[0] = { role: 'user', content: [{ type: 'file', file: { file_data: damaged } }] }),
  },
  {
    name: 'lengths',
    code: 'context_length_exceeded',
    param: 'messages',
    spoil: ({ messages }) => (messages[0] = { role: 'user', content: 'word '.repeat(4000) }),
  },
  {
    name: 'fetching of images',
    code: 'model_request_rejected',
    param: 'messages[0].content[0].image_url.url',
    // No name below .invalid is anybody's (RFC 6761).
    spoil: ({ messages }) => (messages[0] = picture('https://nobody.invalid/x.png')),
  },
  { name: 'credit', code: 'insufficient_credits', spoil: (draft) => (draft.isDear = true) },
  { name: 'backend', code: 'no_healthy_backends', spoil: (draft) => (draft.isDown = true) },
];

/** Later faults first: where both would stand in the same place, the earlier one does. */
function requestWith(...spoilt: readonly Fault[]): Draft {
  const draft: Draft = {
    method: 'POST',
    path: '/v1/chat/completions',
    headers: new Map([
      ['Authorization', `Bearer ${service.key}`],
      ['Content-Type', 'application/json'],
    ]),
    body: {},
    messages: [{ role: 'user', content: 'hi' }],
    isDear: false,
    isDown: false,
    isCut: false,
    isBusy: false,
  };
  for (const fault of spoilt.toReversed()) fault.spoil(draft);
  return draft;
}

async function assertReported(fault: Fault, ...later: readonly Fault[]): Promise<void> {
  const draft = requestWith(fault, ...later);
  const { isDear, isDown, isCut, isBusy, messages, headers, method, path } = draft;
  const id = `demo${isDear ? '-dear' : ''}${isDown ? '-down' : ''}`;
  const text = JSON.stringify({ model: id, messages, max_tokens: 5, ...draft.body });
  if (isBusy) await takeThePlace();
  const answer = await exchange(service.url, {
    method,
    path,
    headers: [...headers],
    body: isCut ? text.slice(0, -1) : text,
  });
  const error = answer.json()['error'] as { code: string; param?: string } | undefined;
  const both = `${fault.name}${later.map(({ name }) => ` before ${name}`).join('')}`;
  assert.deepEqual([error?.code, error?.param], [fault.code, fault.param], `${both}: ${answer.body.slice(0, 500)}`);
}

let isPlaceTaken = false;
async function takeThePlace(): Promise<void> {
  if (isPlaceTaken) return;
  busy = await RawClient.connect(service.url);
  const body = { model: 'demo', stream: true, messages: [{ role: 'user', content: 'hi' }] };
  busy.send(chatBytes(service.key, newRequestId(), body));
  await until(() => busy.text.includes('word'), 60_000);
  isPlaceTaken = true;
}

async function giveThePlaceBack(): Promise<void> {
  if (!isPlaceTaken) return;
  busy.reset();
  isPlaceTaken = false;
  // The service hears of it in its own time: until then the place is taken.
  const down = faults.find(({ name }) => name === 'backend');
  assert.ok(down !== undefined);
  await until(
    () =>
      assertReported(down).then(
        () => true,
        () => false,
      ),
    60_000,
  );
}

for (const [index, fault] of faults.entries()) {
  const later = faults.slice(index + 1);
  test(`decision 10: ${fault.name}, alone and before ${later[0]?.name ?? 'nothing'} and all that follows`, async () => {
    await assertReported(fault);
    for (const other of later.filter(({ name }) => name !== 'limits')) {
      if (fault.name !== 'limits') await giveThePlaceBack();
      await assertReported(fault, other);
    }
    for (const other of later.filter(({ name }) => name === 'limits')) await assertReported(fault, other);
    await assertReported(fault, ...later.filter(({ name }) => name !== 'limits'));
    await giveThePlaceBack();
  });
}
