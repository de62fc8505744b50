import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';

import type { ErrorCode } from '../../../src/platform/errors.ts';
import { describedEndpoints } from '../../../src/inference/http/described.ts';
import { uploadBody, uploadRequest } from '../http/file-requests.ts';
import { RawConnection, exchange, requestBytes } from '../http/raw.ts';
import type { RawAnswer, RawRequest } from '../http/raw.ts';
import { InnerService } from '../../support/service.ts';
import { DocumentJudge } from './judge.ts';
import type { Node } from './judge.ts';

/** Whatever a running service answers is in its description: the status, the code of the error, every field and every header. */
const options = { timeout: 300_000 };
const faults = [
  'internal_error',
  'no_healthy_backends',
  'backend_timeout',
  'backend_connect_error',
  'backend_http_error',
  'backend_overloaded',
  'backend_at_capacity',
] as const satisfies readonly ErrorCode[];
/** What each family's models can do, by the ending of their ids. */
const kinds = {
  '': '{ vision: true }',
  '-embeds': '{ embeddings: { supported: true } }',
  '-ranks': '{ rerank: { supported: true } }',
} as const;
const modelsOf = (id: string, contextLength: number, inputPrice: number): string =>
  Object.entries(kinds)
    .map(([kind, capabilities]) => model(id + kind, capabilities, contextLength, inputPrice))
    .join('');
const model = (id: string, capabilities: string, contextLength: number, inputPrice: number): string => `
  - id: ${id}
    context_length: ${contextLength}
    pricing: { input_cents_per_million: ${inputPrice}, output_cents_per_million: 20 }
    capabilities: ${capabilities}
    backends:
      - engine: scripted
        scripts:
${faults
  .map(
    (code) => `          - when: { last_text: ${code} }
            say: []
            fault: { after_tokens: 0, type: error, code: ${code} }\n`,
  )
  .join('')}          - when: { last_text: slowly }
            say: [ { text: [ "word " ] } ]
            repeat: 10000
            pace_ms: 20
          - say: [ { text: hello } ]`;
const service = new InnerService({
  limits: '  body_bytes_max: 100000',
  config: `models:${modelsOf('demo', 8192, 5)}${modelsOf('small', 64, 5)}${modelsOf('dear', 8192, 1_000_000_000)}`,
});
const narrow = new InnerService({
  limits: '  concurrency_per_account_max: 1',
  config: `models:${modelsOf('demo', 8192, 5)}`,
});
let judge: DocumentJudge;
/** Keys that may not do everything: see their flags. */
let elsewhere: string;
let onlySmall: string;
let ofNobody: string;
before(async () => {
  await Promise.all([service.start(), narrow.start()]);
  judge = new DocumentJudge((await exchange(service.url, { path: '/openapi.json' })).json());
  const create = async (...flags: readonly string[]): Promise<string> => {
    const { stdout } = await service.command('keys', 'create', '--json', ...flags);
    return (JSON.parse(stdout) as { key: string }).key;
  };
  elsewhere = await create('--ip', '192.0.2.1');
  onlySmall = await create('--model', 'small');
  ofNobody = await create('--name', 'legacy');
}, options);
after(() => Promise.all([service.dispose(), narrow.dispose()]));

/** Of HTTP itself; OpenAPI wants the type of a body told with it, and the others not at all. */
const framing: ReadonlySet<string> = new Set([
  'connection',
  'content-length',
  'content-type',
  'date',
  'keep-alive',
  'transfer-encoding',
]);

const responseOf = (path: string, method: string, status: number): Node =>
  judge.at(`#/paths/${path.replaceAll('/', '~1')}/${method}/responses/${status}`);

/** What is described of the headers of a response, by lower-case name. */
const headersOf = (response: Node): readonly string[] =>
  Object.keys((response['headers'] ?? {}) as object).map((name) => name.toLowerCase());

/** Fails when the answer holds anything that the operation does not say; returns the code when it is an error. */
function assertDescribed(path: string, method: string, answer: RawAnswer): string | undefined {
  const about = `${method} ${path} ${answer.status} ${answer.body.slice(0, 300)}`;
  const response = responseOf(path, method, answer.status);
  const headers = headersOf(response);
  for (const name of Object.keys(answer.headers)) {
    assert.ok(framing.has(name) || headers.includes(name), `the header ${name} of ${about}`);
  }
  const content = response['content'] as Readonly<Record<string, Node>> | undefined;
  if (content === undefined) {
    assert.equal(answer.body, '', about);
    return undefined;
  }
  const [type = ''] = (answer.headers['content-type'] ?? '').split(';');
  if (type === 'text/event-stream') {
    assert.deepEqual(judge.faultsOfStream(path, answer.body), [], about);
    return undefined;
  }
  const media = content[type] ?? content['*/*'];
  assert.ok(media, `the type ${type} of ${about}`);
  if (content[type] === undefined) return undefined;
  assert.deepEqual(judge.faults(media['schema'], answer.json()), [], about);
  if (answer.status < 400) return undefined;
  const { code } = answer.json()['error'] as { readonly code: string };
  const examples = media['examples'] as Readonly<Record<string, unknown>> | undefined;
  assert.ok(examples && Object.hasOwn(examples, code), `the code ${code} of ${about}`);
  return code;
}

