import { randomBytes } from 'node:crypto';
import { connect } from 'node:net';
import type { Socket } from 'node:net';

/** A client that does with its socket what no HTTP library would: stops anywhere, and leaves by FIN or by RST. */
export class RawClient {
  readonly #socket: Socket;
  #chunks: Buffer[] = [];
  #bytes = 0;
  #isClosed = false;
  readonly #keepsBytes: boolean;
  /** Resolves when the connection is gone, no matter which side ended it. */
  readonly closed: Promise<void>;

  private constructor(socket: Socket, keepsBytes: boolean) {
    this.#socket = socket;
    this.#keepsBytes = keepsBytes;
    socket.on('error', () => {});
    socket.on('data', (chunk) => {
      this.#bytes += chunk.length;
      if (this.#keepsBytes) this.#chunks.push(chunk);
    });
    this.closed = new Promise((resolve) => {
      socket.on('close', () => {
        this.#isClosed = true;
        resolve();
      });
    });
  }

  /** `keepsBytes: false` only counts what arrives, for answers of hundreds of megabytes. Rejects when nobody listens. */
  static connect(url: string, { keepsBytes = true } = {}): Promise<RawClient> {
    const { hostname, port } = new URL(url);
    return new Promise((resolve, reject) => {
      const socket = connect({ host: hostname, port: Number(port) });
      socket.once('error', reject);
      socket.once('connect', () => {
        socket.off('error', reject);
        resolve(new RawClient(socket, keepsBytes));
      });
    });
  }

  /** By this the other side knows the connection. */
  get localPort(): number {
    return this.#socket.localPort ?? 0;
  }

  get isClosed(): boolean {
    return this.#isClosed;
  }

  get bytesReceived(): number {
    return this.#bytes;
  }

  /** Everything that has arrived, head and chunk sizes included. */
  get text(): string {
    return Buffer.concat(this.#chunks).toString();
  }

  /** The last bytes that have arrived, at most this many: cheap to ask while a long answer comes. */
  tail(length: number): string {
    let text = '';
    for (let i = this.#chunks.length - 1; i >= 0 && text.length < length; i--) {
      text = this.#chunks[i]!.subarray(-length).toString('latin1') + text;
    }
    return text.slice(-length);
  }

  /** 0 before the status line. */
  get status(): number {
    return Number(/^HTTP\/1\.1 (\d{3})/.exec(this.#chunks[0]?.toString('latin1') ?? '')?.[1] ?? 0);
  }

  /** Data of the events so far. */
  get events(): readonly string[] {
    return [...this.text.matchAll(/^data: (.*)$/gm)].map((match) => match[1] ?? '');
  }

  send(text: string): void {
    this.#socket.write(text);
  }

  /** Stops reading; the kernel's buffers fill, then the sender's. */
  pause(): void {
    this.#socket.pause();
  }

  resume(): void {
    this.#socket.resume();
  }

  /** FIN: "nothing more comes from me"; what comes back is still read. */
  finish(): void {
    this.#socket.end();
  }

  /** FIN, and nobody there any more: as `finish` to the other side, until it writes. */
  close(): void {
    this.#socket.destroy();
  }

  /** RST, as when a process is killed with data unread. */
  reset(): void {
    this.#socket.resetAndDestroy();
  }
}

/** An id of the service's own form, which it echoes and records as it is. */
export const newRequestId = (): string => `req_${randomBytes(6).toString('hex')}`;

/** The bytes of a chat completion request. */
export function chatBytes(key: string, requestId: string, body: unknown): string {
  const json = JSON.stringify(body);
  return (
    `POST /v1/chat/completions HTTP/1.1\r\nhost: test\r\nauthorization: Bearer ${key}\r\nx-request-id: ${requestId}\r\n` +
    `content-type: application/json\r\ncontent-length: ${Buffer.byteLength(json)}\r\n\r\n${json}`
  );
}
