import { connect as connectTcp, isIP, type OnReadOpts as OnRead, type Socket } from 'node:net';
import { connect as connectTls } from 'node:tls';
import { AnswerReader, HttpFault, LastHead, type AnswerHead, type AnswerTaker } from './answer-reader.ts';

export interface ConnectionsOptions {
  /** Only the origin is used. */
  readonly url: URL;
  /** The server's name, if the URL has its address. */
  readonly serverName?: string | undefined;
  /** Time limit for establishing a connection, including TLS. */
  readonly connectTimeoutMs: number;
  /** Maximum idle time after which a connection is no longer used. */
  readonly keepAliveMs: number;
  /** Maximum requests per connection; `undefined`: no limit. */
  readonly requestsPerSocket: number | undefined;
}

export interface OutgoingRequest {
  /** The head, and the body or the beginning of it. */
  readonly text: string;
  /** The rest, sent as fast as the server reads. Read again if the request is resent. */
  readonly pieces: AsyncIterable<Uint8Array> | undefined;
}

/** Receives the events of one request and its answer. Nothing follows `onOver` or `onBroken`. */
export interface AnswerHandler {
  /** The first byte of an answer has arrived. */
  onBegin(): void;
  onHead(head: AnswerHead): void;
  /** Bytes of the body, only valid during the call. */
  onBody(bytes: Buffer, from: number, to: number): void;
  /** Everything from one read of the socket has been delivered. */
  onReadEnd(): void;
  /** The answer is complete. */
  onOver(): void;
  /** The answer is incomplete and will never be completed. `wasUsedBefore`: the connection had carried other requests. */
  onBroken(error: Error, wasUsedBefore: boolean): void;
}

/** One request that has been sent. */
export interface Call {
  pause(): void;
  resume(): void;
  /** Closes its connection immediately; its handler is not called any more. */
  abandon(): void;
}

/** The code of a connection that ended before the answer did, without a system error. */
export const connectionClosed = 'ECONNCLOSED';

class ConnectionClosed extends Error {
  override readonly name = 'ConnectionClosed';
  readonly code = connectionClosed;
}

class ConnectTimeout extends Error {
  override readonly name = 'ConnectTimeout';
  readonly code = 'ETIMEDOUT';
}

/** Maximum bytes of one read. */
const readBytes = 16 * 1024;
/**
 * One for all connections without TLS: a read is over when its callback returns, before the system is asked for the next one. A buffer for
 * each was a third of the memory of a running stream. TLS may hand over decrypted bytes while others are written.
 */
const sharedBuffer = Buffer.allocUnsafeSlow(readBytes);
const sweepMs = 1_000;
/** Safety margin: a server may close a connection up to this much earlier than it says, as seen from here. */
const hintMarginMs = 1_000;

/**
 * Connections to one server over HTTP/1.1, one request at a time on each. The most recently used one is used next, so that few stay open.
 * It never waits for a connection and never opens more than there are requests: its owner decides who may send
 * (docs/decisions/006-own-http-client.md).
 */
export class Connections {
  readonly #options: ConnectionsOptions;
  /** Idle connections, the most recently used last. */
  readonly #idle: Connection[] = [];
  readonly #all = new Set<Connection>();
  readonly #heads = new LastHead();
  #session: Buffer | undefined;
  #sweeper: NodeJS.Timeout | undefined;
  #isClosed = false;

  constructor(options: ConnectionsOptions) {
    this.#options = options;
  }

