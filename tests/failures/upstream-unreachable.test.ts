/** An upstream that cannot be connected to (reliability U1), or that drops a pooled connection (U4, U14). */
import assert from 'node:assert/strict';
import { createServer } from 'node:net';
import type { AddressInfo } from 'node:net';
import { after, before, test } from 'node:test';

import { verifyAndDispose, errorOf } from '../endings/endings-service.ts';
import { until } from '../support/service.ts';
import { chatChunk, event, Upstream } from '../support/upstream.ts';
import type { UpstreamHandler } from '../support/upstream.ts';
import {
  answerWell,
  askFor,
  assertAnswered,
  assertFailed,
  assertReported,
  promptTokens,
  remote,
  serviceBefore,
  settled,
  upstreamThat,
} from './upstream-service.ts';

let play: UpstreamHandler = (exchange) => answerWell(exchange);
const sound = await upstreamThat((exchange) => answerWell(exchange));
const pooled = await upstreamThat((exchange) => play(exchange));
/** Closes whatever is asked of it, also looks. */
const closing = await Upstream.start((exchange) => void exchange.socket.destroy());
const hangingUp = createServer((socket) => socket.destroy());
await new Promise<void>((resolve) => hangingUp.listen(0, '127.0.0.1', resolve));
/** Nobody is there at first; an address of its own, so that nobody else takes the port meanwhile. */
const lateHost = '127.0.0.8';
const latePort = await (async () => {
  const server = createServer();
  await new Promise<void>((resolve) => server.listen(0, lateHost, resolve));
  const { port } = server.address() as AddressInfo;
  await new Promise<void>((resolve) => server.close(() => resolve()));
  return port;
})();

const unreachable = {
  'refuses connections': 'http://127.0.0.1:1/v1',
  'has no address': 'http://nowhere.invalid/v1',
  'speaks no TLS': `https://127.0.0.1:${sound.port}/v1`,
  'closes at the request': closing.url,
  'closes at once': `http://127.0.0.1:${(hangingUp.address() as AddressInfo).port}/v1`,
} as const;
const names = Object.keys(unreachable) as (keyof typeof unreachable)[];

const service = serviceBefore([
  ...names.map((name, i) => remote(`alone-${i}`, [unreachable[name]])),
  ...names.map((name, i) => remote(`pair-${i}`, [unreachable[name], sound.url])),
  remote('late', [`http://${lateHost}:${latePort}/v1`]),
  remote('idle', ['http://127.0.0.1:1/v1']),
  remote('pooled', [pooled.url], 'vllm', ', max_concurrency: 1'),
]);
before(() => service.start());
after(async () => {
  await verifyAndDispose(service).finally(() =>
    Promise.all([sound, closing, pooled].map((upstream) => upstream.close())),
  );
  hangingUp.close();
});

names.forEach((name, i) => {
  test(`U1: ${name}: 502, charged 0; after three in a row 503 at once`, async () => {
    await settled(service, async (ledger) => {
      for (const stream of [true, false]) {
        const answer = await askFor(service, `alone-${i}`, stream);
        await assertFailed(ledger, answer, { code: 'backend_connect_error', status: 502, stream, delivered: 0 });
      }
      await assertReported(service, `alone-${i}-0`, 'cannot_connect', null);
      await askFor(service, `alone-${i}`, false);
      const refused = await askFor(service, `alone-${i}`, false);
      // A look at the end of the first pause may have been earlier than this; it finds nobody either.
      assert.equal(refused.status, 503);
      assert.equal(errorOf(refused.body).code, 'no_healthy_backends');
      assert.equal(errorOf(refused.body)['model'], `alone-${i}`);
    });
  });

  test(`U1: ${name}: another backend takes over, for one charge`, async () => {
    await settled(service, async (ledger) => {
      for (let round = 0; round < 5; round++) {
        const stream = round % 2 === 0;
        const row = await assertAnswered(ledger, await askFor(service, `pair-${i}`, stream), { text: 'Hello', stream });
        assert.deepEqual([row.backend, row.promptTokens, row.completionTokens], [`pair-${i}-1`, promptTokens, 2]);
      }
    });
  });
});

