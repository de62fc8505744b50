import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';

import { InnerService, scriptedModel } from '../../support/service.ts';
import { askChat, chatRequest, plainBody } from './chat.ts';
import { assertEnvelope, assertRequestId } from './envelope.ts';
import { RawConnection, bodyChunk, exchange, requestBytes } from './raw.ts';

/** Contracts decision 11 and specification §5.7: every answer, no matter where it is made, carries its request id twice. */
const service = new InnerService({
  limits: '  body_bytes_max: 2000',
  config: scriptedModel('- say: [ { text: "hello" } ]'),
});
before(() => service.start());
after(() => service.dispose());

const made = /^req_[0-9a-f]{12}$/;

describe('an answer without an id from the client has one of ours', () => {
  const key = (): readonly [string, string] => ['Authorization', `Bearer ${service.key}`];

  test('200s, streams and the catalog', async () => {
    const seen = new Set<string>();
    for (const answer of [
      await askChat(service),
      await askChat(service, { ...plainBody, stream: true }),
      await exchange(service.url, { path: '/v1/models' }),
      await exchange(service.url, { method: 'HEAD', path: '/v1/models' }),
      await exchange(service.url, { path: '/healthz' }),
      await exchange(service.url, { path: '/readyz' }),
    ]) {
      assert.equal(answer.status, 200);
      seen.add(assertRequestId(answer));
    }
    assert.equal(seen.size, 6, 'an id came twice');
    for (const id of seen) assert.match(id, made);
  });

  test('unknown routes, wrong methods, missing keys', async () => {
    assertEnvelope(await exchange(service.url, { path: '/v1/nothing' }), 'http_404');
    assertEnvelope(await exchange(service.url, { method: 'POST', path: '/v1/models/demo', body: '{}' }), 'http_404');
    assertRequestId(await exchange(service.url, { method: 'HEAD', path: '/' }));
    assertRequestId(await exchange(service.url, { method: 'HEAD', path: '/api/hello' }));
    for (const [method, path, allow] of [
      ['GET', '/v1/chat/completions', 'POST'],
      ['DELETE', '/v1/chat/completions', 'POST'],
      ['OPTIONS', '/v1/chat/completions', 'POST'],
      ['POST', '/v1/models', 'GET, HEAD'],
      ['PUT', '/healthz', 'GET, HEAD'],
      ['POST', '/readyz', 'GET, HEAD'],
    ] as const) {
      const answer = await exchange(service.url, { method, path, headers: [key()] });
      assertEnvelope(answer, 'http_405');
      assert.equal(answer.headers['allow'], allow, `${method} ${path}`);
    }
    assertEnvelope(await exchange(service.url, { method: 'POST', path: '/v1/chat/completions' }), 'missing_api_key');
  });

  test('bodies that are too large, declared and chunked', async () => {
    assertEnvelope(await askChat(service, ' '.repeat(2000)), 'request_body_too_large');
    const connection = await RawConnection.open(service.url);
    const request = chatRequest(service, undefined, [['Transfer-Encoding', 'chunked']]);
    connection.write(requestBytes(service.url, { ...request, body: '' }));
    connection.write(bodyChunk(Buffer.alloc(2000, ' ')));
    assertEnvelope(await connection.answer(), 'request_body_too_large');
    connection.close();
  });

  test('what the HTTP parser refuses', async () => {
    for (const [bytes, code] of [
      ['NONSENSE\r\n\r\n', 'http_400'],
      ['GET / HTTP/1.1\r\nHost: a\r\nBad Header: b\r\n\r\n', 'http_400'],
      ['POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n', 'http_400'],
      [`GET / HTTP/1.1\r\nHost: a\r\nX-Long: ${'a'.repeat(20_000)}\r\n\r\n`, 'http_431'],
      [`GET / HTTP/1.1\r\nHost: a\r\n${'X-Many: a\r\n'.repeat(120)}\r\n`, 'http_431'],
      ['GET /healthz HTTP/1.1\r\n\r\n', 'http_400'],
      ['GET http://elsewhere/healthz HTTP/1.1\r\nHost: elsewhere\r\n\r\n', 'http_400'],
      ['PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n', 'http_505'],
      ['\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03', 'http_400'],
      ['GET /healthz HTTP/1.1\r\nHost: a\r\nExpect: a miracle\r\n\r\n', 'http_417'],
    ] as const) {
      const connection = await RawConnection.open(service.url);
      connection.write(Buffer.from(bytes, 'latin1'));
      assertEnvelope(await connection.answer(), code, { accountUrl: service.accountUrl });
      connection.close();
    }
  });
});

describe("the client's id", () => {
  for (const [what, sent, expected] of [
    ['of our own form is echoed', 'req_0123456789ab', 'req_0123456789ab'],
    ['almost of our own form is prefixed', 'req_0123456789AB', 'client_req_0123456789AB'],
    ['with one digit more is prefixed', 'req_0123456789abc', 'client_req_0123456789abc'],
    ['of any other form is prefixed', 'trace-1/2:3', 'client_trace-1/2:3'],
    ['that is prefixed already is prefixed again', 'client_x', 'client_client_x'],
    ['with blanks loses them', ' a b\tc ', 'client_abc'],
    ['with bytes outside ASCII loses them', 'caf\xe9\xff', 'client_caf'],
    ['of UTF-8 loses what is not ASCII', Buffer.from('nø✓').toString('latin1'), 'client_n'],
    ['that is too long is cut at 128', 'a'.repeat(200), `client_${'a'.repeat(128)}`],
    ['with quotes stays as it is', '"><script>', 'client_"><script>'],
  ] as const) {
    test(what, async () => {
      const answer = await askChat(service, plainBody, [['X-Request-Id', sent]]);
      assert.equal(answer.status, 200);
      assertRequestId(answer, expected);
      const refused = await askChat(service, '{', [['X-Request-Id', sent]]);
      assertEnvelope(refused, 'invalid_json_request');
      assertRequestId(refused, expected);
    });
  }

  for (const [what, sent] of [
    ['empty', ''],
    ['of blanks', '   \t '],
    ['without anything visible in ASCII', '\xe9\xfc'],
  ] as const) {
    test(`${what} counts as none`, async () => {
      const answer = await askChat(service, plainBody, [['X-Request-Id', sent]]);
      assert.match(assertRequestId(answer), made);
    });
  }

  test('with control characters is refused by the parser or made safe', async () => {
    for (const control of ['\x00', '\x01', '\x07', '\x7f', '\x1b[31m']) {
      const answer = await askChat(service, plainBody, [['X-Request-Id', `a${control}b`]]);
      assert.match(assertRequestId(answer), answer.status === 400 ? made : /^client_a(\[31m)?b$/);
    }
  });

  test('names the receipt', async () => {
    await askChat(service, plainBody, [['X-Request-Id', 'find-me']]);
    const { requests } = await service.usage();
    assert.ok(requests.some((line) => line.request_id === 'client_find-me'));
  });
});
