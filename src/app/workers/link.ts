import type { ChildProcess } from 'node:child_process';

import { StoreError, storeErrorFrom } from '../../store/store-error.ts';
import type { StoreErrorCode } from '../../store/store-error.ts';
import type { Port } from '../../store/workers/port.ts';

/** A process, or this one seen from its parent: the two ends of the connection. */
export type Channel = Pick<ChildProcess, 'send' | 'on'>;

/** One entry of a message. `seq` belongs to a call and its answer. */
type Entry =
  | readonly [kind: 'call', seq: number, name: string, request: unknown]
  | readonly [kind: 'answer', seq: number, value: unknown]
  | readonly [kind: 'failure', seq: number, failure: Failure]
  | readonly [kind: 'note', name: string, value: unknown];

/** An error in transit: a structured clone would lose all but its message. */
interface Failure {
  readonly name: string;
  readonly message: string;
  readonly code: string | undefined;
  /** Port of an error of `listen`. */
  readonly port: number | undefined;
  readonly address: string | undefined;
}

interface Waiting {
  readonly resolve: (value: unknown) => void;
  readonly reject: (error: Error) => void;
}

/** Far above what admission lets through: a bound, not a plan. */
const callsMax = 200_000;
const queueMax = 400_000;
/** Entries in one message; the rest goes with the next. */
const entriesMax = 2_000;

/**
 * The connection between a parent and a worker. Entries of one turn of the event loop go in one message, and entries made while a
 * message is being written go with the next, so a busy connection has few and large ones.
 */
export class Link implements Port {
  readonly #channel: Channel;
  readonly #broken: (why: string) => void;
  readonly #handlers = new Map<string, (value: unknown) => unknown>();
  readonly #waiting = new Map<number, Waiting>();
  #queue: Entry[] = [];
  #isScheduled = false;
  #isWriting = false;
  #isClosed = false;
  #seq = 0;
  #said = 0;
  #written = 0;
  /** Waiters for a number of written entries, in that order. */
  #flushes: { readonly until: number; readonly resolve: () => void }[] = [];

  /** `broken`: the other side sent something forbidden, so nothing from it can be trusted. */
  constructor(channel: Channel, broken: (why: string) => void) {
    this.#channel = channel;
    this.#broken = broken;
    channel.on('message', (message: unknown) => this.#receive(message));
  }

  on(name: string, handler: (value: unknown) => unknown): void {
    this.#handlers.set(name, handler);
  }

  call(name: string, request: unknown): Promise<unknown> {
    return new Promise((resolve, reject) => {
      if (this.#isClosed) reject(closed());
      else if (this.#waiting.size >= callsMax) reject(new StoreError('busy', 'too much waits for the other process'));
      else {
        const seq = ++this.#seq;
        this.#waiting.set(seq, { resolve, reject });
        this.#say(['call', seq, name, request]);
      }
    });
  }

  note(name: string, value: unknown): void {
    this.#say(['note', name, value]);
  }

  /** Resolves when everything sent until now has been written, or cannot be any more. */
  flush(): Promise<void> {
    return new Promise((resolve) => {
      this.#flushes.push({ until: this.#said, resolve });
      this.#reportFlushed();
    });
  }

  /** The other side is gone: pending calls are rejected. */
  close(): void {
    this.#isClosed = true;
    this.#queue = [];
    const waiting = [...this.#waiting.values()];
    this.#waiting.clear();
    for (const { reject } of waiting) reject(closed());
    this.#reportFlushed();
  }

  #say(entry: Entry): void {
    if (this.#isClosed) return;
    if (this.#queue.length >= queueMax) {
      this.#broken('it does not read');
      return;
    }
    this.#queue.push(entry);
    this.#said++;
    this.#schedule();
  }

  #schedule(): void {
    if (this.#isScheduled || this.#isWriting) return;
    this.#isScheduled = true;
    setImmediate(() => {
      this.#isScheduled = false;
      this.#write();
    });
  }

  #write(): void {
    if (this.#isWriting) return;
    if (this.#queue.length === 0 || this.#isClosed) return;
    const entries = this.#queue.splice(0, entriesMax);
    this.#isWriting = true;
    const written = (error: Error | null): void => {
      this.#isWriting = false;
      this.#written += entries.length;
      if (error !== null) this.close();
      this.#reportFlushed();
      this.#write();
    };
    try {
      this.#channel.send?.(entries as unknown as Serialized, undefined, undefined, written);
    } catch {
      // The channel was closed meanwhile; its end is reported separately.
      this.close();
    }
  }

  #reportFlushed(): void {
    while (this.#flushes.length > 0 && (this.#isClosed || this.#flushes[0]!.until <= this.#written))
      this.#flushes.shift()!.resolve();
  }

  #receive(message: unknown): void {
    if (!Array.isArray(message)) {
      this.#broken('a message is no list');
      return;
    }
    for (const entry of message as readonly unknown[]) {
      if (this.#isClosed) return;
      if (!Array.isArray(entry) || !this.#take(entry as unknown as Entry)) {
        this.#broken('a message is of no known form');
        return;
      }
    }
  }

  #take(entry: Entry): boolean {
    switch (entry[0]) {
      case 'call': {
        const [, seq, name, request] = entry;
        if (typeof seq !== 'number' || typeof name !== 'string') return false;
        void this.#answer(seq, name, request);
        return true;
      }
      case 'answer':
      case 'failure': {
        const waiting = this.#waiting.get(entry[1]);
        if (waiting === undefined) return false;
        this.#waiting.delete(entry[1]);
        if (entry[0] === 'answer') waiting.resolve(entry[2]);
        else waiting.reject(errorOf(entry[2]));
        return true;
      }
      case 'note': {
        const [, name, value] = entry;
        try {
          // A note without a handler here is ignored.
          this.#handlers.get(name)?.(value);
        } catch {
          return false;
        }
        return true;
      }
    }
    return false;
  }

  async #answer(seq: number, name: string, request: unknown): Promise<void> {
    try {
      const handler = this.#handlers.get(name);
      if (handler === undefined) throw new StoreError('invalid', `nobody here answers '${name}'`);
      this.#say(['answer', seq, await handler(request)]);
    } catch (error) {
      this.#say(['failure', seq, failureOf(error)]);
    }
  }
}

type Serialized = Parameters<NonNullable<Channel['send']>>[0];

const closed = (): StoreError => new StoreError('failed', 'the other process is gone');

function failureOf(error: unknown): Failure {
  const reported = error instanceof Error ? error : storeErrorFrom(error);
  const { code, port, address } = reported as Partial<Failure>;
  return { name: reported.name, message: reported.message, code, port, address };
}

function errorOf({ name, message, code, port, address }: Failure): Error {
  if (name === 'StoreError') return new StoreError(code as StoreErrorCode, message);
  return Object.assign(new Error(message), code === undefined ? {} : { code, port, address });
}
