import assert from 'node:assert/strict';
import { spawn, spawnSync } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { createServer as createTlsServer } from 'node:https';
import { createServer, type AddressInfo, type Socket } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, it } from 'node:test';
import { setTimeout as delay } from 'node:timers/promises';
import { pathToFileURL } from 'node:url';
import {
  Connections,
  type AnswerHandler,
  type ConnectionsOptions,
} from '../../../../src/inference/engines/openai/connections.ts';
import { eventually, Upstream, type UpstreamHandler } from '../../../support/upstream.ts';
import { built } from '../../../support/built.ts';

const defaults = { connectTimeoutMs: 10_000, keepAliveMs: 60_000, requestsPerSocket: undefined };
const hasOpenssl = spawnSync('openssl', ['version']).status === 0;
const request = 'POST /x HTTP/1.1\r\nhost: h\r\ncontent-length: 2\r\n\r\n{}';

interface Outcome {
  readonly body: string;
  readonly error: (Error & { readonly code?: string }) | undefined;
  readonly wasUsedBefore: boolean;
}

async function* piecesOf(pieces: readonly Uint8Array[]): AsyncGenerator<Uint8Array> {
  for (const piece of pieces) {
    await delay(0);
    yield piece;
  }
}

function ask(
  connections: Connections,
  text = request,
  isFresh = false,
  pieces?: AsyncIterable<Uint8Array>,
): Promise<Outcome> {
  return new Promise((resolve) => {
    let body = '';
    const handler: AnswerHandler = {
      onBegin: () => {},
      onHead: () => {},
      onBody: (part, from, to) => (body += part.toString('latin1', from, to)),
      onReadEnd: () => {},
      onOver: () => resolve({ body, error: undefined, wasUsedBefore: false }),
      onBroken: (error, wasUsedBefore) => resolve({ body, error, wasUsedBefore }),
    };
    connections.send({ text, pieces }, handler, isFresh);
  });
}

async function withConnections(
  handler: UpstreamHandler,
  act: (connections: Connections, upstream: Upstream) => Promise<void>,
  options: Partial<ConnectionsOptions> = {},
): Promise<void> {
  const upstream = await Upstream.start(handler);
  const connections = new Connections({ url: new URL(upstream.url), ...defaults, ...options });
  try {
    await act(connections, upstream);
  } finally {
    connections.close(new Error('the test is over'));
    await upstream.close();
  }
}

const answer: UpstreamHandler = (exchange) => exchange.json(200, exchange.onSocket);

