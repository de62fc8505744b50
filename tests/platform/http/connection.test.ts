import assert from 'node:assert/strict';
import type { IncomingMessage, ServerResponse } from 'node:http';
import type { Socket } from 'node:net';
import { after, describe, test } from 'node:test';

import type { ListenerConnection, ListenerLimits } from '../../../src/platform/http/listener.ts';
import { answersIn } from '../../inference/http/answers.ts';
import { assertEnvelope } from '../../inference/http/envelope.ts';
import { RawConnection } from '../../inference/http/raw.ts';
import { slowness } from '../../support/busy.ts';
import { until } from '../../support/service.ts';
import { serveListener } from './served.ts';
import type { Served } from './served.ts';

/** One connection at the edge: who runs, who waits, and when it ends (reliability C1 to C6, C10). */
const opened: Served[] = [];
after(() => {
  for (const served of opened) served.close();
});

/** A handler that keeps each request until the test ends it. */
class Kept {
  readonly turns: { readonly request: IncomingMessage; readonly response: ServerResponse }[] = [];
  readonly aborted: string[] = [];
  running = 0;
  runningMost = 0;

  readonly handler = (request: IncomingMessage, response: ServerResponse, connection: ListenerConnection): void => {
    connection.fillWith(() => void response.write(' '));
    this.turns.push({ request, response });
    this.runningMost = Math.max(this.runningMost, ++this.running);
    request.resume();
    response.on('close', () => {
      this.running--;
      if (!response.writableFinished) this.aborted.push(request.url ?? '');
    });
  };

  /** Answers the newest request. */
  answer(): void {
    const { request, response } = this.turns.at(-1)!;
    response.writeHead(200, { 'content-type': 'text/plain', 'content-length': request.url?.length });
    response.end(request.url);
  }
}

async function serveKept(limits: Partial<ListenerLimits> = {}): Promise<Served & { readonly kept: Kept }> {
  const kept = new Kept();
  const served = await serveListener(kept.handler, limits);
  opened.push(served);
  return { ...served, kept };
}

const get = (path: string, ...lines: readonly string[]): string =>
  ['GET ' + path + ' HTTP/1.1', 'Host: a', ...lines, '', ''].join('\r\n');
const post = (path: string, body: string): string =>
  `POST ${path} HTTP/1.1\r\nHost: a\r\nContent-Length: ${body.length}\r\n\r\n${body}`;
const bodiesOf = (connection: RawConnection): readonly string[] =>
  answersIn(connection.received).map(({ body }) => body);

