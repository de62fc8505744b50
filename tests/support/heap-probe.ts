/**
 * Imported into the service before its own code: on SIGUSR2 it collects garbage and writes what is left into the file that
 * TOKENHOUSE_HEAP_PROBE names, so that a test can tell what is kept from what is merely not collected yet.
 */
import { renameSync, writeFileSync } from 'node:fs';
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import { isMainThread } from 'node:worker_threads';

/** After a full collection. */
export interface HeapReport {
  readonly heapBytes: number;
  /** Buffers and what native code holds for objects. */
  readonly externalBytes: number;
  /** What keeps the process alive: timers, sockets, pipes. */
  readonly resources: readonly string[];
}

const file = process.env['TOKENHOUSE_HEAP_PROBE'];
if (isMainThread && file !== undefined) {
  setFlagsFromString('--expose-gc');
  const collect = runInNewContext('gc') as () => void;
  process.on('SIGUSR2', () => {
    collect();
    const { heapUsed, external } = process.memoryUsage();
    const report: HeapReport = {
      heapBytes: heapUsed,
      externalBytes: external,
      resources: process.getActiveResourcesInfo(),
    };
    // Whole or not there: the reader polls.
    writeFileSync(`${file}.new`, JSON.stringify(report));
    renameSync(`${file}.new`, file);
  });
}
