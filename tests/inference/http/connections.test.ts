import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';

import { InnerService, scriptedModel, until } from '../../support/service.ts';
import type { UsageLine } from '../../support/service.ts';
import { askChat, chatRequest, eventsOf, plainBody } from './chat.ts';
import { assertEnvelope, assertRequestId } from './envelope.ts';
import { RawConnection, exchange, requestBytes } from './raw.ts';

/** What happens on a connection beside one request and its answer (reliability C5 to C10). */
const service = new InnerService({
  config: scriptedModel(`
- when: { last_text: "paced" }
  say: [ { text: "one two three" } ]
  pace_ms: 100
- when: { last_text: "hang" }
  say: [ { text: "one two three" } ]
  fault: { after_tokens: 1, type: hang }
- say: [ { text: "hello" } ]
`),
});
before(() => service.start());
after(async () => {
  await service.verify();
  await service.dispose();
});

const streamed = (content: string) => ({ ...plainBody, messages: [{ role: 'user', content }], stream: true });

async function receiptOf(requestId: string): Promise<UsageLine> {
  let found: UsageLine | undefined;
  await until(async () => {
    found = (await service.usage()).requests.find((line) => line.request_id === requestId);
    return found !== undefined;
  });
  assert.ok(found);
  return found;
}

test('a connection is used again after answers, streams and errors', async () => {
  const connection = await RawConnection.open(service.url);
  const ask = (bytes: Buffer) => {
    connection.write(bytes);
    return connection.answer();
  };
  const request = (body?: unknown) => requestBytes(service.url, chatRequest(service, body));
  assert.equal((await ask(request())).status, 200);
  assertEnvelope(await ask(request('{')), 'invalid_json_request');
  assert.equal(eventsOf((await ask(request(streamed('hi')))).body).at(-1), '[DONE]');
  assertEnvelope(await ask(requestBytes(service.url, { path: '/nothing' })), 'http_404');
  assertEnvelope(
    await ask(requestBytes(service.url, { method: 'POST', path: '/v1/chat/completions', body: '{"model":1}' })),
    'missing_api_key',
  );
  assertEnvelope(await ask(request({ ...plainBody, model: 'nothing' })), 'model_not_found', { param: 'model' });
  assert.equal((await ask(request())).status, 200);
  assert.ok(!connection.isEnded);
  connection.close();
});

test('HEAD is answered without a body, also on the paths that clients probe', async () => {
  const connection = await RawConnection.open(service.url);
  for (const path of ['/', '/api/hello', '/v1/models', '/healthz']) {
    connection.write(requestBytes(service.url, { method: 'HEAD', path }));
    const answer = await connection.answer({ withoutBody: true });
    assertRequestId(answer);
  }
  // A body after one of the heads would be read as the next answer.
  connection.write(requestBytes(service.url, { path: '/healthz' }));
  assert.deepEqual((await connection.answer()).json(), { status: 'ok' });
  connection.close();
});

test('pipelined requests are answered in order, each with its own id', async () => {
  const connection = await RawConnection.open(service.url);
  const ids = Array.from({ length: 5 }, (_, index) => `pipelined-${index}`);
  connection.write(
    Buffer.concat(ids.map((id) => requestBytes(service.url, chatRequest(service, plainBody, [['X-Request-Id', id]])))),
  );
  for (const id of ids) {
    const answer = await connection.answer();
    assert.equal(answer.status, 200);
    assertRequestId(answer, `client_${id}`);
  }
  connection.close();
});

for (const stream of [true, false]) {
  const how = stream ? 'streamed' : 'whole';

  test(`a client that ends its side behind its request gets the answer, ${how}`, async () => {
    const connection = await RawConnection.open(service.url);
    const body = { ...streamed('paced'), stream };
    const id = `half-closed-${how}`;
    connection.socket.end(requestBytes(service.url, chatRequest(service, body, [['X-Request-Id', id]])));
    await connection.waitFor(() => connection.isEnded);
    const answer = connection.received.slice(connection.received.indexOf('HTTP/1.1 200'));
    if (stream) assert.match(answer, /one.* two.* three.*data: \[DONE\]\n\n/s);
    else assert.match(answer, /"content":"one two three"/);
    const receipt = await receiptOf(`client_${id}`);
    assert.deepEqual([receipt.ending, receipt.completion_tokens], ['finished', 3]);
  });
}

test('a client that closes the connection has left: the answer ends, and is charged so far', async () => {
  const connection = await RawConnection.open(service.url);
  const request = chatRequest(service, streamed('hang'), [['X-Request-Id', 'closed']]);
  connection.write(requestBytes(service.url, request));
  await connection.waitFor(() => connection.received.includes('one'));
  connection.socket.destroy();
  const receipt = await receiptOf('client_closed');
  assert.equal(receipt.ending, 'client_left');
  assert.equal(receipt.completion_tokens, 1);
});

