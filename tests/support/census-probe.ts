/**
 * Imported into the service before its own code: counts what its main thread makes, and on SIGUSR2 writes the counts so far into
 * the file that TOKENHOUSE_CENSUS names. Counts do not depend on the machine or on what else it does, unlike times.
 */
import { createHook } from 'node:async_hooks';
import { existsSync, renameSync, writeFileSync } from 'node:fs';
import { GCProfiler, getHeapStatistics } from 'node:v8';
import { isMainThread, MessagePort } from 'node:worker_threads';

/** How often something has been made or called since the start. */
export interface Census {
  readonly promises: number;
  readonly timers: number;
  readonly abortControllers: number;
  /** Listeners added to abort signals. */
  readonly abortListeners: number;
  readonly messagesToThreads: number;
  /** Allocated in the heap of JavaScript. */
  readonly bytes: number;
  /** In use after a collection, in the heap and in buffers outside of it; known while nothing is hooked, otherwise 0. */
  readonly heldBytes: number;
}

/** Beside the file of the counts. While it exists, nothing is hooked, so that bytes are those of the service alone. */
export const unhooked = '.unhooked';

const file = process.env['TOKENHOUSE_CENSUS'];
if (isMainThread && file !== undefined) {
  // Not in threads, which import this file too: it sets a flag of the whole process for a moment.
  const { collectGarbage } = await import('../../src/platform/http/json/collect.ts');
  const counts = {
    promises: 0,
    timers: 0,
    abortControllers: 0,
    abortListeners: 0,
    messagesToThreads: 0,
    bytes: 0,
    heldBytes: 0,
  };
  const hook = createHook({
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

  /** V8 does not say what was allocated: it is what the heap has grown by between collections. */
  let collections = new GCProfiler();
  let usedBytes = 0;
  const beginCount = (): void => {
    collections = new GCProfiler();
    collections.start();
    usedBytes = getHeapStatistics().used_heap_size;
  };
  const endCount = (): void => {
    const now = getHeapStatistics().used_heap_size;
    for (const { beforeGC, afterGC } of collections.stop()?.statistics ?? []) {
      counts.bytes += beforeGC.heapStatistics.usedHeapSize - usedBytes;
      usedBytes = afterGC.heapStatistics.usedHeapSize;
    }
    counts.bytes += now - usedBytes;
  };
  beginCount();
  process.on('SIGUSR2', () => {
    endCount();
    const isUnhooked = existsSync(file + unhooked);
    if (isUnhooked) {
      collectGarbage();
      const { heapUsed, arrayBuffers } = process.memoryUsage();
      counts.heldBytes = heapUsed + arrayBuffers;
    }
    // Whole or not there: the reader polls.
    writeFileSync(`${file}.new`, JSON.stringify(counts satisfies Census));
    renameSync(`${file}.new`, file);
    if (isUnhooked) hook.disable();
    else hook.enable();
    beginCount();
  });
}