describe('requests that are sent ahead (C6)', () => {
  test('wait for their turn and are answered in order', async () => {
    const { url, kept } = await serveKept();
    const connection = await RawConnection.open(url);
    connection.write(get('/1') + post('/2', 'x'.repeat(8000)) + get('/3'));
    for (const count of [1, 2, 3]) {
      await until(() => kept.turns.length === count);
      kept.answer();
    }
    await connection.waitFor(() => bodiesOf(connection).length === 3);
    assert.deepEqual(bodiesOf(connection), ['/1', '/2', '/3']);
    assert.equal(kept.runningMost, 1);
    connection.write(get('/4'));
    await until(() => kept.turns.length === 4);
    connection.close();
  });

  test('also when they come while the first runs', async () => {
    const { url, kept } = await serveKept();
    const connection = await RawConnection.open(url);
    connection.write(get('/1'));
    await until(() => kept.turns.length === 1);
    connection.write(get('/2'));
    // Bytes that the other side has read are answered by the closing of the connection only when it reads on.
    connection.write('GET /3 HT');
    kept.answer();
    await until(() => kept.turns.length === 2);
    kept.answer();
    connection.write('TP/1.1\r\nHost: a\r\n\r\n');
    await until(() => kept.turns.length === 3);
    assert.equal(kept.runningMost, 1);
    connection.close();
  });

  test('5,000 in one write start one handler, and the connection is refused', async () => {
    const { url, kept, refusals } = await serveKept();
    const connection = await RawConnection.open(url);
    connection.write(get('/1').repeat(5000));
    await connection.waitFor(() => connection.isEnded);
    assertEnvelope(answersIn(connection.received)[0]!, 'http_400');
    assert.equal(answersIn(connection.received).length, 1);
    await until(() => kept.aborted.length === 1);
    assert.equal(kept.turns.length, 1);
    assert.deepEqual(refusals, ['http_400']);
  });

  test('5,000 in one write are answered one after the other when the answers are quick', async () => {
    let running = 0;
    let runningMost = 0;
    const served = await serveListener((request, response) => {
      runningMost = Math.max(runningMost, ++running);
      response.on('close', () => running--);
      response.setHeader('x-request-id', 'req_000000000000').end('1', () => request.resume());
    });
    opened.push(served);
    const connection = await RawConnection.open(served.url);
    connection.write(get('/1').repeat(5000));
    await connection.waitFor(() => connection.isEnded);
    // One packet holds more requests than may wait: the first is answered, and the rest refused at once.
    const statuses = answersIn(connection.received).map(({ status }) => status);
    assert.equal(statuses.at(-1), 400, JSON.stringify(statuses));
    assert.ok(statuses.length <= 10, `${statuses.length} answers`);
    assert.equal(runningMost, 1);
  });

  test('as many as may wait are answered, one more is too many', async () => {
    const { url, kept } = await serveKept({ waitingPerConnectionMax: 2 });
    const connection = await RawConnection.open(url);
    connection.write(get('/1') + get('/2') + get('/3'));
    for (const count of [1, 2, 3]) {
      await until(() => kept.turns.length === count);
      kept.answer();
    }
    await connection.waitFor(() => bodiesOf(connection).length === 3);
    assert.ok(!connection.isEnded);
    connection.write(get('/5') + get('/6') + get('/7') + get('/8'));
    await connection.waitFor(() => connection.isEnded);
    assert.equal(answersIn(connection.received).at(-1)?.status, 400);
    assert.equal(kept.turns.length, 4);
  });

  test('with a large body are not begun: the answer before says that the connection closes', async () => {
    const { url, kept } = await serveKept();
    const connection = await RawConnection.open(url);
    const large = post('/3', 'x'.repeat(2_000_000));
    connection.write(get('/1') + get('/2') + large + get('/4'));
    await until(() => kept.turns.length === 1);
    kept.answer();
    await until(() => kept.turns.length === 2);
    kept.answer();
    await connection.waitFor(() => connection.isEnded);
    assert.deepEqual(bodiesOf(connection), ['/1', '/2']);
    assert.deepEqual(
      answersIn(connection.received).map(({ headers }) => headers['connection']),
      ['keep-alive', 'close'],
    );
    assert.equal(kept.turns.length, 2);
    connection.close();
  });

  test('with a large body do not hide that the client leaves', async () => {
    for (const leave of ['destroy', 'resetAndDestroy'] as const) {
      const { url, kept } = await serveKept();
      const connection = await RawConnection.open(url);
      connection.write(get('/1') + post('/2', 'x'.repeat(2_000_000)) + get('/3'));
      await until(() => kept.turns.length === 1);
      await connection.drained();
      connection.socket[leave]();
      await until(() => kept.aborted.length === 1);
      assert.equal(kept.turns.length, 1);
      connection.close();
    }
  });

  test('are not begun when the client has left', async () => {
    const { url, kept } = await serveKept();
    const connection = await RawConnection.open(url);
    connection.write(get('/1') + get('/2'));
    await until(() => kept.turns.length === 1);
    connection.socket.resetAndDestroy();
    await until(() => kept.aborted.length === 1);
    assert.equal(kept.turns.length, 1);
  });

  test('are not begun after an answer that closes', async () => {
    const { url, kept } = await serveKept();
    const connection = await RawConnection.open(url);
    connection.write(get('/1', 'Connection: close') + get('/2') + 'nonsense');
    await until(() => kept.turns.length === 1);
    connection.write(get('/3'));
    kept.answer();
    await connection.waitFor(() => connection.isEnded);
    assert.deepEqual(bodiesOf(connection), ['/1']);
    assert.equal(kept.turns.length, 1);
  });

  test('are checked like the first', async () => {
    const { url, kept } = await serveKept();
    const connection = await RawConnection.open(url);
    connection.write(get('/1') + get('/2', 'Host: b') + get('/3'));
    await until(() => kept.turns.length === 1);
    kept.answer();
    await connection.waitFor(() => connection.isEnded);
    const [first, second, ...further] = answersIn(connection.received);
    assert.equal(first?.body, '/1');
    assertEnvelope(second!, 'http_400');
    assert.deepEqual(further, []);
    assert.equal(kept.turns.length, 1);
  });
});

