/** The other side of a connection, for the tests: in a thread or in a process, and with the worst that either can do. */
import { parentPort } from 'node:worker_threads';

import { ApiError } from '../../../src/platform/errors.ts';
import { Rpc, Transferred } from '../../../src/platform/rpc/rpc.ts';
import { ProcessTransport, threadTransport, type ProcessChannel } from '../../../src/platform/rpc/transport.ts';
import { StoreError } from '../../../src/store/store-error.ts';

export type Answering = {
  readonly echo: (value: unknown) => unknown;
  readonly later: (wait: { readonly ms: number; readonly value: unknown }) => unknown;
  readonly silence: (nothing: null) => null;
  readonly fail: (kind: keyof typeof failures) => null;
  readonly lengthOf: (bytes: Uint8Array) => number;
  readonly handOver: (length: number) => Uint8Array;
  readonly unsendable: (nothing: null) => unknown;
  /** Dies while it is asked. */
  readonly exit: (nothing: null) => null;
  readonly kill: (nothing: null) => null;
  readonly throwOutside: (nothing: null) => null;
  readonly fillMemory: (nothing: null) => null;
  /** Holds the thread or the process up: nothing else is answered meanwhile. */
  readonly block: (ms: number) => null;
  readonly close: (nothing: null) => null;
  readonly count: (nothing: null) => number;
  readonly heard: (nothing: null) => readonly unknown[];
  readonly callBack: (times: number) => readonly number[];
  readonly babble: (message: unknown) => null;
};

/** What it may call at the side that asks it. */
export type Asking = { readonly next: (value: number) => number; readonly noted: (value: unknown) => void };

const failures = {
  plain: () => new Error('plain', { cause: new RangeError('deep', { cause: 'a word' }) }),
  system: () =>
    Object.assign(new Error('in use'), { code: 'EADDRINUSE', port: 80, address: '::', secret: { not: 'sent' } }),
  api: () => new ApiError('unsupported_value', 'no', { param: 'a.b', extra: { most: 3 } }),
  store: () => new StoreError('full', 'no room', new Error('disk')),
  word: () => 'only a word',
  circle: () => {
    const error = new Error('round');
    error.cause = error;
    return error;
  },
};

const noted: unknown[] = [];
let asked = 0;

const transport =
  parentPort === null ? new ProcessTransport(process as unknown as ProcessChannel) : threadTransport(parentPort);
type Local = Answering & { readonly note: (value: unknown) => void };

const rpc: Rpc<Asking, Local> = new Rpc<Asking, Local>(transport, {
  isAnswer: (_error, name) => name !== 'throwOutside',
  onBroken: (reason) => {
    throw new Error(reason);
  },
  handlers: {
    echo: (value) => (asked++, value),
    later: ({ ms, value }) => new Promise((resolve) => setTimeout(resolve, ms, value)),
    silence: () => new Promise(() => {}),
    fail: (kind) => {
      throw failures[kind]() as Error;
    },
    lengthOf: (bytes) => bytes.byteLength,
    handOver: (length) => {
      const bytes = new Uint8Array(length).fill(7);
      return new Transferred(bytes, [bytes.buffer]);
    },
    unsendable: () => () => {},
    exit: () => process.exit(3),
    kill: () => {
      process.kill(process.pid, 'SIGKILL');
      return null;
    },
    throwOutside: () => {
      throw new Error('a fault of its own');
    },
    fillMemory: () => {
      const all: unknown[] = [];
      for (;;) all.push(Array.from({ length: 100_000 }, (_, index) => ({ index })));
    },
    block: (ms) => {
      Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, ms);
      return null;
    },
    close: () => {
      setImmediate(() => (parentPort === null ? process.exit(0) : parentPort.close()));
      return null;
    },
    count: () => asked,
    heard: () => noted,
    callBack: async (times) => {
      const answers = Array.from({ length: times }, (_, index) => rpc.call('next', index));
      return await Promise.all(answers);
    },
    babble: (message) => {
      if (parentPort === null) process.send!(message);
      else parentPort.postMessage(message);
      return null;
    },
    note: (value) => void noted.push(value),
  },
});