const bodies: Readonly<Record<string, (text: string) => Readonly<Record<string, unknown>>>> = {
  '/v1/chat/completions': (content) => ({ messages: [{ role: 'user', content }] }),
  '/v1/completions': (prompt) => ({ prompt }),
  '/v1/messages': (content) => ({ max_tokens: 10, messages: [{ role: 'user', content }] }),
  '/v1/messages/count_tokens': (content) => ({ messages: [{ role: 'user', content }] }),
  '/v1/responses': (input) => ({ input }),
  '/v1/responses/input_tokens': (input) => ({ input }),
  '/v1/embeddings': (input) => ({ input }),
  '/v1/rerank': (text) => ({ query: 'why', documents: [text] }),
};
const kindsOf: Readonly<Record<string, keyof typeof kinds>> = { '/v1/embeddings': '-embeds', '/v1/rerank': '-ranks' };

interface Asked {
  readonly text?: string;
  /** Without the ending of its kind. */
  readonly model?: string;
  readonly fields?: Readonly<Record<string, unknown>>;
  readonly body?: string;
  readonly key?: string;
  readonly headers?: readonly (readonly [string, string])[];
}

function requestTo(
  path: string,
  { text = 'hi', model = 'demo', fields = {}, body, key = service.key, headers = [] }: Asked,
): RawRequest {
  return {
    method: 'POST',
    path,
    headers: [...(key === '' ? [] : [['Authorization', `Bearer ${key}`] as const]), ...headers],
    body: body ?? JSON.stringify({ model: model + (kindsOf[path] ?? ''), ...bodies[path]?.(text), ...fields }),
  };
}

/** What every endpoint with a model refuses alike. */
const refusals: readonly (readonly [ErrorCode, () => Asked])[] = [
  ['missing_api_key', () => ({ key: '' })],
  ['invalid_api_key', () => ({ key: 'tkh_wrong' })],
  ['http_403', () => ({ key: elsewhere })],
  ['http_415', () => ({ headers: [['content-encoding', 'gzip']] })],
  ['invalid_zdr_header', () => ({ headers: [['Service-ZDR', 'yes']] })],
  ['request_body_too_large', () => ({ text: 'x'.repeat(100_000) })],
  ['invalid_json_request', () => ({ body: '{' })],
  ['invalid_json_request', () => ({ body: '{}' })],
  ['schema_validation_failed', () => ({ body: '[]' })],
  ['model_not_found', () => ({ model: 'nothing' })],
  ['model_not_allowed', () => ({ key: onlySmall })],
  ['model_zdr_not_supported', () => ({ headers: [['Service-ZDR', 'required']] })],
];

describe('inference', options, () => {
  for (const { path, kind, description } of describedEndpoints) {
    const isCount = kind === 'count';
    const streams = description.events !== undefined;

    test(`${path}: an answer${streams ? ', whole and streamed' : ''}`, async () => {
      for (const stream of streams ? [false, true] : [false]) {
        const answer = await exchange(service.url, requestTo(path, { fields: stream ? { stream } : {} }));
        assert.equal(answer.status, 200, answer.body);
        assertDescribed(path, 'post', answer);
      }
    });

    for (const [code, asked] of [
      ...refusals,
      ...(isCount
        ? []
        : [
            ...faults.map((fault) => [fault, () => ({ text: fault })] as const),
            ['insufficient_credits', () => ({ model: 'dear' })] as const,
            ['context_length_exceeded', () => ({ text: 'word '.repeat(200), model: 'small' })] as const,
          ]),
    ]) {
      test(`${path}: ${code}`, async () => {
        assert.equal(assertDescribed(path, 'post', await exchange(service.url, requestTo(path, asked()))), code);
      });
    }

    test(`${path}: another method, and what the edge refuses before it knows the API`, async () => {
      const refused = await exchange(service.url, { ...requestTo(path, {}), method: 'PUT' });
      assert.equal(assertDescribed(path, 'post', refused), 'http_405');
      for (const [code, headers] of [
        ['http_400', [['Host', 'not a host']]],
        ['http_417', [['Expect', 'miracles']]],
        ['http_431', Array.from({ length: 120 }, (_, index) => [`X-${index}`, 'x'] as const)],
      ] as const)
        assert.equal(assertDescribed(path, 'post', await exchange(service.url, requestTo(path, { headers }))), code);
    });

    if (!isCount) {
      test(`${path}: concurrency_limit_exceeded`, async () => {
        const busy = await RawConnection.open(narrow.url);
        const slow = requestTo('/v1/chat/completions', { key: narrow.key, text: 'slowly', fields: { stream: true } });
        busy.write(requestBytes(narrow.url, slow));
        await busy.waitFor(() => busy.received.includes('word'));
        const answer = await exchange(narrow.url, requestTo(path, { key: narrow.key }));
        assert.equal(assertDescribed(path, 'post', answer), 'concurrency_limit_exceeded');
        busy.close();
      });
    }
  }

  const document = { type: 'document', source: { type: 'url', url: 'https://nobody.invalid/a.pdf' } };
  const file = { type: 'input_file', file_url: 'https://nobody.invalid/a.pdf' };
  for (const [path, fields] of [
    ['/v1/messages', { messages: [{ role: 'user', content: [document] }] }],
    ['/v1/messages/count_tokens', { messages: [{ role: 'user', content: [document] }] }],
    ['/v1/responses', { input: [{ role: 'user', content: [file] }] }],
    ['/v1/responses/input_tokens', { input: [{ role: 'user', content: [file] }] }],
  ] as const) {
    test(`${path}: a document that cannot be fetched`, async () => {
      const answer = await exchange(service.url, requestTo(path, { fields }));
      assert.equal(assertDescribed(path, 'post', answer), 'model_request_rejected');
    });
  }
});

