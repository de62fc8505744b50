import type { ChildProcess } from 'node:child_process';
import type { MessagePort, Worker } from 'node:worker_threads';

/**
 * A connection to a thread or a process. Messages arrive as structured clones (bigint and bytes survive), in the order in which
 * they were sent. The end of the other side is reported by its owner, not here.
 */
export interface Transport {
  /** Memory in `transfer` is transferred to a thread instead of copied; its views are empty afterwards. */
  send(message: unknown, transfer?: readonly ArrayBuffer[]): void;
  /** Called once, before the first message. */
  listen(listener: TransportListener): void;
  /** Resolves when everything sent until now has been written, or cannot be any more. */
  flush(): Promise<void>;
  /** Sends and delivers nothing more. */
  close(): void;
  readonly sent: Sent;
}

export interface TransportListener {
  message(message: unknown): void;
  /** The message cannot be cloned and was not sent; those before and after it were. */
  unsendable(message: unknown, error: Error): void;
  /** The other side is gone, or breaks the rules: it sends an unknown message, or does not read. */
  failed(reason: string, isBroken: boolean): void;
}

/** What has been sent: messages, and the bytes in them that were handed over instead of copied. */
export interface Sent {
  readonly messages: number;
  readonly transferredBytes: number;
}

/** The channel of a process: a child, or this process seen from its child. */
export type ProcessChannel = Pick<ChildProcess, 'send' | 'on'>;

/** Far above what admission lets through: a safety bound. */
const queueMax = 400_000;
/** Messages written together; the rest goes with the next write. */
const gatheredMax = 2_000;

/** A thread, or a thread's own port. Each message is sent immediately: a clone in memory costs little more than its content. */
export function threadTransport(port: Worker | MessagePort): Transport {
  let listener: TransportListener | undefined;
  let messages = 0;
  let transferredBytes = 0;
  let isClosed = false;
  return {
    send: (message, transfer) => {
      if (isClosed) return;
      let bytes = 0;
      if (transfer !== undefined) for (const buffer of transfer) bytes += buffer.byteLength;
      try {
        port.postMessage(message, transfer);
      } catch (error) {
        listener?.unsendable(message, error as Error);
        return;
      }
      messages++;
      transferredBytes += bytes;
    },
    listen: (to) => {
      listener = to;
      port.on('message', (message: unknown) => {
        if (!isClosed) to.message(message);
      });
    },
    flush: () => Promise.resolve(),
    close: () => (isClosed = true),
    get sent() {
      return { messages, transferredBytes };
    },
  };
}

/**
 * The channel between two processes, which must use `serialization: 'advanced'`. Messages of one turn of the event loop are written
 * together, and messages sent during a write go with the next, so a busy connection has few and large writes. There is no timer.
 */
export class ProcessTransport implements Transport {
  readonly #channel: ProcessChannel;
  #listener: TransportListener | undefined;
  #state: 'idle' | 'scheduled' | 'writing' | 'closed' = 'idle';
  #queue: unknown[] = [];
  #taken = 0;
  #written = 0;
  #writes = 0;
  /** Waiters for a number of written messages, in that order. */
  #flushes: { readonly until: number; readonly resolve: () => void }[] = [];

  constructor(channel: ProcessChannel) {
    this.#channel = channel;
  }

  /** A write with several messages counts once. */
  get sent(): Sent {
    return { messages: this.#writes, transferredBytes: 0 };
  }

  send(message: unknown): void {
    if (this.#state === 'closed') return;
    if (this.#queue.length >= queueMax) {
      this.#listener?.failed('it does not read', true);
      return;
    }
    this.#queue.push(message);
    this.#taken++;
    if (this.#state === 'idle') this.#schedule();
  }

  listen(listener: TransportListener): void {
    this.#listener = listener;
    this.#channel.on('message', (gathered: unknown) => {
      if (!Array.isArray(gathered)) {
        listener.failed('a message is no list', true);
        return;
      }
      for (const message of gathered as readonly unknown[]) {
        if (this.#isClosed()) return;
        listener.message(message);
      }
    });
  }

  flush(): Promise<void> {
    return new Promise((resolve) => {
      this.#flushes.push({ until: this.#taken, resolve });
      this.#reportFlushed();
    });
  }

  close(): void {
    this.#state = 'closed';
    this.#queue = [];
    this.#reportFlushed();
  }

  #isClosed(): boolean {
    return this.#state === 'closed';
  }

  #schedule(): void {
    this.#state = 'scheduled';
    setImmediate(() => this.#write());
  }

  #write(): void {
    if (this.#state === 'closed') return;
    if (this.#queue.length === 0) {
      this.#state = 'idle';
      return;
    }
    this.#state = 'writing';
    const messages = this.#queue.splice(0, gatheredMax);
    const error = this.#tryWrite(messages, () => this.#write());
    if (error === undefined) return;
    // One of them cannot be cloned; the others still arrive, in order.
    let pending = 1;
    const written = (): void => {
      if (--pending === 0) this.#write();
    };
    for (const message of messages) {
      const refusal = this.#tryWrite([message], written);
      if (refusal === undefined) pending++;
      else {
        this.#written++;
        this.#listener?.unsendable(message, refusal);
      }
    }
    this.#reportFlushed();
    written();
  }

  /** Returns why the messages cannot be cloned; `written` is called only when they can. */
  #tryWrite(messages: readonly unknown[], written: () => void): Error | undefined {
    try {
      this.#channel.send?.(messages as unknown as Serializable, undefined, undefined, (error) => {
        this.#written += messages.length;
        if (error !== null && this.#state !== 'closed') this.#listener?.failed('the connection has ended', false);
        this.#reportFlushed();
        written();
      });
    } catch (error) {
      return error as Error;
    }
    this.#writes++;
    return undefined;
  }

  #reportFlushed(): void {
    while (this.#flushes.length > 0 && (this.#state === 'closed' || this.#flushes[0]!.until <= this.#written))
      this.#flushes.shift()!.resolve();
  }
}

type Serializable = Parameters<NonNullable<ProcessChannel['send']>>[0];
