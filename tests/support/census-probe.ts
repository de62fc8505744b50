/**
 * Imported into the service before its own code: counts what its main thread makes, and on SIGUSR2 writes the counts so far into
 * the file that TOKENHOUSE_CENSUS names. Counts do not depend on the machine or on what else it does, unlike times.
 */
import { createHook } from 'node:async_hooks';
import { renameSync, writeFileSync } from 'node:fs';
import { isMainThread, MessagePort } from 'node:worker_threads';

/** How often something has been made or called since the start. */
export interface Census {
  readonly promises: number;
  readonly timers: number;
  readonly abortControllers: number;
  /** Listeners added to abort signals. */
  readonly abortListeners: number;
  readonly messagesToThreads: number;
}

const file = process.env['TOKENHOUSE_CENSUS'];
if (isMainThread && file !== undefined) {
  const counts = { promises: 0, timers: 0, abortControllers: 0, abortListeners: 0, messagesToThreads: 0 };
  createHook({
    init: (_id, type) => {
      if (type === 'PROMISE') counts.promises++;
      else if (type === 'Timeout') counts.timers++;
    },
  }).enable();
  globalThis.AbortController = class extends AbortController {
    constructor() {
      super();
      counts.abortControllers++;
    }
  };
  const counting = (target: object, name: string, count: () => void): void => {
    const own = Reflect.get(target, name) as (...args: unknown[]) => unknown;
    Reflect.set(target, name, function (this: unknown, ...args: unknown[]) {
      count();
      return own.apply(this, args);
    });
  };
  counting(AbortSignal.prototype, 'addEventListener', () => counts.abortListeners++);
  counting(MessagePort.prototype, 'postMessage', () => counts.messagesToThreads++);
  process.on('SIGUSR2', () => {
    // Whole or not there: the reader polls.
    writeFileSync(`${file}.new`, JSON.stringify(counts satisfies Census));
    renameSync(`${file}.new`, file);
  });
}