  /** Sends a request. `isFresh`: on a connection that has not carried any request. */
  send(request: OutgoingRequest, handler: AnswerHandler, isFresh = false): Call {
    if (this.#isClosed) throw new Error('the connections are closed');
    const connection = (isFresh ? undefined : this.#takeIdle()) ?? this.#open();
    return connection.send(request, handler);
  }

  /** Closes all connections; requests in progress fail with `error`. */
  close(error: Error): void {
    this.#isClosed = true;
    clearInterval(this.#sweeper);
    for (const connection of [...this.#all]) connection.close(error);
  }

  #takeIdle(): Connection | undefined {
    const nowMs = performance.now();
    for (;;) {
      const connection = this.#idle.pop();
      if (connection === undefined || connection.isUsable(nowMs)) return connection;
      connection.close();
    }
  }

  #open(): Connection {
    const connection = new Connection((onread) => this.#connect(onread), this.#options, {
      heads: this.#heads,
      idle: () => this.#idle.push(connection),
      gone: () => this.#forget(connection),
    });
    this.#all.add(connection);
    this.#sweeper ??= setInterval(() => this.#sweep(), sweepMs).unref();
    return connection;
  }

  #connect(onread: OnRead): Socket {
    const { url, serverName } = this.#options;
    const isTls = url.protocol === 'https:';
    const host = url.hostname.replace(/^\[|\]$/g, '');
    const port = url.port === '' ? (isTls ? 443 : 80) : Number(url.port);
    const common = { host, port, noDelay: true, keepAlive: true, keepAliveInitialDelay: 60_000, onread };
    if (!isTls) return connectTcp(common);
    const socket = connectTls({
      ...common,
      ...(serverName !== undefined ? { servername: serverName } : isIP(host) === 0 ? { servername: host } : {}),
      ALPNProtocols: ['http/1.1'],
      ...(this.#session === undefined ? {} : { session: this.#session }),
    });
    socket.on('session', (session) => (this.#session = session));
    return socket;
  }

  #forget(connection: Connection): void {
    this.#all.delete(connection);
    const place = this.#idle.indexOf(connection);
    if (place !== -1) this.#idle.splice(place, 1);
    if (this.#all.size > 0) return;
    clearInterval(this.#sweeper);
    this.#sweeper = undefined;
  }

  #sweep(): void {
    const nowMs = performance.now();
    for (const connection of this.#idle.filter((each) => !each.isUsable(nowMs))) connection.close();
  }
}

interface Owner {
  readonly heads: LastHead;
  /** Called when it can carry another request. */
  readonly idle: () => void;
  /** Called when it is closed, or being closed. */
  readonly gone: () => void;
}

/**
 * - `idle`: just opened, or waiting for the next request.
 * - `asked`: a request was sent, and nothing has come back yet.
 * - `answering`: bytes of the answer have arrived.
 * - `gone`: closed, or being closed.
 */
type State = 'idle' | 'asked' | 'answering' | 'gone';

class Connection implements Call, AnswerTaker {
  readonly #socket: Socket;
  readonly #options: ConnectionsOptions;
  readonly #owner: Owner;
  readonly #connectTimer: NodeJS.Timeout;
  #state: State = 'idle';
  #handler: AnswerHandler | undefined;
  #reader: AnswerReader | undefined;
  #requests = 0;
  #usableUntilMs = 0;
  #isPaused = false;
  /** Whether parts of the request are still to be written. */
  #isWriting = false;

  constructor(connect: (onread: OnRead) => Socket, options: ConnectionsOptions, owner: Owner) {
    this.#options = options;
    this.#owner = owner;
    const callback = (length: number, bytes: Uint8Array): boolean => {
      this.#read(bytes as Buffer, length);
      return true;
    };
    const isTls = options.url.protocol === 'https:';
    this.#socket = connect({ buffer: isTls ? Buffer.allocUnsafeSlow(readBytes) : sharedBuffer, callback });
    this.#connectTimer = setTimeout(
      () => this.close(new ConnectTimeout('the connection took too long')),
      options.connectTimeoutMs,
    );
    this.#socket.once(isTls ? 'secureConnect' : 'connect', () => clearTimeout(this.#connectTimer));
    this.#socket.on('error', (error) => this.close(error));
    this.#socket.on('end', () => this.#end());
    this.#socket.on('close', () => this.close());
  }

  isUsable(nowMs: number): boolean {
    return this.#state === 'idle' && this.#socket.writable && nowMs < this.#usableUntilMs;
  }

  send({ text, pieces }: OutgoingRequest, handler: AnswerHandler): Call {
    this.#handler = handler;
    this.#reader = new AnswerReader(this, this.#owner.heads);
    this.#state = 'asked';
    this.#requests++;
    if (this.#requests > 1) this.#socket.ref();
    // As many bytes as UTF-16 units: pure ASCII, which needs no transcoding.
    this.#socket.write(text, Buffer.byteLength(text) === text.length ? 'latin1' : 'utf8');
    if (pieces !== undefined) this.#write(pieces, handler).catch((error: unknown) => this.close(error as Error));
    return this;
  }

  async #write(pieces: AsyncIterable<Uint8Array>, handler: AnswerHandler): Promise<void> {
    this.#isWriting = true;
    for await (const piece of pieces) {
      // The answer came before the request was fully sent, or the request is over.
      if (this.#handler !== handler) return;
      if (!this.#socket.write(piece)) await this.#drained();
    }
    this.#isWriting = false;
  }

  #drained(): Promise<void> {
    return new Promise((resolve) => {
      const done = (): void => {
        this.#socket.off('drain', done).off('close', done);
        resolve();
      };
      this.#socket.on('drain', done).on('close', done);
      if (this.#state === 'gone') done();
    });
  }

  pause(): void {
    if (this.#isPaused) return;
    this.#isPaused = true;
    this.#socket.pause();
  }

  resume(): void {
    if (!this.#isPaused) return;
    this.#isPaused = false;
    this.#socket.resume();
  }

  abandon(): void {
    this.#handler = undefined;
    this.close();
  }

  /** Closes the connection. A handler that waits for an answer gets the reason why there will be none. */
  close(error: Error = new ConnectionClosed('the connection was closed')): void {
    if (this.#state === 'gone') return;
    this.#state = 'gone';
    clearTimeout(this.#connectTimer);
    const handler = this.#handler;
    this.#handler = undefined;
    this.#socket.destroy();
    this.#owner.gone();
    handler?.onBroken(error, this.#requests > 1);
  }

  onHead(head: AnswerHead): void {
    this.#handler?.onHead(head);
  }

  onBody(bytes: Buffer, from: number, to: number): void {
    this.#handler?.onBody(bytes, from, to);
  }

  #read(bytes: Buffer, length: number): void {
    const handler = this.#handler;
    const reader = this.#reader;
    // Unsolicited bytes would be read as the answer to the next request (reliability U14).
    if (handler === undefined || reader === undefined) return this.close();
    if (this.#state === 'asked') {
      this.#state = 'answering';
      handler.onBegin();
    }
    try {
      const taken = reader.push(bytes, length);
      if (reader.isOver) this.#over(handler, reader, taken === length);
      else handler.onReadEnd();
    } catch (error) {
      if (!(error instanceof HttpFault)) throw error;
      this.close(error);
    }
  }

  #end(): void {
    const handler = this.#handler;
    const reader = this.#reader;
    if (handler === undefined || reader === undefined) return this.close();
    try {
      reader.end();
      this.#over(handler, reader, false);
    } catch (error) {
      if (!(error instanceof HttpFault)) throw error;
      this.close();
    }
  }

  /** Ends a request. The next one may be sent before the handler returns. */
  #over(handler: AnswerHandler, reader: AnswerReader, isClean: boolean): void {
    const { keepAliveMs, requestsPerSocket = Infinity } = this.#options;
    // The handler gave up during the call with the last bytes.
    if (this.#handler !== handler) return;
    this.#handler = undefined;
    this.#reader = undefined;
    const keptMs = Math.min(keepAliveMs, (reader.keepAliveHintMs ?? Infinity) - hintMarginMs);
    const isReusable = isClean && reader.isReusable && keptMs > 0 && this.#requests < requestsPerSocket;
    // If the answer came before its request was fully sent, unsent bytes remain.
    if (!isReusable || this.#isWriting || this.#socket.writableLength > 0) this.close();
    else {
      this.#state = 'idle';
      this.#usableUntilMs = performance.now() + keptMs;
      // An idle connection does not keep the process running.
      this.#socket.unref();
      this.resume();
      this.#owner.idle();
    }
    handler.onOver();
  }
}
