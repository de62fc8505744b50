import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';

import { sendAgainWhenBusy, slowness } from '../../support/busy.ts';
import { InnerService, scriptedModel } from '../../support/service.ts';
import { askChat, chatRequest, plainBody } from './chat.ts';
import { assertEnvelope } from './envelope.ts';
import { RawConnection, bodyChunk, requestBytes } from './raw.ts';

/** Request bodies: what is JSON, what is an object, and how large it may be (specification part 8, reliability C11). */
const service = new InnerService({ config: scriptedModel('- say: [ { text: "hello" } ]') });
before(() => service.start());
after(() => service.dispose());

const bytesMax = 52_428_800;

describe('a body that is no JSON', () => {
  const utf16 = Buffer.from(JSON.stringify(plainBody), 'utf16le');
  for (const [what, body] of [
    ['empty', ''],
    ['blanks', ' \r\n\t '],
    ['a word', 'hello'],
    ['cut', JSON.stringify(plainBody).slice(0, -1)],
    ['with something after it', `${JSON.stringify(plainBody)}x`],
    ['two objects', '{}{}'],
    ['single quotes', "{'model':'demo'}"],
    ['a comment', '{"model":"demo"/* */}'],
    ['a trailing comma', '{"model":"demo",}'],
    ['NaN', '{"model":"demo","messages":[],"temperature":NaN}'],
    ['a byte order mark', `\ufeff${JSON.stringify(plainBody)}`],
    ['UTF-16', utf16],
    ['bytes that are no UTF-8', Buffer.from([0x22, 0xff, 0xfe, 0x22])],
    ['an overlong NUL', Buffer.from([0x22, 0xc0, 0x80, 0x22])],
    ['a surrogate in UTF-8', Buffer.from([0x22, 0xed, 0xa0, 0x80, 0x22])],
    ['a control character in a string', '{"model":"de\nmo"}'],
  ] as const) {
    test(what, async () => {
      const error = assertEnvelope(await askChat(service, body), 'invalid_json_request');
      // The message may say where, and never what.
      assert.doesNotMatch(String(error['message']), /demo|hello|model/);
    });
  }
});

describe('JSON that is no object', () => {
  for (const body of ['[]', '[{}]', '"text"', '42', 'null', 'true']) {
    test(body, async () => {
      assertEnvelope(await askChat(service, body), 'schema_validation_failed');
    });
  }
});

test('a missing field is named', async () => {
  assertEnvelope(await askChat(service, '{}'), 'invalid_json_request', { param: 'model' });
  assertEnvelope(await askChat(service, '{"model":"demo"}'), 'invalid_json_request', { param: 'messages' });
});

test('fields of the wrong type, range or shape are named by their path', async () => {
  for (const [field, param] of [
    [{ model: 7 }, 'model'],
    [{ model: '' }, 'model'],
    [{ messages: [] }, 'messages'],
    [{ messages: 'hi' }, 'messages'],
    [{ messages: [{ role: 'robot', content: 'x' }] }, 'messages[0].role'],
    [{ messages: [{ content: 'x' }] }, 'messages[0].role'],
    [{ messages: [{ role: 'user', content: 7 }] }, 'messages[0].content'],
    [{ messages: [{ role: 'user', content: [{ type: 'text' }] }] }, 'messages[0].content[0].text'],
    [{ max_tokens: 0 }, 'max_tokens'],
    [{ max_tokens: 1.5 }, 'max_tokens'],
    [{ max_completion_tokens: -1 }, 'max_completion_tokens'],
    [{ temperature: 'hot' }, 'temperature'],
    [{ top_p: 2 }, 'top_p'],
    [{ stream: 'yes' }, 'stream'],
    [{ stop: [1] }, 'stop[0]'],
    [{ seed: 1.5 }, 'seed'],
  ] as const) {
    const answer = await askChat(service, { ...plainBody, ...field });
    assertEnvelope(answer, 'schema_validation_failed', { param });
  }
});

test('odd but valid JSON is taken', async () => {
  for (const body of [
    '{"model":"nothing","model":"demo","messages":[{"role":"user","content":"hi"}]}',
    '{"model":"demo","messages":[{"role":"user","content":"\\ud800 alone"}]}',
    '{"__proto__":{"n":2},"constructor":1,"model":"demo","messages":[{"role":"user","content":"hi"}]}',
    `{"model":"demo","messages":[{"role":"user","content":"hi"}],"x":1e999,"y":9007199254740993}`,
    `{"deep":${'['.repeat(255)}${']'.repeat(255)},"model":"demo","messages":[{"role":"user","content":"hi"}]}`,
    ` \n{"model":"demo","messages":[{"role":"user","content":"hi"}]}\n `,
  ]) {
    const answer = await askChat(service, body);
    assert.equal(answer.status, 200, answer.body);
  }
});