describe('nonsense behind a request', () => {
  test('refuses the connection, and aborts what runs', async () => {
    const { url, kept } = await serveKept();
    const connection = await RawConnection.open(url);
    connection.write(get('/1') + 'NONSENSE\r\n\r\n');
    await connection.waitFor(() => connection.isEnded);
    assertEnvelope(answersIn(connection.received)[0]!, 'http_400');
    await until(() => kept.aborted.length === 1);
  });

  test('is not written into an answer that has begun', async () => {
    const { url, kept } = await serveKept();
    const connection = await RawConnection.open(url);
    connection.write(get('/1'));
    await until(() => kept.turns.length === 1);
    kept.turns[0]!.response.writeHead(200, { 'content-type': 'text/plain' }).write('begun');
    await connection.waitFor(() => connection.received.includes('begun'));
    connection.write('NONSENSE\r\n\r\n');
    await connection.waitFor(() => connection.isEnded);
    assert.equal(connection.received.split('HTTP/1.1').length, 2);
    await until(() => kept.aborted.length === 1);
  });

  test('is not answered a second time when the answer waits for its reader', async () => {
    const { url, kept } = await serveKept();
    const connection = await RawConnection.open(url);
    connection.socket.pause();
    connection.write(`POST /1 HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n`);
    await until(() => kept.turns.length === 1);
    const length = 32 * 1024 * 1024;
    kept.turns[0]!.response.writeHead(200, { 'content-length': length }).end(Buffer.alloc(length, 'x'));
    connection.write('no chunk\r\n');
    connection.socket.resume();
    await connection.waitFor(() => connection.isEnded);
    assert.equal(connection.received.split('HTTP/1.1').length, 2);
    connection.close();
  });
});

describe('a client that leaves (C4, C5)', () => {
  for (const [what, leave] of [
    ['a FIN, and nobody there any more', (socket: Socket) => socket.destroy()],
    ['an RST', (socket: Socket) => socket.resetAndDestroy()],
    [
      'an end of its side, and a close after it',
      (socket: Socket) => socket.end(() => setTimeout(() => socket.destroy(), 300)),
    ],
  ] as const) {
    for (const part of ['before the head of the answer', 'behind it'] as const) {
      test(`aborts what runs: ${what}, ${part}`, async () => {
        const { url, kept } = await serveKept();
        const connection = await RawConnection.open(url);
        connection.write(get('/1'));
        await until(() => kept.turns.length === 1);
        if (part === 'behind it') {
          kept.turns[0]!.response.writeHead(200).write('so far');
          await connection.waitFor(() => connection.received.includes('so far'));
        }
        const leftMs = performance.now();
        leave(connection.socket);
        await until(() => kept.aborted.length === 1);
        // Ten times what is promised (I7): these tests share their machine.
        assert.ok(performance.now() - leftMs < 1300 * slowness);
      });
    }
  }

  test('is waited for when it only ends its side: the answer comes whole, behind interim ones', async () => {
    const { url, kept } = await serveKept();
    const connection = await RawConnection.open(url);
    connection.socket.end(get('/1') + get('/2'));
    await until(() => kept.turns.length === 1);
    await connection.waitFor(() => connection.received.split('HTTP/1.1 100 Continue').length > 2);
    kept.answer();
    await until(() => kept.turns.length === 2);
    kept.answer();
    await connection.waitFor(() => connection.isEnded);
    const answers = answersIn(connection.received).filter(({ status }) => status !== 100);
    assert.deepEqual(
      answers.map(({ status, body, headers }) => [status, body, headers['connection']]),
      [
        [200, '/1', 'keep-alive'],
        [200, '/2', 'close'],
      ],
    );
    assert.deepEqual(kept.aborted, []);
  });

  test('without HTTP/1.1 cannot be asked whether it is there, so its FIN ends what runs', async () => {
    const { url, kept } = await serveKept();
    const connection = await RawConnection.open(url);
    connection.socket.end('GET /1 HTTP/1.0\r\n\r\n');
    await until(() => kept.aborted.length === 1);
    assert.equal(connection.received, '');
  });

  test('after its request and its FIN gets the answer when that is ready at once', async () => {
    const served = await serveListener((_, response) => void response.setHeader('content-length', 2).end('ok'));
    opened.push(served);
    const connection = await RawConnection.open(served.url);
    connection.socket.end(get('/1') + get('/2'));
    await connection.waitFor(() => connection.isEnded);
    assert.deepEqual(bodiesOf(connection), ['ok', 'ok']);
  });
});

