/** The faults of an upstream (reliability U4 to U14) that fail a request: what it does, and what becomes of the request. */
import type { ErrorCode } from '../../src/platform/errors.ts';
import { chatChunk, event } from '../support/upstream.ts';
import type { UpstreamHandler } from '../support/upstream.ts';
import { endWell, secret } from './upstream-service.ts';

export interface UpstreamFault {
  readonly id: string;
  readonly name: string;
  readonly play: UpstreamHandler;
  readonly code: ErrorCode;
  readonly status: number;
  /** Tokens that the client of a stream has got before it fails. */
  readonly delivered: number;
  /** What the operator sees, and the upstream's status, where there is one. */
  readonly incident: string;
  readonly upstreamStatus: number | null;
}

const httpError = { code: 'backend_http_error', status: 502 } as const;
const good = chatChunk({ content: 'Hel' });
const closeDelimited = 'HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n';

const cutBeforeText = (name: string, play: UpstreamHandler, upstreamStatus: number | null): UpstreamFault => ({
  ...{ id: 'U4', name, play, ...httpError, delivered: 0 },
  ...{ incident: 'connection_broke', upstreamStatus },
});

/** After the first word has gone out. */
const inAnswer = (id: string, name: string, incident: string, play: UpstreamHandler): UpstreamFault => ({
  ...{ id, name, play, ...httpError, delivered: 1 },
  ...{ incident, upstreamStatus: 200 },
});

const unreadable: readonly (readonly [string, string | Buffer])[] = [
  ['JSON that is cut', 'data: {"choices":[{"index":0,"delta":{"content":"lo"\n\n'],
  ['no JSON', 'data: nonsense\n\n'],
  ['a number', 'data: 17\n\n'],
  ['a line that is no event', `{"error":{"message":"${secret}"}}\n\n`],
  [
    'invalid UTF-8 in a text',
    Buffer.concat([
      Buffer.from('data: {"choices":[{"index":0,"delta":{"content":"'),
      Buffer.from([0xc3, 0x28]),
      Buffer.from('"}}]}\n\n'),
    ]),
  ],
  ['invalid UTF-8', Buffer.from([0xff, 0xfe])],
  ['a content that is no text', event({ choices: [{ index: 0, delta: { content: 17 } }] })],
  ['a delta that is a text', event({ choices: [{ index: 0, delta: 'text' }] })],
  ['choices that are no list', event({ choices: 'none' })],
  ['a finish by error', event({ choices: [{ index: 0, delta: {}, finish_reason: 'error' }] })],
];

const errorsInAnswer: readonly (readonly [string, string])[] = [
  ['an event named error', `event: error\ndata: ${JSON.stringify({ message: secret })}\n\n`],
  ['an error object', event({ error: { message: secret, code: 500 } })],
  ['an error object of the older form', event({ object: 'error', message: secret, code: 400 })],
];

const call = (fields: object): string => chatChunk({ tool_calls: [fields] });
const named = { name: 'f', arguments: '{}' };
const illegal: readonly (readonly [string, string])[] = [
  ['text after the finish reason', chatChunk({}, 'stop') + chatChunk({ content: 'late' })],
  ['a tool call with index −1', call({ index: -1, id: 'a', function: named })],
  ['a tool call with index 1e9', call({ index: 1e9, id: 'a', function: named })],
  ['a tool name of 1 MB', call({ index: 0, id: 'a', function: { name: 'x'.repeat(1_000_000), arguments: '' } })],
  ['a choice nobody asked for', event({ choices: [{ index: 1, delta: { content: 'x' } }] })],
  ['a choice with index 1e9', event({ choices: [{ index: 1e9, delta: { content: 'x' } }] })],
];

const page = `<html>${secret}</html>`;
const heads: readonly (readonly [string, string, string])[] = [
  ['200 OK', 'text/html', page],
  ['200 OK', 'application/json', JSON.stringify({ error: { message: secret } })],
  ['204 No Content', 'text/plain', ''],
  ['301 Moved', 'text/html\r\nlocation: /v1/elsewhere', page],
  ['307 Moved', 'text/html\r\nlocation: http://127.0.0.1:1/v1/elsewhere', page],
  ['400 Bad', 'application/json', JSON.stringify({ error: { message: secret } })],
  ['401 Unauthorized', 'application/json', JSON.stringify({ error: { message: secret, code: 'invalid_api_key' } })],
  ['402 Pay', 'application/json', JSON.stringify({ error: { message: secret, code: 'insufficient_credits' } })],
  ['403 Forbidden', 'text/html', page],
  ['404 Not Found', 'application/json', JSON.stringify({ error: { message: secret, code: 'model_not_found' } })],
  ['500 Broken', 'text/html', page],
  ['502 Proxy', 'text/html', page],
  ['599 Odd', 'application/octet-stream', `${secret}\x00`],
];