describe('the size of a body', { timeout: 120_000 * slowness }, () => {
  /** Valid JSON of exactly this many bytes. */
  const bodyOf = (bytes: number): Buffer => {
    const text = JSON.stringify(plainBody);
    return Buffer.concat([Buffer.from(text), Buffer.alloc(bytes - text.length, ' ')]);
  };

  test('one byte below 50 MB is taken, declared and chunked', async () => {
    const body = bodyOf(bytesMax - 1);
    assert.equal((await sendAgainWhenBusy(() => askChat(service, body))).status, 200);
    assert.equal((await sendAgainWhenBusy(() => sendChunked(body))).status, 200);
  });

  test('50 MB are refused, declared and chunked, and the client can read why', async () => {
    const declared = await askChat(service, bodyOf(bytesMax));
    assert.match(String(assertEnvelope(declared, 'request_body_too_large')['message']), /52428800/);
    assertEnvelope(await sendChunked(bodyOf(bytesMax)), 'request_body_too_large');
  });

  test('a declared size is refused before the body is sent, and the connection goes on', async () => {
    const connection = await RawConnection.open(service.url);
    const request = chatRequest(service, '', [['Content-Length', String(bytesMax)]]);
    connection.write(requestBytes(service.url, request));
    assertEnvelope(await connection.answer(), 'request_body_too_large');
    // The body that was announced is read and thrown away.
    const body = bodyOf(bytesMax);
    for (let at = 0; at < body.length; at += 1 << 20) {
      connection.write(body.subarray(at, at + (1 << 20)));
      await connection.drained();
    }
    connection.write(requestBytes(service.url, chatRequest(service)));
    assert.equal((await connection.answer()).status, 200);
    connection.close();
  });

  test('an endless body is refused when it reaches the limit', async () => {
    const connection = await RawConnection.open(service.url);
    connection.write(requestBytes(service.url, chatRequest(service, '', [['Transfer-Encoding', 'chunked']])));
    const megabyte = bodyChunk(Buffer.alloc(1 << 20, ' '));
    let sent = 0;
    while (connection.received === '' && sent < 100 && !connection.isEnded) {
      connection.write(megabyte);
      sent++;
      await connection.drained();
    }
    assertEnvelope(await connection.answer(), 'request_body_too_large');
    assert.ok(sent >= 50 && sent < 100, String(sent));
    connection.close();
    await service.verify();
  });

  async function sendChunked(body: Buffer) {
    const connection = await RawConnection.open(service.url);
    connection.write(requestBytes(service.url, chatRequest(service, '', [['Transfer-Encoding', 'chunked']])));
    for (let at = 0; at < body.length; at += 1 << 20) {
      connection.write(bodyChunk(body.subarray(at, at + (1 << 20))));
      await connection.drained();
    }
    connection.write('0\r\n\r\n');
    const answer = await connection.answer();
    connection.close();
    return answer;
  }
});

test('too many large bodies at once are refused, and the room is released', async () => {
  const small = new InnerService({
    limits: '  body_bytes_max: 100000\n  bodies_in_flight_bytes_max: 100000',
    config: scriptedModel('- say: [ { text: "hello" } ]'),
  });
  await small.start();
  try {
    const first = await RawConnection.open(small.url);
    first.write(requestBytes(small.url, chatRequest(small, '', [['Content-Length', '90000']])));
    first.write(Buffer.alloc(80_000, ' '));
    // Until the first body is counted, the second finds room.
    let refused = await askChat(small, ' '.repeat(50_000));
    while (refused.status === 400) refused = await askChat(small, ' '.repeat(50_000));
    assertEnvelope(refused, 'backend_at_capacity');
    assert.equal(refused.headers['retry-after'], '1');
    first.close();
    let answer = await askChat(small, JSON.stringify(plainBody) + ' '.repeat(50_000));
    while (answer.status === 429) answer = await askChat(small, JSON.stringify(plainBody) + ' '.repeat(50_000));
    assert.equal(answer.status, 200);
  } finally {
    await small.dispose();
  }
});
