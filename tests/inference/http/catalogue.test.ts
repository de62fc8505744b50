import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';

import { InnerService, scriptedModel } from '../../support/service.ts';
import { answersIn } from './answers.ts';
import { catalogue, marker } from './catalogue.ts';
import type { Case } from './catalogue.ts';
import { chatRequest, plainBody } from './chat.ts';
import { assertEnvelope } from './envelope.ts';
import { RawConnection, requestBytes } from './raw.ts';

/** Bytes that two readers of HTTP could understand differently: refused, or answered once and in order (reliability §3.3, C7). */
const service = new InnerService({ config: scriptedModel('- say: [ { text: "hello" } ]') });
before(() => service.start());
after(async () => {
  await service.verify();
  await service.dispose();
});

const hosts: readonly (readonly [string, () => string])[] = [
  ['inference', () => service.url],
  ['account', () => service.accountUrl],
];

for (const [host, url] of hosts) {
  describe(`the ${host} host, in one packet`, () => {
    for (const row of catalogue) test(row.what, () => assertOutcome(url(), row, Infinity));
  });
  // What a reader makes of bytes must not depend on how they were cut.
  describe(`the ${host} host, in pieces`, () => {
    for (const row of catalogue) test(row.what, () => assertOutcome(url(), row, row.bytes.length > 1000 ? 997 : 3));
  });
}

test('the catalogue has the cases of the list, each once', () => {
  assert.ok(catalogue.length >= 82 + 16, `${catalogue.length} cases`);
  assert.equal(new Set(catalogue.map(({ what }) => what)).size, catalogue.length);
  assert.equal(new Set(catalogue.map(({ bytes }) => bytes)).size, catalogue.length);
});

describe('a request that is read before it is answered', () => {
  for (const { what, bytes } of catalogue.filter(({ what }) => what.startsWith('chunks: '))) {
    test(`is refused for ${what}`, async () => {
      const connection = await RawConnection.open(service.url);
      const body = bytes.slice(bytes.indexOf('\r\n\r\n') + 4);
      const { headers = [] } = chatRequest(service);
      const head = requestBytes(service.url, {
        ...chatRequest(service, ''),
        headers: [...headers, ['Transfer-Encoding', 'chunked']],
      });
      connection.write(Buffer.concat([head, Buffer.from(body + marker, 'latin1')]));
      await connection.waitFor(() => connection.isEnded);
      const [answer, ...further] = answersIn(connection.received);
      assert.ok(answer);
      // A trailer that is too long is too long a head.
      assertEnvelope(answer, what.includes('trailer of 20 kB') ? 'http_431' : 'http_400');
      assert.deepEqual(further, []);
      connection.close();
    });
  }

  test('but not begun twice when another is hidden in its body', async () => {
    const connection = await RawConnection.open(service.url);
    connection.write(requestBytes(service.url, chatRequest(service, marker)));
    connection.write(marker);
    await connection.waitFor(() => answersIn(connection.received).length === 2);
    const [first, second] = answersIn(connection.received);
    assert.equal(first?.status, 400);
    assert.equal(second?.headers['x-request-id'], 'client_marker');
    connection.write(requestBytes(service.url, chatRequest(service, plainBody)));
    await connection.waitFor(() => answersIn(connection.received).length === 3);
    assert.equal(answersIn(connection.received)[2]?.status, 200);
    connection.close();
  });
});

test('a body that comes after its early answer is skipped, whatever it looks like (0.CL)', async () => {
  for (const [, url] of hosts) {
    const connection = await RawConnection.open(url());
    const hidden = marker.repeat(3);
    connection.write(`POST /healthz HTTP/1.1\r\nHost: a\r\nContent-Length: ${hidden.length}\r\n\r\n`);
    await connection.waitFor(() => answersIn(connection.received).length === 1);
    connection.write(hidden + marker);
    await connection.waitFor(() => answersIn(connection.received).length === 2);
    const [first, second] = answersIn(connection.received);
    assert.equal(first?.status, 405);
    assert.equal(second?.headers['x-request-id'], 'client_marker');
    connection.close();
  }
});

test('a body that was announced and refused is no request: the connection ends with the answer (Expect)', async () => {
  for (const [, url] of hosts) {
    const connection = await RawConnection.open(url());
    connection.write(
      `POST /healthz HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: ${marker.length}\r\n\r\n`,
    );
    await connection.waitFor(() => answersIn(connection.received).length === 1);
    connection.write(marker);
    await connection.waitFor(() => connection.isEnded);
    assert.deepEqual(
      answersIn(connection.received).map(({ status }) => status),
      [405],
    );
    connection.close();
  }
});

test('HEAD with a body is refused, without a body', async () => {
  for (const [, url] of hosts) {
    const connection = await RawConnection.open(url());
    connection.write(`HEAD /healthz HTTP/1.1\r\nHost: a\r\nContent-Length: ${marker.length}\r\n\r\n${marker}`);
    await connection.waitFor(() => connection.isEnded);
    assert.match(connection.received, /^HTTP\/1\.1 400 Bad Request\r\n[^]*\r\n\r\n$/);
    assert.equal(connection.received.split('HTTP/1.1').length, 2, connection.received);
    connection.close();
  }
});

/**
 * An answer that ends its connection can be lost: bytes that reach a closed socket reset the connection, and with it goes what
 * the client has not read yet (RFC 9112 §9.6). The edge lingers after refusals; after an ordinary last answer the client
 * should not have sent more.
 */
const triesMax = 10;

async function assertOutcome(url: string, one: Case, pieceBytes: number, tries = 1): Promise<void> {
  const { bytes, outcome } = one;
  const connection = await RawConnection.open(url);
  connection.socket.setNoDelay(true);
  const all = bytes + marker;
  for (let i = 0; i < all.length && !connection.isEnded; i += pieceBytes) {
    connection.write(Buffer.from(all.slice(i, i + pieceBytes), 'latin1'));
    if (pieceBytes < all.length) await new Promise((resolve) => setImmediate(resolve));
  }
  const answersExpected = outcome.kind === 'taken' ? 2 : Infinity;
  await connection.waitFor(() => connection.isEnded || answersIn(connection.received).length >= answersExpected);
  const answers = answersIn(connection.received);
  const reported = connection.received;
  if (outcome.kind === 'last' && reported === '' && tries < triesMax)
    return assertOutcome(url, one, pieceBytes, tries + 1);
  switch (outcome.kind) {
    case 'taken':
      assert.deepEqual(
        answers.map(({ status }) => status),
        [outcome.status, 200],
        reported,
      );
      assert.equal(answers[1]?.headers['x-request-id'], 'client_marker', reported);
      // A third one would show that the two sides count differently.
      connection.write(marker);
      await connection.waitFor(() => answersIn(connection.received).length === 3);
      assert.ok(!connection.isEnded);
      break;
    case 'last':
      assert.deepEqual(
        answers.map(({ status }) => status),
        [outcome.status],
        reported,
      );
      break;
    case 'then':
      assert.equal(answers[0]?.status, outcome.status, reported);
      assert.equal(answers.length, 2, reported);
      assertEnvelope(answers[1]!, outcome.code);
      break;
    case 'refused':
      assert.equal(answers.length, 1, reported);
      assertEnvelope(answers[0]!, outcome.code);
      assert.equal(answers[0]?.headers['connection'], 'close');
  }
  for (const { status, headers, body } of answers) {
    assert.notEqual(headers['x-request-id'], undefined);
    if (status !== 200) assert.ok(body.startsWith('{"error":{'), body);
  }
  connection.close();
}