describe('files', options, () => {
  for (const [form, version] of [
    ['of OpenAI', []],
    ['of Anthropic', [['anthropic-version', '2023-06-01']]],
  ] as const) {
    test(`in the form ${form}: every operation, and what it refuses`, async () => {
      const headers = [['Authorization', `Bearer ${service.key}`], ...version] as const;
      const ask = (path: string, method: string, more: Partial<RawRequest> = {}) =>
        exchange(service.url, { method: method.toUpperCase(), path, headers, ...more });
      const upload = uploadRequest(service, uploadBody('a,b\n', 't.csv'), version);
      const made = await exchange(service.url, upload);
      assert.equal(made.status, 200, made.body);
      assertDescribed('/v1/files', 'post', made);
      const { id } = made.json() as { readonly id: string };
      assertDescribed('/v1/files', 'get', await ask('/v1/files?limit=1', 'get'));
      const operations = [
        ['/v1/files/{file_id}', 'get'],
        ['/v1/files/{file_id}/content', 'get'],
        ['/v1/files/{file_id}', 'delete'],
      ] as const;
      for (const [path, method] of operations) {
        const url = path.replace('{file_id}', id);
        for (const [code, key] of [
          ['missing_api_key', undefined],
          ['invalid_api_key', 'tkh_wrong'],
          ['http_403', elsewhere],
        ] as const) {
          const own = key === undefined ? version : [['Authorization', `Bearer ${key}`] as const, ...version];
          assert.equal(assertDescribed(path, method, await ask(url, method, { headers: own })), code);
        }
        const answer = await ask(url, method);
        assert.equal(answer.status, 200, answer.body);
        assertDescribed(path, method, answer);
      }
      for (const [path, method] of operations)
        assert.equal(assertDescribed(path, method, await ask(path.replace('{file_id}', id), method)), 'http_404');
      assert.equal(
        assertDescribed('/v1/files', 'get', await ask('/v1/files?limit=no', 'get')),
        'schema_validation_failed',
      );
      assert.equal(assertDescribed('/v1/files', 'get', await ask('/v1/files', 'patch')), 'http_405');
      for (const [code, more] of [
        ['files_require_user_key', [['Authorization', `Bearer ${ofNobody}`]]],
        ['unsupported_parameter', [['Service-ZDR', 'required']]],
        ['invalid_zdr_header', [['Service-ZDR', 'yes']]],
        ['http_415', [['Content-Type', 'application/json']]],
      ] as const) {
        const refused = uploadRequest(service, uploadBody('x', 'x.txt'), [...version, ...more]);
        assert.equal(assertDescribed('/v1/files', 'post', await exchange(service.url, refused)), code);
      }
      const large = uploadRequest(service, uploadBody('x'.repeat(200_000), 'x.txt'), version);
      assert.equal(assertDescribed('/v1/files', 'post', await exchange(service.url, large)), 'request_body_too_large');
    });
  }
});

describe('the rest', options, () => {
  test('the catalog: with a key, without, with a wrong one and with one for other addresses', async () => {
    for (const [key, code] of [
      [undefined, undefined],
      [service.key, undefined],
      ['tkh_wrong', 'invalid_api_key'],
      [elsewhere, 'http_403'],
    ] as const) {
      const headers = key === undefined ? [] : [['Authorization', `Bearer ${key}`] as const];
      const answer = await exchange(service.url, { path: '/v1/models', headers });
      assert.equal(assertDescribed('/v1/models', 'get', answer), code);
    }
  });

  test('health, and the description itself', async () => {
    for (const path of ['/healthz', '/readyz']) {
      assertDescribed(path, 'get', await exchange(service.url, { path }));
      const refused = await exchange(service.url, { method: 'DELETE', path });
      assert.equal(assertDescribed(path, 'get', refused), 'http_405');
    }
    const whole = await exchange(service.url, { path: '/openapi.json' });
    const headers = headersOf(responseOf('/openapi.json', 'get', 200));
    for (const name of Object.keys(whole.headers)) assert.ok(framing.has(name) || headers.includes(name), name);
    const known = [['If-None-Match', whole.headers['etag'] ?? '']] as const;
    const unchanged = await exchange(service.url, { method: 'HEAD', path: '/openapi.json', headers: known });
    assert.equal(unchanged.status, 304);
    assertDescribed('/openapi.json', 'get', unchanged);
  });
});
