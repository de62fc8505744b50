import { connect } from 'node:net';
import type { Socket } from 'node:net';
import { slowness } from '../../support/busy.ts';

/** One HTTP answer, as it came over the socket. */
export interface RawAnswer {
  readonly status: number;
  /** Lower-case names; repeated headers joined with `, `. */
  readonly headers: Readonly<Record<string, string>>;
  readonly body: string;
  /** The body as JSON. Fails the test when it is not JSON. */
  json(): Readonly<Record<string, unknown>>;
}

export interface RawRequest {
  readonly method?: string;
  readonly path?: string;
  /** In this order and spelling; `host` and `content-length` are added unless they are here. */
  readonly headers?: readonly (readonly [string, string])[];
  readonly body?: string | Uint8Array;
}

const answerTimeoutMs = 20_000 * slowness;

/** A connection that sends any bytes at all and reads the answers itself: for what an HTTP library would refuse to do. */
export class RawConnection {
  readonly socket: Socket;
  /** Everything that has been received, as latin1, without the answers that were read. */
  #received = '';
  #isEnded = false;
  #error: Error | undefined;

  private constructor(socket: Socket) {
    this.socket = socket;
    socket.setEncoding('latin1');
    socket.on('data', (text: string) => (this.#received += text));
    socket.on('end', () => (this.#isEnded = true));
    socket.on('close', () => (this.#isEnded = true));
    socket.on('error', (error) => (this.#error = error));
  }

  static open(url: string): Promise<RawConnection> {
    const { hostname, port } = new URL(url);
    return new Promise((resolve, reject) => {
      const socket = connect({ host: hostname, port: Number(port), allowHalfOpen: true });
      socket.once('error', reject);
      socket.once('connect', () => {
        socket.off('error', reject);
        resolve(new RawConnection(socket));
      });
    });
  }

  /** The other side has ended the connection. */
  get isEnded(): boolean {
    return this.#isEnded;
  }

  /** What has come and has not been read as an answer. */
  get received(): string {
    return this.#received;
  }

  write(bytes: string | Uint8Array): void {
    this.socket.write(bytes);
  }

  /** Waits until the other side takes more bytes, or has answered or ended. */
  async drained(): Promise<void> {
    await this.waitFor(() => !this.socket.writableNeedDrain || this.#received !== '' || this.#isEnded);
  }

  /** Reads the next answer whole. `withoutBody`: an answer to HEAD. */
  async answer({ withoutBody = false } = {}): Promise<RawAnswer> {
    await this.waitFor(() => this.#received.includes('\r\n\r\n') || this.#isEnded);
    const end = this.#received.indexOf('\r\n\r\n');
    if (end < 0) throw new Error(`no answer, but ${JSON.stringify(this.#received)} ${this.#error?.message ?? ''}`);
    const { status, headers } = parseHead(this.#received.slice(0, end));
    this.#received = this.#received.slice(end + 4);
    const hasNone = withoutBody || status === 100 || status === 204;
    const body = hasNone ? '' : await this.#body(headers);
    const text = Buffer.from(body, 'latin1').toString('utf8');
    return { status, headers, body: text, json: () => JSON.parse(text) as Record<string, unknown> };
  }

  /** Waits for a condition on what has come; fails when it does not hold in time. */
  async waitFor(condition: () => boolean): Promise<void> {
    const deadline = performance.now() + answerTimeoutMs;
    while (!condition()) {
      if (performance.now() > deadline) {
        throw new Error(`not so in time: ${condition.toString()}; received ${JSON.stringify(this.#received)}`);
      }
      await new Promise((resolve) => setTimeout(resolve, 2));
    }
  }

  close(): void {
    this.socket.destroy();
  }

  async #body(headers: Readonly<Record<string, string>>): Promise<string> {
    if (headers['transfer-encoding'] === 'chunked') return await this.#chunks();
    const { 'content-length': length } = headers;
    if (length === undefined) await this.waitFor(() => this.#isEnded);
    return await this.#take(length === undefined ? this.#received.length : Number(length));
  }

  async #chunks(): Promise<string> {
    let text = '';
    for (;;) {
      await this.waitFor(() => this.#received.includes('\r\n') || this.#isEnded);
      const end = this.#received.indexOf('\r\n');
      if (end < 0) throw new Error('the answer was cut between chunks');
      const size = Number.parseInt(this.#received.slice(0, end), 16);
      await this.#take(end + 2);
      text += await this.#take(size);
      await this.#take(2);
      if (size === 0) return text;
    }
  }

  async #take(length: number): Promise<string> {
    await this.waitFor(() => this.#received.length >= length || this.#isEnded);
    if (this.#received.length < length) throw new Error(`the answer was cut: ${JSON.stringify(this.#received)}`);
    const text = this.#received.slice(0, length);
    this.#received = this.#received.slice(length);
    return text;
  }
}

/** One request on a connection of its own. */
export async function exchange(url: string, request: RawRequest): Promise<RawAnswer> {
  const connection = await RawConnection.open(url);
  try {
    connection.write(requestBytes(url, request));
    return await connection.answer({ withoutBody: request.method === 'HEAD' });
  } finally {
    connection.close();
  }
}

/** The bytes of a request. */
export function requestBytes(url: string, { method = 'GET', path = '/', headers = [], body }: RawRequest): Buffer {
  const bytes = body === undefined ? undefined : typeof body === 'string' ? Buffer.from(body) : Buffer.from(body);
  const names = new Set(headers.map(([name]) => name.toLowerCase()));
  const lines = [`${method} ${path} HTTP/1.1`];
  if (!names.has('host')) lines.push(`Host: ${new URL(url).host}`);
  for (const [name, value] of headers) lines.push(`${name}: ${value}`);
  if (bytes !== undefined && !names.has('content-length') && !names.has('transfer-encoding')) {
    lines.push(`Content-Length: ${bytes.length}`);
  }
  const head = Buffer.from(`${lines.join('\r\n')}\r\n\r\n`, 'latin1');
  return bytes === undefined ? head : Buffer.concat([head, bytes]);
}

/** One chunk of a chunked body. */
export const bodyChunk = (bytes: Uint8Array): Buffer =>
  Buffer.concat([Buffer.from(`${bytes.length.toString(16)}\r\n`), bytes, Buffer.from('\r\n')]);

function parseHead(head: string): { readonly status: number; readonly headers: Record<string, string> } {
  const [statusLine = '', ...lines] = head.split('\r\n');
  const headers: Record<string, string> = {};
  for (const line of lines) {
    const colon = line.indexOf(':');
    const name = line.slice(0, colon).toLowerCase();
    const value = line.slice(colon + 1).trim();
    headers[name] = headers[name] === undefined ? value : `${headers[name]}, ${value}`;
  }
  return { status: Number(statusLine.split(' ')[1]), headers };
}