describe('connections to a backend', { timeout: 60_000 }, () => {
  it('are used again, the last one first, and there are as many as requests at once', async () => {
    await withConnections(answer, async (connections, upstream) => {
      await Promise.all([1, 2, 3].map(() => ask(connections)));
      assert.equal(upstream.connections, 3);
      for (let i = 2; i < 6; i++) assert.equal((await ask(connections)).body, String(i));
      assert.equal(upstream.connections, 3);
    });
  });

  it('are fresh on demand', async () => {
    await withConnections(answer, async (connections, upstream) => {
      await ask(connections);
      assert.equal((await ask(connections, request, true)).body, '1');
      assert.equal(upstream.connections, 2);
    });
  });

  it('are closed after a number of requests', async () => {
    await withConnections(
      answer,
      async (connections, upstream) => {
        for (let i = 0; i < 6; i++) assert.equal((await ask(connections)).body, String((i % 3) + 1));
        assert.equal(upstream.connections, 2);
        await eventually('the used up ones are closed', () => upstream.open === 0);
      },
      { requestsPerSocket: 3 },
    );
  });

  it('are not used when they have been idle for too long, and closed in the end', async () => {
    await withConnections(
      answer,
      async (connections, upstream) => {
        await ask(connections);
        await delay(60);
        assert.equal((await ask(connections)).body, '1');
        assert.equal(upstream.connections, 2);
        await eventually('the idle ones are closed', () => upstream.open === 0, 20_000);
      },
      { keepAliveMs: 50 },
    );
  });

  it('are not kept when the server keeps them for no longer than a margin', async () => {
    for (const [hint, connectionsWanted] of [
      ['timeout=1', 2],
      ['timeout=0, max=100', 2],
      ['max=5, timeout=60', 1],
    ] as const) {
      await withConnections(
        (exchange) => exchange.json(200, 1, { 'keep-alive': hint }),
        async (connections, upstream) => {
          await ask(connections);
          await ask(connections);
          assert.equal(upstream.connections, connectionsWanted, hint);
        },
      );
    }
  });

  it('that the server closes while they are idle are not used', async () => {
    await withConnections(
      (exchange) => {
        void answer(exchange);
        exchange.socket.end();
      },
      async (connections, upstream) => {
        for (let i = 0; i < 3; i++) {
          assert.equal((await ask(connections)).error, undefined);
          await eventually('it is gone', () => upstream.open === 0);
        }
        assert.equal(upstream.connections, 3);
      },
    );
  });

  it('on which something comes unasked are closed (reliability U14)', async () => {
    await withConnections(
      (exchange) => {
        void answer(exchange);
        setTimeout(() => exchange.json(200, 'poison'), 10);
      },
      async (connections, upstream) => {
        await ask(connections);
        await eventually('it is closed', () => upstream.open === 0);
        assert.equal((await ask(connections)).body, '1');
      },
    );
  });

  it('are not used again when the answer came before the request was sent', async () => {
    // It answers the head of a request whose body it never reads.
    const opened: Socket[] = [];
    const server = createServer((socket) => {
      opened.push(socket);
      socket.on('error', () => {});
      socket.once('data', () => {
        socket.pause();
        socket.write('HTTP/1.1 413 X\r\ncontent-length: 0\r\n\r\n');
      });
    });
    await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
    const { port } = server.address() as AddressInfo;
    const url = new URL(`http://127.0.0.1:${port}/`);
    const connections = new Connections({ url, ...defaults });
    const body = 'x'.repeat(20_000_000);
    const large = `POST /x HTTP/1.1\r\nhost: h\r\ncontent-length: ${body.length}\r\n\r\n${body}`;
    assert.equal((await ask(connections, large)).error, undefined);
    assert.equal((await ask(connections)).error, undefined);
    assert.equal(opened.length, 2);
    connections.close(new Error('the test is over'));
    for (const socket of opened) socket.destroy();
    await new Promise<void>((resolve) => server.close(() => resolve()));
  });

  it('send what comes in pieces, and are used again', async () => {
    const pieces = [Buffer.from('['), Buffer.alloc(3_000_000, '1'), Buffer.from(']')];
    const length = 3_000_002;
    let bytes = 0;
    const server = createServer((socket) => {
      socket.on('error', () => {});
      socket.on('data', (part) => {
        bytes += part.length;
        // A reader slower than the writer.
        socket.pause();
        setTimeout(() => socket.resume(), 1);
        if (bytes >= head.length + length) {
          bytes = 0;
          socket.write('HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok');
        }
      });
    });
    let opened = 0;
    server.on('connection', () => opened++);
    await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
    const url = new URL(`http://127.0.0.1:${(server.address() as AddressInfo).port}`);
    const connections = new Connections({ url, ...defaults });
    const head = `POST /x HTTP/1.1\r\nhost: h\r\ncontent-length: ${length}\r\n\r\n`;
    for (let i = 0; i < 2; i++)
      assert.equal(
        (await ask(connections, head, false, { [Symbol.asyncIterator]: () => piecesOf(pieces) })).body,
        'ok',
      );
    assert.equal(opened, 1);
    connections.close(new Error('the test is over'));
    await new Promise<void>((resolve) => server.close(() => resolve()));
  });

  it('ask for no more pieces when the answer has come, and are not used again', async () => {
    let asked = 0;
    async function* endless(): AsyncGenerator<Uint8Array> {
      for (;;) {
        asked++;
        await delay(1);
        yield Buffer.from('x');
      }
    }
    const answer = (exchange: { json(status: number, body: unknown): void }): void => exchange.json(413, {});
    await withConnections(answer, async (connections, upstream) => {
      // The server of the test answers when the declared length has come.
      const tooMuch = 'POST /x HTTP/1.1\r\nhost: h\r\ncontent-length: 3\r\n\r\n';
      await ask(connections, tooMuch, false, { [Symbol.asyncIterator]: endless });
      await delay(20);
      const then = asked;
      await delay(50);
      assert.equal(asked, then);
      await ask(connections);
      assert.equal(upstream.connections, 2);
    });
  });

  it('tell what broke them, and whether they had been used before', async () => {
    await withConnections(
      (exchange) => {
        if (exchange.onSocket === 1) void answer(exchange);
        else exchange.socket.destroy();
      },
      async (connections) => {
        await ask(connections);
        const { error, wasUsedBefore } = await ask(connections);
        assert.deepEqual([error?.code, wasUsedBefore], ['ECONNCLOSED', true]);
      },
    );
    await withConnections(
      (exchange) => exchange.reset(),
      async (connections) => {
        const { error, wasUsedBefore } = await ask(connections);
        assert.deepEqual([error?.code, wasUsedBefore], ['ECONNRESET', false]);
      },
    );
  });

  it('that cannot be opened in time are given up', async () => {
    // Accepts, but does not speak TLS.
    await withConnections(
      () => {},
      async (_, upstream) => {
        const url = new URL(`https://127.0.0.1:${upstream.port}/`);
        const slow = new Connections({ url, ...defaults, connectTimeoutMs: 50 });
        assert.equal((await ask(slow)).error?.code, 'ETIMEDOUT');
        await eventually('it is closed', () => upstream.open === 0);
      },
    );
  });

  it('that are closed tell waiting requests why', async () => {
    await withConnections(
      () => {},
      async (connections, upstream) => {
        const asked = ask(connections);
        await eventually('it has arrived', () => upstream.exchanges.length === 1);
        const reason = new Error('closed');
        connections.close(reason);
        assert.equal((await asked).error, reason);
        await eventually('it is closed', () => upstream.open === 0);
      },
    );
  });

  it('are encrypted where the URL says so, and the certificate is checked', { skip: !hasOpenssl }, async () => {
    const folder = mkdtempSync(join(tmpdir(), 'tokenhouse-tls-'));
    const made = spawnSync('openssl', [
      ...['req', '-x509', '-newkey', 'rsa:2048', '-nodes', '-days', '2', '-subj', '/CN=localhost'],
      ...['-addext', 'subjectAltName=DNS:localhost', '-keyout', join(folder, 'key'), '-out', join(folder, 'cert')],
    ]);
    assert.equal(made.status, 0, made.stderr.toString());
    const files = { key: readFileSync(join(folder, 'key')), cert: readFileSync(join(folder, 'cert')) };
    let opened = 0;
    const server = createTlsServer(files, (_, response) => response.end('secret'));
    server.on('secureConnection', () => opened++);
    server.on('tlsClientError', () => {});
    await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
    const { port } = server.address() as AddressInfo;
    const stranger = new Connections({ url: new URL(`https://localhost:${port}/`), ...defaults });
    assert.equal((await ask(stranger)).error?.code, 'DEPTH_ZERO_SELF_SIGNED_CERT');
    stranger.close(new Error('the test is over'));
    // What Node trusts is decided when it starts.
    const program = `
      import { Connections } from ${JSON.stringify(pathToFileURL(built('src/inference/engines/openai/connections.ts')))};
      const url = new URL('https://localhost:${port}/');
      const connections = new Connections({ url, ...${JSON.stringify(defaults)} });
      for (let i = 0; i < 2; i++) await new Promise((resolve, reject) => connections.send({ text: ${JSON.stringify(request)}, pieces: undefined }, {
        onBegin() {}, onReadEnd() {},
        onHead: (head) => process.stdout.write(String(head.status)),
        onBody: (bytes, from, to) => process.stdout.write(bytes.toString('utf8', from, to)),
        onOver: resolve, onBroken: reject,
      }));`;
    const child = spawn(process.execPath, ['--input-type=module', '-e', program], {
      env: { ...process.env, NODE_EXTRA_CA_CERTS: join(folder, 'cert') },
      stdio: ['ignore', 'pipe', 'inherit'],
    });
    let said = '';
    child.stdout.on('data', (text) => (said += String(text)));
    // Ends by itself: idle connections keep no process running.
    await new Promise((resolve) => child.on('close', resolve));
    assert.deepEqual([said, opened], ['200secret200secret', 1]);
    await new Promise<void>((resolve) => server.close(() => resolve()));
    rmSync(folder, { recursive: true });
  });
});
