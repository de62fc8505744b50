import { readFileSync } from 'node:fs';
import type { AddressInfo } from 'node:net';
import { createServer } from 'node:tls';
import type { Server, TLSSocket } from 'node:tls';

import { inRepository } from '../support/repository.ts';

const pem = (name: string): string => readFileSync(inRepository('tests/fixtures/tls', name), 'utf8');

/** The authority of the certificates that `HttpsServer` has: images.test, *.images.test and 127.0.0.1. */
export const testAuthority = (): string => pem('ca.pem');
export const testAuthorityFile = (): string => inRepository('tests/fixtures/tls/ca.pem');

export interface HttpsRequest {
  readonly path: string;
  /** Name by which the connection was asked for, in TLS. */
  readonly serverName: string | false;
  /** All lines of the head after the first. */
  readonly fields: readonly string[];
  readonly socket: TLSSocket;
}

/** Answers with any bytes at all over TLS, and remembers who connected. */
export class HttpsServer {
  readonly #server: Server;
  readonly #sockets = new Set<TLSSocket>();
  readonly requests: HttpsRequest[] = [];
  /** Connections of TCP, whether they got as far as TLS or not. */
  connections = 0;

  private constructor(answer: (request: HttpsRequest) => void) {
    this.#server = createServer({ cert: pem('cert.pem'), key: pem('key.pem') }, (socket) => {
      let head = '';
      socket.on('error', () => {});
      socket.on('data', (bytes) => {
        head += bytes.toString('latin1');
        if (!head.includes('\r\n\r\n')) return;
        const [line = '', ...fields] = head.split('\r\n\r\n')[0]!.split('\r\n');
        head = '';
        const serverName = (socket as TLSSocket & { servername?: string | false }).servername ?? false;
        const request = { path: line.split(' ')[1] ?? '', serverName, fields, socket };
        this.requests.push(request);
        answer(request);
      });
    });
    this.#server.on('connection', (socket: TLSSocket) => {
      this.connections++;
      this.#sockets.add(socket);
      socket.on('error', () => {});
      socket.on('close', () => this.#sockets.delete(socket));
    });
    this.#server.on('tlsClientError', () => {});
  }

  static async start(
    answer: (request: HttpsRequest) => void,
    { host = '127.0.0.1', port = 0 } = {},
  ): Promise<HttpsServer> {
    const server = new HttpsServer(answer);
    await new Promise<void>((resolve, reject) => {
      server.#server.once('error', reject);
      server.#server.listen(port, host, resolve);
    });
    return server;
  }

  get port(): number {
    return (this.#server.address() as AddressInfo).port;
  }

  /** Connections that are open now. */
  get open(): number {
    return this.#sockets.size;
  }

  async close(): Promise<void> {
    for (const socket of this.#sockets) socket.destroy();
    await new Promise<void>((resolve) => this.#server.close(() => resolve()));
  }
}

/** A whole answer. */
export function reply(
  { socket }: HttpsRequest,
  body: Buffer | string,
  head: Readonly<Record<string, string | number>> = {},
  status = 200,
): void {
  const fields = { 'content-type': 'image/png', 'content-length': Buffer.byteLength(body), ...head };
  const lines = Object.entries(fields).map(([name, value]) => `${name}: ${value}\r\n`);
  socket.write(`HTTP/1.1 ${status} X\r\n${lines.join('')}\r\n`);
  socket.write(body);
}

export const redirect = (request: HttpsRequest, location: string, status = 302): void =>
  reply(request, '', { location }, status);
