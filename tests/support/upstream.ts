import { createServer, type AddressInfo, type Server, type Socket } from 'node:net';
import { setTimeout as delay } from 'node:timers/promises';

import { probeUserAgent } from '../../src/inference/engines/openai/probe.ts';

/** One request as it arrived, and the socket to answer on with any bytes at all. */
export interface UpstreamExchange {
  readonly method: string;
  readonly path: string;
  readonly headers: ReadonlyMap<string, string>;
  readonly body: string;
  readonly socket: Socket;
  /** How many requests this socket has carried, this one included. */
  readonly onSocket: number;
  /** Resolves when the client has closed the connection. */
  readonly closed: Promise<void>;
  write(bytes: string | Uint8Array): void;
  /** A whole JSON answer. */
  json(status: number, body: unknown, headers?: Readonly<Record<string, string>>): void;
  /** The head of a chunked event stream. */
  events(headers?: Readonly<Record<string, string>>): void;
  /** One HTTP chunk. */
  chunk(bytes: string | Uint8Array): void;
  /** The last HTTP chunk. */
  endChunks(): void;
  /** RST instead of FIN. */
  reset(): void;
}

export type UpstreamHandler = (exchange: UpstreamExchange) => void | Promise<void>;

/** A server that answers with scripted bytes on real sockets: for faults that no HTTP library would make. */
export class Upstream {
  readonly #server: Server;
  readonly #sockets = new Set<Socket>();
  readonly #handler: UpstreamHandler;
  readonly #isLookedAt: boolean;
  readonly exchanges: UpstreamExchange[] = [];
  connections = 0;

  private constructor(handler: UpstreamHandler, isLookedAt: boolean) {
    this.#handler = handler;
    this.#isLookedAt = isLookedAt;
    this.#server = createServer({ noDelay: true }, (socket) => this.#connected(socket));
  }

  /** `isLookedAt`: the handler answers what a service asks when it starts, too. */
  static async start(
    handler: UpstreamHandler,
    { host = '127.0.0.1', port = 0, isLookedAt = false } = {},
  ): Promise<Upstream> {
    const upstream = new Upstream(handler, isLookedAt);
    await new Promise<void>((resolve, reject) => {
      upstream.#server.once('error', reject);
      upstream.#server.listen(port, host, resolve);
    });
    return upstream;
  }

  get port(): number {
    return (this.#server.address() as AddressInfo).port;
  }

  get url(): string {
    return `http://127.0.0.1:${this.port}/v1`;
  }

  /** Sockets that are open now. */
  get open(): number {
    return this.#sockets.size;
  }

  async close(): Promise<void> {
    for (const socket of this.#sockets) socket.destroy();
    await new Promise<void>((resolve) => this.#server.close(() => resolve()));
  }

  #connected(socket: Socket): void {
    this.connections++;
    this.#sockets.add(socket);
    const closed = new Promise<void>((resolve) => {
      socket.on('close', () => {
        this.#sockets.delete(socket);
        resolve();
      });
    });
    socket.on('error', () => {});
    let buffer: Buffer = Buffer.alloc(0);
    let onSocket = 0;
    socket.on('data', (bytes) => {
      buffer = Buffer.concat([buffer, bytes]);
      for (;;) {
        const request = parseRequest(buffer);
        if (request === undefined) return;
        buffer = request.rest;
        onSocket++;
        const exchange = exchangeOf(request, socket, onSocket, closed);
        // A service looks at its backends when it starts. To tests that are about requests that is nothing that happens.
        if (!this.#isLookedAt && exchange.headers.get('user-agent') === probeUserAgent) {
          if (onSocket === 1) this.connections--;
          if (exchange.path.endsWith('/models')) exchange.json(200, { object: 'list', data: [] });
          else exchange.json(404, {});
          continue;
        }
        this.exchanges.push(exchange);
        void this.#handler(exchange);
      }
    });
  }
}

/** Waits until `condition` holds; fails when it does not within the time. */
export async function eventually(what: string, condition: () => boolean, withinMs = 5_000): Promise<number> {
  const start = performance.now();
  while (!condition()) {
    if (performance.now() - start > withinMs) throw new Error(`within ${withinMs} ms: ${what}`);
    await delay(1);
  }
  return performance.now() - start;
}

/** Data of one event, framed as servers do it. */
export function event(data: unknown): string {
  return `data: ${typeof data === 'string' ? data : JSON.stringify(data)}\n\n`;
}

/** A chunk of a chat completion with one choice. */
export function chatChunk(delta: unknown, finishReason: string | null = null, more: object = {}): string {
  return event({
    id: 'chatcmpl-1',
    object: 'chat.completion.chunk',
    created: 1,
    model: 'm',
    choices: [{ index: 0, delta, finish_reason: finishReason }],
    ...more,
  });
}

export function usageChunk(usage: unknown): string {
  return event({ id: 'chatcmpl-1', object: 'chat.completion.chunk', created: 1, model: 'm', choices: [], usage });
}

export interface ParsedRequest {
  readonly method: string;
  readonly path: string;
  readonly headers: ReadonlyMap<string, string>;
  readonly body: string;
  readonly rest: Buffer;
}

export function parseRequest(buffer: Buffer): ParsedRequest | undefined {
  const end = buffer.indexOf('\r\n\r\n');
  if (end === -1) return undefined;
  const [line = '', ...fields] = buffer.toString('latin1', 0, end).split('\r\n');
  const [method = '', path = ''] = line.split(' ');
  const headers = new Map(
    fields.map((field): [string, string] => {
      const colon = field.indexOf(':');
      return [field.slice(0, colon).toLowerCase(), field.slice(colon + 1).trim()];
    }),
  );
  const length = Number(headers.get('content-length') ?? 0);
  const bodyStart = end + 4;
  if (buffer.length < bodyStart + length) return undefined;
  const body = buffer.toString('utf8', bodyStart, bodyStart + length);
  return { method, path, headers, body, rest: buffer.subarray(bodyStart + length) };
}

function exchangeOf(request: ParsedRequest, socket: Socket, onSocket: number, closed: Promise<void>): UpstreamExchange {
  const write = (bytes: string | Uint8Array): void => {
    if (!socket.destroyed) socket.write(bytes);
  };
  const head = (status: number, headers: Readonly<Record<string, string>>): string =>
    `HTTP/1.1 ${status} X\r\n${Object.entries(headers)
      .map(([name, value]) => `${name}: ${value}\r\n`)
      .join('')}\r\n`;
  return {
    method: request.method,
    path: request.path,
    headers: request.headers,
    body: request.body,
    socket,
    onSocket,
    closed,
    write,
    json: (status, body, headers = {}) => {
      const text = JSON.stringify(body);
      const length = String(Buffer.byteLength(text));
      write(head(status, { 'content-type': 'application/json', 'content-length': length, ...headers }) + text);
    },
    events: (headers = {}) => {
      write(head(200, { 'content-type': 'text/event-stream', 'transfer-encoding': 'chunked', ...headers }));
    },
    chunk: (bytes) => {
      const data = typeof bytes === 'string' ? Buffer.from(bytes) : bytes;
      write(Buffer.concat([Buffer.from(`${data.length.toString(16)}\r\n`), data, Buffer.from('\r\n')]));
    },
    endChunks: () => write('0\r\n\r\n'),
    reset: () => socket.resetAndDestroy(),
  };
}