export const upstreamFaults: readonly UpstreamFault[] = [
  cutBeforeText(
    'resets after its head',
    (exchange) => {
      exchange.events();
      setTimeout(() => exchange.reset(), 20);
    },
    200,
  ),
  cutBeforeText(
    'closes after the role chunk',
    (exchange) => {
      exchange.events();
      exchange.chunk(chatChunk({ role: 'assistant', content: '' }));
      setTimeout(() => exchange.socket.end(), 20);
    },
    200,
  ),
  cutBeforeText(
    'closes in its head',
    (exchange) => {
      exchange.write('HTTP/1.1 200 X\r\n');
      setTimeout(() => exchange.socket.destroy(), 20);
    },
    null,
  ),

  inAnswer('U5', 'resets after the first event', 'connection_broke', (exchange) => {
    exchange.events();
    exchange.chunk(good);
    setTimeout(() => exchange.reset(), 50);
  }),

  ...(
    [
      [
        'its last chunk',
        (exchange) => {
          exchange.events();
          exchange.chunk(good);
          exchange.endChunks();
        },
      ],
      ['closing', (exchange) => exchange.socket.end(closeDelimited + good)],
      ['[DONE] without a finish', (exchange) => exchange.socket.end(closeDelimited + good + event('[DONE]'))],
      ['closing in an event', (exchange) => exchange.socket.end(`${closeDelimited}${good}data: {"choices":[{"ind`)],
    ] satisfies readonly (readonly [string, UpstreamHandler])[]
  ).map(([name, play]) => inAnswer('U6', `ends early, by ${name}`, 'unreadable_answer', play)),

  ...unreadable.map(([name, bytes]) =>
    inAnswer('U8', `sends ${name}`, 'unreadable_answer', (exchange) => {
      exchange.events();
      exchange.chunk(Buffer.concat([Buffer.from(good), Buffer.from(bytes)]));
      endWell(exchange);
    }),
  ),
  ...errorsInAnswer.map(([name, text]) => ({
    ...inAnswer('U8', `sends ${name}`, 'error_in_answer', (exchange) => {
      exchange.events();
      exchange.chunk(good + text);
      endWell(exchange);
    }),
    upstreamStatus: name.endsWith('form') ? 400 : name.endsWith('object') ? 500 : 200,
  })),

  ...illegal.map(([name, text]) =>
    inAnswer('U11', `sends ${name}`, 'unreadable_answer', (exchange) => {
      exchange.events();
      exchange.chunk(good + text);
      endWell(exchange);
    }),
  ),

  ...heads.map(([head, type, body]): UpstreamFault => ({
    ...{ id: 'U12', name: `answers ${head} with ${type.split('\r\n', 1)[0]}`, ...httpError, delivered: 0 },
    ...{ incident: type === 'application/json' && head === '200 OK' ? 'error_in_answer' : 'http_status' },
    // The operator's to mend, so the client is not told to try again.
    ...(head.startsWith('404') ? { code: 'no_healthy_backends', status: 503, incident: 'not_found' } : {}),
    upstreamStatus: Number(head.slice(0, 3)),
    play: (exchange) =>
      exchange.write(
        `HTTP/1.1 ${head}\r\ncontent-type: ${type}\r\n${head.startsWith('204') ? '' : `content-length: ${Buffer.byteLength(body)}\r\n`}\r\n${body}`,
      ),
  })),
  {
    ...{ id: 'U12', name: 'speaks another language than HTTP', ...httpError, delivered: 0 },
    ...{ incident: 'connection_broke', upstreamStatus: null },
    play: (exchange) => exchange.write(`SSH-2.0-${secret}\r\n`),
  },
  {
    ...{ id: 'U12', name: 'sends 20 KB of headers', ...httpError, delivered: 0 },
    ...{ incident: 'connection_broke', upstreamStatus: null },
    play: (exchange) => exchange.write(`HTTP/1.1 200 OK\r\n${`x-filler: ${'x'.repeat(1_000)}\r\n`.repeat(20)}\r\n`),
  },
  {
    ...{ id: 'U12', name: 'compresses, unasked', ...httpError, delivered: 0 },
    ...{ incident: 'http_status', upstreamStatus: 200 },
    play: (exchange) => {
      exchange.events({ 'content-encoding': 'gzip' });
      exchange.chunk(good);
      exchange.endChunks();
    },
  },
];