test('nonsense in the middle of a stream ends the connection without a second head', async () => {
  const connection = await RawConnection.open(service.url);
  const request = chatRequest(service, streamed('hang'), [['X-Request-Id', 'interrupted']]);
  connection.write(requestBytes(service.url, request));
  await connection.waitFor(() => connection.received.includes('one'));
  connection.write('NONSENSE\r\n\r\n');
  await connection.waitFor(() => connection.isEnded);
  assert.equal(connection.received.split('HTTP/1.1').length, 2, connection.received);
  assert.equal((await receiptOf('client_interrupted')).ending, 'client_left');
});

test('a client that resets in the middle of its request costs nothing', async () => {
  const before = (await service.usage()).requests.length;
  const connection = await RawConnection.open(service.url);
  connection.write(requestBytes(service.url, chatRequest(service, '{"mod', [['Content-Length', '100']])));
  connection.socket.resetAndDestroy();
  await askChat(service);
  assert.equal((await service.usage()).requests.length, before + 1);
});

describe('Expect', () => {
  const expecting = (body: unknown, headers: readonly (readonly [string, string])[]): readonly [Buffer, Buffer] => {
    const bytes = requestBytes(service.url, {
      ...chatRequest(service, body),
      headers: [...headers, ['Expect', '100-continue']],
    });
    const end = bytes.indexOf('\r\n\r\n') + 4;
    return [bytes.subarray(0, end), bytes.subarray(end)];
  };
  const key = (): readonly [string, string] => ['Authorization', `Bearer ${service.key}`];

  test('100-continue is answered before the body', async () => {
    const [head, body] = expecting(plainBody, [key()]);
    const connection = await RawConnection.open(service.url);
    connection.write(head);
    assert.equal((await connection.answer()).status, 100);
    connection.write(body);
    assert.equal((await connection.answer()).status, 200);
    connection.close();
  });

  test('what the head is refused for comes instead of 100', async () => {
    for (const [headers, code] of [
      [[], 'missing_api_key'],
      [[['Authorization', 'Bearer nonsense']], 'invalid_api_key'],
      [[key(), ['Content-Length', '52428800']], 'request_body_too_large'],
      [[key(), ['Content-Type', 'multipart/form-data']], 'http_415'],
    ] as const) {
      const connection = await RawConnection.open(service.url);
      connection.write(expecting(plainBody, headers)[0]);
      assertEnvelope(await connection.answer(), code);
      connection.close();
    }
  });
});

describe('versions of HTTP', () => {
  test('1.0 gets a whole answer, and a stream that ends with the connection', async () => {
    for (const stream of [false, true]) {
      const connection = await RawConnection.open(service.url);
      const body = JSON.stringify({ ...plainBody, stream });
      connection.write(
        `POST /v1/chat/completions HTTP/1.0\r\nAuthorization: Bearer ${service.key}\r\nContent-Length: ${body.length}\r\n\r\n${body}`,
      );
      const answer = await connection.answer();
      assert.equal(answer.status, 200);
      assertRequestId(answer);
      assert.equal(answer.headers['transfer-encoding'], undefined);
      if (stream) assert.equal(eventsOf(answer.body).at(-1), '[DONE]');
      else assert.equal(answer.json()['object'], 'chat.completion');
      await connection.waitFor(() => connection.isEnded);
    }
  });

  for (const [what, line, code] of [
    ['2.0', 'GET /healthz HTTP/2.0', 'http_505'],
    ['0.9, without a version', 'GET /healthz', 'http_505'],
    ['3.7', 'GET /healthz HTTP/3.7', 'http_505'],
  ] as const) {
    test(`${what} is refused`, async () => {
      const connection = await RawConnection.open(service.url);
      connection.write(`${line}\r\nHost: a\r\n\r\n`);
      assertEnvelope(await connection.answer(), code);
      connection.close();
    });
  }
});

test('a hundred headers are taken, more are refused instead of lost', async () => {
  const many = (count: number) =>
    Array.from({ length: count }, (_, index): readonly [string, string] => [`X-Filler-${index}`, 'x']);
  // Host, Authorization, Content-Type and Content-Length are four.
  assert.equal((await askChat(service, plainBody, many(96))).status, 200);
  assertEnvelope(await askChat(service, plainBody, many(97)), 'http_431');
  assertEnvelope(await askChat(service, plainBody, [...many(1200), ['Service-ZDR', 'no']]), 'http_431');
});

test('methods that are no methods of ours end in words or in a closed connection', async () => {
  assertEnvelope(await exchange(service.url, { method: 'TRACE', path: '/v1/models' }), 'http_405');
  assertEnvelope(await exchange(service.url, { method: 'BREW', path: '/v1/models' }), 'http_400');
  const connection = await RawConnection.open(service.url);
  connection.write('CONNECT example.org:443 HTTP/1.1\r\nHost: example.org:443\r\n\r\n');
  await connection.waitFor(() => connection.isEnded);
  const upgrade = requestBytes(service.url, {
    path: '/healthz',
    headers: [
      ['Connection', 'Upgrade'],
      ['Upgrade', 'websocket'],
    ],
  });
  const upgrading = await RawConnection.open(service.url);
  upgrading.write(upgrade);
  assert.equal((await upgrading.answer()).status, 200);
  upgrading.close();
});
