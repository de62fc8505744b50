import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';

import { errorExamples } from '../../src/platform/error-examples.ts';
import type { ErrorExample } from '../../src/platform/error-examples.ts';
import { errorTable } from '../../src/platform/errors.ts';
import type { ErrorCode } from '../../src/platform/errors.ts';
import { chatRequest } from '../inference/http/chat.ts';
import { assertEnvelope, assertRequestId } from '../inference/http/envelope.ts';
import { RawConnection, exchange } from '../inference/http/raw.ts';
import { InnerService, scriptedModel } from '../support/service.ts';

/** The pages that `docs_url` leads to: plain, harmless, and the same facts as the table of codes. */
const service = new InnerService({ config: scriptedModel('- say: [ { text: "hello" } ]') });
before(() => service.start());
after(() => service.dispose());

const get = (path: string, method = 'GET') => exchange(service.accountUrl, { method, path });
const codes = Object.keys(errorTable) as ErrorCode[];

const escaped = (text: string): string =>
  text
    .replaceAll('&', '&amp;')
    .replaceAll('<', '&lt;')
    .replaceAll('>', '&gt;')
    .replaceAll('"', '&quot;')
    .replaceAll(/`([^`]+)`/g, '<code>$1</code>');

describe('the page of', () => {
  for (const code of codes) {
    test(code, async () => {
      const page = await get(`/docs/errors/${code}`);
      assert.equal(page.status, 200);
      const row = errorTable[code];
      for (const fact of [code, String(row.status), row.type, escaped(row.meaning), escaped(row.remedy), row.retry]) {
        assert.ok(page.body.includes(fact), `${code} does not say ${fact}`);
      }
      const { param, extra = {}, headers = {} }: ErrorExample = errorExamples[code];
      const [, shown = ''] = /<pre>[^{]*(\{.*\})<\/pre>/s.exec(page.body) ?? [];
      const { error } = JSON.parse(shown.replaceAll('&quot;', '"').replaceAll('&lt;', '<').replaceAll('&gt;', '>')) as {
        error: Record<string, unknown>;
      };
      const common = ['type', 'code', 'message', ...(param === undefined ? [] : ['param'])];
      assert.deepEqual(Object.keys(error), [...common, ...Object.keys(extra), 'request_id', 'docs_url']);
      assert.equal(error['docs_url'], `${service.accountUrl}/docs/errors/${code}`);
      for (const name of [...Object.keys(extra), ...Object.keys(headers)])
        assert.ok(page.body.includes(`<td><code>${name}</code></td>`), `${code} does not tell of ${name}`);
    });
  }
});

test('the index lists every code with its page', async () => {
  for (const path of ['/docs/errors', '/docs/errors/', '/docs/errors?from=mail']) {
    const { status, body } = await get(path);
    assert.equal(status, 200);
    const linked = [...body.matchAll(/href="\/docs\/errors\/([a-z0-9_]+)"/g)].map(([, code]) => code);
    assert.deepEqual(linked, codes);
  }
});

test('docs_url of an answer leads to its page', async () => {
  const refused = await exchange(service.url, { ...chatRequest(service), headers: [] });
  const { error } = refused.json() as { error: { docs_url: string; code: string } };
  const page = await fetch(error.docs_url);
  assert.equal(page.status, 200);
  assert.match(await page.text(), new RegExp(`<h1>${error.code}</h1>`));
});

test('the first page says what runs here and where the API and its document are', async () => {
  const { status, body } = await get('/');
  assert.equal(status, 200);
  for (const link of ['/openapi.json', '/docs/errors', '/docs']) assert.ok(body.includes(`href="${link}"`), link);
});

test('the page of credit names the command, and nothing of any account', async () => {
  const { status, body } = await get('/topup');
  assert.equal(status, 200);
  assert.match(body, /npx tokenhouse credits grant --account &lt;account id&gt; --dollars 5\.00/);
  assert.ok(!body.includes(service.accountId));
});

test('what does not exist is 404, and repeats nothing of the request', async () => {
  for (const path of [
    '/nothing',
    '/docs/errors/no_such_code',
    '/docs/errors/constructor',
    '/docs/errors/__proto__',
    '/docs/errors/MODEL_NOT_FOUND',
    '/docs/errors/..%2f..%2fsecret',
    '/docs/errors/%3Cscript%3Ealert(1)%3C/script%3E',
    '/topup/../../data/secret',
    '//evil.example/topup',
  ]) {
    const { status, headers, body } = await get(path);
    assert.equal(status, 404, path);
    assert.equal(headers['content-type'], 'text/html; charset=utf-8');
    assert.doesNotMatch(body, /script|secret|evil|no_such|constructor/);
  }
});

test('under /v1 everything is JSON in the envelope', async () => {
  for (const path of ['/v1/nothing', '/v1/nothing/at/all?x=1']) {
    assertEnvelope(await get(path), 'http_404', { accountUrl: service.accountUrl });
  }
});

test('pages are read only', async () => {
  for (const method of ['POST', 'PUT', 'DELETE', 'OPTIONS']) {
    const answer = await get('/docs/errors', method);
    assertEnvelope(answer, 'http_405');
    assert.equal(answer.headers['allow'], 'GET, HEAD');
  }
  const head = await get('/docs/errors', 'HEAD');
  assert.equal(head.status, 200);
  assert.equal(head.headers['content-length'], (await get('/docs/errors')).headers['content-length']);
});

test('the headers keep browsers from doing more than showing a page', async () => {
  for (const path of ['/', '/docs/errors', '/docs/errors/http_404', '/nothing', '/v1/keys']) {
    const answer = await get(path);
    const { headers } = answer;
    assert.match(headers['content-security-policy'] ?? '', /default-src 'none'.*frame-ancestors 'none'/);
    assert.equal(headers['x-content-type-options'], 'nosniff');
    assert.equal(headers['referrer-policy'], 'same-origin');
    assertRequestId(answer);
    assert.doesNotMatch(answer.body, /<script|javascript:|src=|\son\w+=/);
  }
});

test("the client's request id comes back", async () => {
  const answer = await exchange(service.accountUrl, { path: '/topup', headers: [['X-Request-Id', 'trace <1>']] });
  assertRequestId(answer, 'client_trace<1>');
  assert.ok(!answer.body.includes('trace'));
});

test('healthz and readyz', async () => {
  assert.deepEqual((await get('/healthz')).json(), { status: 'ok' });
  assert.deepEqual((await get('/readyz')).json(), { status: 'ready' });
});

test('what is refused before the routes has the envelope too', async () => {
  for (const [bytes, code] of [
    ['NONSENSE\r\n\r\n', 'http_400'],
    [`GET / HTTP/1.1\r\nHost: a\r\nX-Long: ${'a'.repeat(20_000)}\r\n\r\n`, 'http_431'],
    ['GET /healthz HTTP/1.1\r\n\r\n', 'http_400'],
    ['GET /healthz HTTP/1.1\r\nHost: a\r\nExpect: miracles\r\n\r\n', 'http_417'],
  ] as const) {
    const connection = await RawConnection.open(service.accountUrl);
    connection.write(bytes);
    assertEnvelope(await connection.answer(), code, { accountUrl: service.accountUrl });
    connection.close();
  }
});