describe('limits of time', () => {
  test('a connection that says nothing is answered 408 and closed (C1)', async () => {
    const { url } = await serveKept({ headersTimeoutMs: 200 });
    for (const bytes of ['', 'GET /1 HTTP/1.1\r\nHost: a\r\n']) {
      const connection = await RawConnection.open(url);
      if (bytes !== '') connection.write(bytes);
      await connection.waitFor(() => connection.isEnded);
      assertEnvelope(answersIn(connection.received)[0]!, 'http_408');
    }
  });

  test('a body that comes too slowly is answered 408, its request aborted (C2)', async () => {
    const { url, kept, refusals } = await serveKept({ bodyBytesPerSecondMin: 1000, bodyRateWindowMs: 200 });
    const connection = await RawConnection.open(url);
    connection.write('POST /1 HTTP/1.1\r\nHost: a\r\nContent-Length: 1000000\r\n\r\n');
    const drip = setInterval(() => connection.write('x'), 20);
    await connection.waitFor(() => connection.isEnded);
    clearInterval(drip);
    assertEnvelope(answersIn(connection.received)[0]!, 'http_408');
    await until(() => kept.aborted.length === 1);
    assert.deepEqual(refusals, ['http_408']);
  });

  test('a body that is fast enough is waited for, over many windows', async () => {
    const { url, kept } = await serveKept({ bodyBytesPerSecondMin: 10, bodyRateWindowMs: 100 });
    const connection = await RawConnection.open(url);
    connection.write('POST /1 HTTP/1.1\r\nHost: a\r\nContent-Length: 20000\r\n\r\n');
    for (let i = 0; i < 20; i++) {
      connection.write('x'.repeat(1000));
      await new Promise((resolve) => setTimeout(resolve, 30));
    }
    await until(() => kept.turns[0]?.request.complete === true);
    kept.answer();
    await connection.waitFor(() => answersIn(connection.received).length === 1);
    assert.equal(answersIn(connection.received)[0]?.status, 200);
    connection.close();
  });

  test('a body that nobody reads here is not too slow', async () => {
    const turns: ServerResponse[] = [];
    const served = await serveListener((_, response) => void turns.push(response), {
      bodyBytesPerSecondMin: 1000,
      bodyRateWindowMs: 50,
    });
    opened.push(served);
    const connection = await RawConnection.open(served.url);
    connection.write(post('/1', 'x'.repeat(1_000_000)));
    // Twenty windows.
    await new Promise((resolve) => setTimeout(resolve, 1000));
    assert.ok(!connection.isEnded);
    assert.equal(turns.length, 1);
    turns[0]!.setHeader('content-length', 2).end('ok');
    await connection.waitFor(() => answersIn(connection.received).length === 1);
    connection.close();
  });

  test('a slow body after an early answer ends the connection without a second answer', async () => {
    const served = await serveListener((_, response) => void response.setHeader('content-length', 2).end('no'), {
      bodyBytesPerSecondMin: 1000,
      bodyRateWindowMs: 100,
    });
    opened.push(served);
    const connection = await RawConnection.open(served.url);
    connection.write('POST /1 HTTP/1.1\r\nHost: a\r\nContent-Length: 1000000\r\n\r\n');
    await connection.waitFor(() => connection.isEnded);
    assert.deepEqual(bodiesOf(connection), ['no']);
  });

  test('the last bytes of an answer do not wait for ever (C3)', async () => {
    const { url, kept } = await serveKept({ readerStallMs: 200 });
    const connection = await RawConnection.open(url);
    connection.socket.pause();
    connection.write(get('/1'));
    await until(() => kept.turns.length === 1);
    const length = 32 * 1024 * 1024;
    kept.turns[0]!.response.writeHead(200, { 'content-length': length }).end(Buffer.alloc(length, 'x'));
    await until(() => kept.running === 0);
    connection.socket.resume();
    await connection.waitFor(() => connection.isEnded);
    assert.ok(connection.received.length < length);
    connection.close();
  });

  test('also when nonsense came behind their request', async () => {
    const { url, kept } = await serveKept({ readerStallMs: 200 });
    const connection = await RawConnection.open(url);
    connection.socket.pause();
    connection.write('POST /1 HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n');
    await until(() => kept.turns.length === 1);
    const length = 32 * 1024 * 1024;
    kept.turns[0]!.response.writeHead(200, { 'content-length': length }).end(Buffer.alloc(length, 'x'));
    connection.write('no chunk\r\n');
    await until(() => kept.running === 0);
    connection.close();
  });

  test('a reader that took its time does not hurry the request behind it', async () => {
    const { url, kept } = await serveKept({ readerStallMs: 400 });
    const connection = await RawConnection.open(url);
    connection.socket.pause();
    connection.write(get('/1') + get('/2'));
    await until(() => kept.turns.length === 1);
    const length = 32 * 1024 * 1024;
    kept.turns[0]!.response.writeHead(200, { 'content-length': length }).end(Buffer.alloc(length, 'x'));
    await new Promise((resolve) => setTimeout(resolve, 100));
    connection.socket.resume();
    await until(() => kept.turns.length === 2);
    // Longer than the reader of the first answer had.
    await new Promise((resolve) => setTimeout(resolve, 1000));
    assert.deepEqual(kept.aborted, []);
    kept.answer();
    await connection.waitFor(() => bodiesOf(connection).length === 2);
    connection.close();
  });

  test('an idle connection is closed (C10)', async () => {
    const { url, kept } = await serveKept({ keepAliveTimeoutMs: 100 });
    const connection = await RawConnection.open(url);
    connection.write(get('/1'));
    await until(() => kept.turns.length === 1);
    kept.answer();
    await connection.waitFor(() => connection.isEnded);
    assert.deepEqual(bodiesOf(connection), ['/1']);
  });
});