test('U1: a backend that comes back is found by the service itself, not by a request', async () => {
  for (let round = 0; round < 3; round++) await askFor(service, 'late', false);
  const asked: string[] = [];
  const late = await Upstream.start(
    (exchange) => {
      asked.push(`${exchange.method} ${exchange.path}`);
      if (exchange.path === '/tokenize') exchange.json(200, { count: promptTokens });
      else if (exchange.method === 'GET') exchange.json(200, { data: [] });
      else answerWell(exchange);
    },
    { host: lateHost, port: latePort },
  );
  try {
    await until(() => asked.length > 0, 60_000);
    assert.equal(asked[0], 'GET /v1/models');
    await settled(service, async (ledger) => {
      await until(async () => {
        const answer = await askFor(service, 'late', true);
        if (answer.status === 503) return false;
        await assertAnswered(ledger, answer, { text: 'Hello', stream: true });
        return true;
      });
    });
  } finally {
    await late.close();
  }
});

test('U4: a pooled connection that closes in the moment of its use costs nobody anything', async () => {
  play = (exchange) => {
    if (exchange.onSocket > 1) exchange.socket.destroy();
    else answerWell(exchange);
  };
  await settled(service, async (ledger) => {
    for (let round = 0; round < 6; round++) {
      const stream = round % 2 === 0;
      const row = await assertAnswered(ledger, await askFor(service, 'pooled', stream), { text: 'Hello', stream });
      assert.equal(row.completionTokens, 2);
    }
  });
});

const poison = `${chatChunk({ content: 'poison' })}${chatChunk({}, 'stop')}${event('[DONE]')}`;
test('a server that nobody has used is not shown as ready when nobody answers there', async () => {
  const shown = async (): Promise<string | undefined> =>
    /^tokenhouse_backend_ready\{[^}]*model="idle"[^}]*\} (\d)$/m.exec(
      await (await fetch(`${service.accountUrl}/metrics`)).text(),
    )?.[1];
  await until(async () => (await shown()) === '0', 60_000);
  // It may still be tried: requests decide by themselves (reliability U1).
  const answer = await askFor(service, 'idle', false);
  assert.equal(answer.status, 502);
});

const okHead = 'HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n';
const chunked = (text: string): string => `${Buffer.byteLength(text).toString(16)}\r\n${text}\r\n0\r\n\r\n`;
const whole = `${chatChunk({ content: 'Hello' })}${chatChunk({}, 'stop', { usage: { prompt_tokens: 11, completion_tokens: 1 } })}${event('[DONE]')}`;
const second = `${okHead}content-length: ${poison.length}\r\n\r\n${poison}`;

/** What comes over one connection for the first tenant's request, and whether its answer can be believed. */
const smuggling: readonly (readonly [string, string])[] = [
  ['a second answer behind the first', `${okHead}content-length: ${whole.length}\r\n\r\n${whole}${second}`],
  [
    'content-length and chunked together',
    `${okHead}content-length: 5\r\ntransfer-encoding: chunked\r\n\r\n${chunked(whole)}${second}`,
  ],
  ['two lengths', `${okHead}content-length: ${whole.length}\r\ncontent-length: 5\r\n\r\n${whole}${second}`],
  ['a folded header', `${okHead}x-a: b\r\n c: d\r\ncontent-length: ${whole.length}\r\n\r\n${whole}${second}`],
  [
    'line feeds alone',
    `${okHead.replaceAll('\r\n', '\n')}content-length: ${whole.length}\n\n${whole}${second.replaceAll('\r\n', '\n')}`,
  ],
];

for (const [name, bytes] of smuggling) {
  test(`U14: ${name}: an error, or the first answer only; the next tenant gets its own`, async () => {
    const created = await service.command('keys', 'create', '--json');
    const other = (JSON.parse(created.stdout) as { key: string }).key;
    await settled(service, async (ledger) => {
      for (const stream of [true, false]) {
        play = (exchange) => exchange.write(bytes);
        const first = await askFor(service, 'pooled', stream);
        assert.ok(!first.body.includes('poison'), first.body);
        if (first.status === 200 && !first.body.includes('"error"')) {
          await assertAnswered(ledger, first, { text: 'Hello', stream });
        } else assert.equal((await ledger.row(first.id)).costMicrocents, 0n);
        play = (exchange) => answerWell(exchange);
        for (let round = 0; round < 3; round++) {
          const next = await askFor(service, 'pooled', stream, {}, other);
          await assertAnswered(ledger, next, { text: 'Hello', stream });
        }
      }
    });
  });
}
