import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';

import { TestService, scriptedModel, until } from '../../support/service.ts';
import { answersIn } from './answers.ts';
import { askChat, chatRequest, plainBody } from './chat.ts';
import { openFiles, openFilesMax, openMany, outlast } from './crowd.ts';
import type { Idler } from './crowd.ts';
import { assertEnvelope } from './envelope.ts';
import { RawConnection, exchange, requestBytes } from './raw.ts';

/** Many connections that mean no good, and one ordinary client beside them (reliability C1, C2, C6, C10, I8). */
const service = new TestService({
  limits: '  headers_timeout_seconds: 2\n  keep_alive_timeout_seconds: 5',
  config: scriptedModel(`
- when: { last_text: "hang" }
  say: [ { text: "one two three" } ]
  fault: { after_tokens: 0, type: hang }
- say: [ { text: "hello" } ]
`),
});
before(() => service.start());
after(async () => {
  await service.verify();
  await service.dispose();
});

const hosts: readonly (readonly [string, () => string])[] = [
  ['inference', () => service.url],
  ['account', () => service.accountUrl],
];

function assertAll408(idlers: readonly Idler[]): void {
  for (const { received } of idlers) {
    const [answer, ...further] = answersIn(received);
    assert.ok(answer, JSON.stringify(received));
    assertEnvelope(answer, 'http_408');
    assert.deepEqual(further, []);
  }
}

describe('slow clients, 500 at once, are answered 408 and closed while others are served', () => {
  for (const [host, url] of hosts) {
    test(`slow headers at the ${host} host (C1)`, async () => {
      const idlers = await openMany(url(), 500, (socket) => socket.write('GET /healthz HTTP/1.1\r\nHost: a\r\nX: '));
      const ask = async () => (await exchange(url(), { path: '/healthz' })).status;
      assert.ok((await outlast(idlers, 'x', ask)) > 0);
      assertAll408(idlers);
    });
  }

  test('slow bodies (C2)', async () => {
    const before = (await service.usage()).requests.length;
    const [head] = requestBytes(service.url, chatRequest(service, ' ', [['Content-Length', '200000']]))
      .toString('latin1')
      .split('\r\n\r\n');
    const idlers = await openMany(service.url, 500, (socket) => socket.write(`${head}\r\n\r\n{`));
    const answered = await outlast(idlers, ' ', async () => (await askChat(service)).status);
    assertAll408(idlers);
    assert.ok(answered > 0);
    // The slow ones never reached the ledger.
    assert.equal((await service.usage()).requests.length, before + answered);
  });
});

describe('5,000 requests in one write (C6)', () => {
  test('start one: it is aborted when the connection is refused', async () => {
    const before = (await service.usage()).requests.length;
    const connection = await RawConnection.open(service.url);
    const body = { ...plainBody, messages: [{ role: 'user', content: 'hang' }] };
    const request = requestBytes(service.url, chatRequest(service, body));
    connection.write(Buffer.concat(Array.from({ length: 5000 }, () => request)));
    await connection.waitFor(() => connection.isEnded);
    const answers = answersIn(connection.received);
    assert.equal(answers.length, 1);
    assertEnvelope(answers[0]!, 'http_400');
    connection.close();
    assert.equal((await askChat(service)).status, 200);
    const { requests } = await service.usage();
    const added = requests.slice(0, requests.length - before);
    // The first one may have had its hold already.
    assert.ok(added.length === 1 || added.length === 2, JSON.stringify(added));
    for (const { ending } of added) assert.match(ending, /^(finished|client_left)$/);
  });

  for (const [host, url] of hosts) {
    test(`get what their connection could wait for at the ${host} host, and a refusal`, async () => {
      const connection = await RawConnection.open(url());
      connection.write(requestBytes(url(), { path: '/healthz' }).toString('latin1').repeat(5000));
      await connection.waitFor(() => connection.isEnded);
      const answers = answersIn(connection.received);
      assertEnvelope(answers.at(-1)!, 'http_400');
      for (const { status } of answers.slice(0, -1)) assert.equal(status, 200);
      connection.close();
      assert.equal((await exchange(url(), { path: '/healthz' })).status, 200);
    });
  }
});

test('2,000 idle connections, or as many as there may be, are closed at the limit (C10)', async () => {
  const count = Math.min(2_000, openFilesMax() / 2);
  const filesBefore = openFiles(service.pid);
  const idlers = await openMany(service.url, count, (socket) =>
    socket.write('GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n'),
  );
  await outlast(idlers, '', async () => (await exchange(service.url, { path: '/healthz' })).status);
  for (const { received } of idlers) assert.equal(answersIn(received)[0]?.status, 200);
  await until(() => openFiles(service.pid) <= filesBefore + 10, 60_000);
});