describe('limits of count', () => {
  test('the last answer of a connection says so (C10)', async () => {
    const served = await serveListener((_, response) => void response.setHeader('content-length', 2).end('ok'), {
      requestsPerConnectionMax: 3,
    });
    opened.push(served);
    const connection = await RawConnection.open(served.url);
    connection.write(get('/1').repeat(6));
    await connection.waitFor(() => connection.isEnded);
    assert.deepEqual(
      answersIn(connection.received).map(({ status, headers }) => `${status} ${headers['connection']}`),
      ['200 keep-alive', '200 keep-alive', '200 close'],
    );
  });

  test('one connection more than allowed is closed at once, and there is room again when one has gone', async () => {
    const { url, kept } = await serveKept({ connectionsMax: 2 });
    const [first, second] = [await RawConnection.open(url), await RawConnection.open(url)];
    second.write(get('/1'));
    await until(() => kept.turns.length === 1);
    const third = await RawConnection.open(url);
    await third.waitFor(() => third.isEnded);
    assert.equal(third.received, '');
    first.close();
    await until(async () => {
      const fourth = await RawConnection.open(url);
      fourth.write(get('/2'));
      await fourth.waitFor(() => fourth.isEnded || kept.turns.length === 2);
      fourth.close();
      return kept.turns.length === 2;
    });
    second.close();
  });
});

describe('a connection that is paused (reliability §5, shedding)', () => {
  test('is read again after a second, however often its client asks, and loses nothing', async () => {
    let asked = 0;
    const served = await serveListener((request, response, connection) => {
      asked++;
      connection.restAfterAnswer();
      response.writeHead(429, { 'content-type': 'text/plain', 'content-length': request.url?.length });
      response.end(request.url);
    });
    opened.push(served);
    const connection = await RawConnection.open(served.url);
    const begunMs = performance.now();
    for (let i = 1; i <= 3; i++) {
      connection.write(i === 2 ? post(`/${i}`, 'body') : get(`/${i}`));
      await connection.waitFor(() => bodiesOf(connection).length === i);
    }
    assert.deepEqual(bodiesOf(connection), ['/1', '/2', '/3']);
    assert.equal(asked, 3);
    assert.ok(performance.now() - begunMs >= 1_900, 'two rests of a second');
    connection.close();
  });

  test('answers what was sent ahead before it rests', async () => {
    const served = await serveListener((request, response, connection) => {
      connection.restAfterAnswer();
      response.writeHead(429, { 'content-type': 'text/plain', 'content-length': request.url?.length });
      response.end(request.url);
    });
    opened.push(served);
    const connection = await RawConnection.open(served.url);
    connection.write(get('/1') + get('/2') + get('/3'));
    await connection.waitFor(() => bodiesOf(connection).length === 3);
    assert.deepEqual(bodiesOf(connection), ['/1', '/2', '/3']);
    connection.close();
  });
});
