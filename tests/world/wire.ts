import { Duplex } from 'node:stream';

import { Lane, type Owner, type Scheduler, type Task } from './scheduler.ts';

/** As `net.connect` takes it: bytes are handed over in a buffer of the caller's instead of as events. */
export interface OnRead {
  readonly buffer: Uint8Array;
  readonly callback: (length: number, bytes: Uint8Array) => boolean;
}

const windowBytes = 65_536;

const resetError = (): Error => Object.assign(new Error('read ECONNRESET'), { code: 'ECONNRESET' });

/** One end of a connection in memory, with what the program uses of a socket. Its bytes arrive later, whole or in pieces. */
export class WireEnd extends Duplex {
  readonly remoteAddress = '127.0.0.1';
  readonly remoteFamily = 'IPv4';
  readonly #scheduler: Scheduler;
  readonly #owner: Owner;
  readonly #lane = new Lane();
  readonly #onread: OnRead | undefined;
  #peer: WireEnd | undefined;
  /** What has arrived and cannot be taken yet. */
  readonly #arrived: (Buffer | null)[] = [];
  #isFull = false;
  #inFlight = 0;
  #isReset = false;
  #isHeld = false;
  #idle: { readonly ms: number; task: Task } | undefined;
  bytesWritten = 0;

  constructor(scheduler: Scheduler, owner: Owner, onread?: OnRead) {
    super({ allowHalfOpen: onread === undefined, emitClose: true });
    this.#scheduler = scheduler;
    this.#owner = owner;
    this.#onread = onread;
  }

  /** Two ends, of two processes. */
  static pair(scheduler: Scheduler, one: Owner, other: Owner, onread?: OnRead): readonly [WireEnd, WireEnd] {
    const ends = [new WireEnd(scheduler, one, onread), new WireEnd(scheduler, other)] as const;
    // A process may die before its other side listens.
    for (const end of ends) end.on('error', () => {});
    ends[0].#peer = ends[1];
    ends[1].#peer = ends[0];
    return ends;
  }

  setNoDelay = (): this => this;
  setKeepAlive = (): this => this;
  ref = (): this => this;
  unref = (): this => this;
  setTimeout(ms: number, callback?: () => void): this {
    if (callback !== undefined) this.once('timeout', callback);
    if (this.#idle !== undefined) this.#idle.task.isCancelled = true;
    this.#idle = undefined;
    if (ms > 0) this.#idle = { ms, task: this.#timer(ms) };
    return this;
  }

  destroySoon(): void {
    if (this.writable) this.end();
    if (this.writableFinished) this.destroy();
    else this.once('finish', () => this.destroy());
  }

  resetAndDestroy(): this {
    this.#isReset = true;
    return this.destroy();
  }

  /** The process is gone: the other side sees the connection reset. */
  die(): void {
    this.#peer?.arrive('reset');
  }

  override pause(): this {
    if (this.#onread === undefined) return super.pause();
    this.#isHeld = true;
    return this;
  }

  override resume(): this {
    if (this.#onread === undefined) return super.resume();
    this.#isHeld = false;
    this.#scheduler.after(0, this.#owner, () => this.#take());
    return this;
  }

  override _write(chunk: Buffer, _encoding: string, done: (error?: Error) => void): void {
    this.#active();
    this.bytesWritten += chunk.length;
    this.#inFlight += chunk.length;
    const bytes = Buffer.from(chunk);
    let isDone = false;
    const written = (): void => {
      if (!isDone) done();
      isDone = true;
    };
    if (this.#inFlight < windowBytes) written();
    const cut = bytes.length > 1 && this.#scheduler.chance(0.1) ? this.#scheduler.between(1, bytes.length - 1) : 0;
    for (const part of cut === 0 ? [bytes] : [bytes.subarray(0, cut), bytes.subarray(cut)])
      this.#send(() => {
        this.#inFlight -= part.length;
        if (this.#peer?.destroyed === true && !this.destroyed) this.destroy(resetError());
        else this.#peer?.arrive(part);
        written();
      });
  }

  override _final(done: () => void): void {
    this.#send(() => this.#peer?.arrive(null));
    done();
  }

  override _read(): void {
    this.#isFull = false;
    this.#take();
  }

  override _destroy(error: Error | null, done: (error: Error | null) => void): void {
    this.setTimeout(0);
    const isReset = this.#isReset || this.#arrived.length > 0;
    if (!this.#peerKnows) this.#send(() => this.#peer?.arrive(isReset ? 'reset' : null));
    done(error);
  }

  #peerKnows = false;

  arrive(part: Buffer | null | 'reset'): void {
    if (this.destroyed) return;
    if (part === 'reset') {
      this.#peerKnows = true;
      this.destroy(resetError());
      return;
    }
    this.#active();
    this.#arrived.push(part);
    this.#take();
  }

  #take(): void {
    while (this.#arrived.length > 0 && !this.destroyed && !this.#isFull && !this.#isHeld) {
      const part = this.#arrived.shift()!;
      if (this.#onread === undefined) this.#isFull = !this.push(part) && part !== null;
      else if (part === null) this.push(null) || super.resume();
      else this.#hand(part, this.#onread);
    }
  }

  #hand(part: Buffer, { buffer, callback }: OnRead): void {
    for (let from = 0; from < part.length && !this.destroyed; from += buffer.length) {
      const piece = part.subarray(from, from + buffer.length);
      buffer.set(piece);
      callback(piece.length, buffer);
    }
  }

  #send(deliver: () => void): void {
    const { random } = this.#scheduler;
    const ms = random() < 0.03 ? 20 * random() : 0.4 * random();
    this.#scheduler.after(ms, this.#owner, deliver, this.#lane);
  }

  #active(): void {
    if (this.#idle === undefined) return;
    this.#idle.task.isCancelled = true;
    this.#idle.task = this.#timer(this.#idle.ms);
  }

  #timer(ms: number): Task {
    return this.#scheduler.after(ms, this.#owner, () => void this.emit('timeout'));
  }
}
