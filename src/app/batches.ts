import type { KeyLookUps } from '../accounts/key-look-ups.ts';
import type { Directory } from '../accounts/directory.ts';
import type { Config } from '../config/config.ts';
import { Batches } from '../inference/batches/batches.ts';
import type { Lines } from '../inference/batches/line.ts';
import { BatchRunner } from '../inference/batches/runner.ts';
import type { Files } from '../inference/files/files.ts';
import { isReady } from '../inference/pipeline/backend-pool.ts';
import type { RuntimeConfig } from '../inference/pipeline/runtime-config.ts';
import type { Log } from '../platform/log.ts';
import type { Store } from './stores.ts';

export interface BatchParts {
  readonly store: Store;
  readonly files: Files;
  readonly directory: Directory;
  readonly keyLookUps: Pick<KeyLookUps, 'readById'>;
  readonly now: () => number;
  readonly log: Log;
  readonly config: () => Config;
  readonly runtimeConfig: () => RuntimeConfig;
}

/** Opens the batches of accounts; `begin` runs their lines from then on. */
export function openBatches({ store, files, directory, keyLookUps, now, log, config, runtimeConfig }: BatchParts) {
  const { repositories } = store;
  let runner: BatchRunner | undefined;
  const batches = new Batches({
    repositories,
    files,
    bounds: () => config().batches,
    now,
    changed: () => runner?.wake(),
  });
  return {
    batches,
    begin: (lines: Lines): void => {
      runner = new BatchRunner({
        repositories,
        files,
        lines,
        owner: () => store.ledger.replicaId,
        now,
        bounds: () => ({ ...config().batches, lineBytesMax: runtimeConfig().limits.bodyBytesMax - 1 }),
        room: (modelId, running) => roomOf(runtimeConfig(), modelId, running),
        callerOf: async (keyId) => {
          const found = directory.findById(keyId);
          return typeof found === 'object' ? found : await keyLookUps.readById(keyId);
        },
        log: (record) => log.service(record),
      });
      runner.wake();
    },
    /** Begins no further lines. */
    stop: (): void => runner?.stop(),
    close: async (): Promise<void> => await runner?.close(),
  };
}

/** Lines that a backend without a bound of its own takes at once. */
const unboundedLines = 16;

/** Slots of a model that nobody else waits for. Lines that have begun may not have theirs yet. */
function roomOf({ pools }: RuntimeConfig, modelId: string, lines: number): number {
  const pool = pools.get(modelId);
  if (pool === undefined || pool.queue.length > 0) return 0;
  let slots = 0;
  let running = 0;
  for (const backend of pool.backends) {
    if (!isReady(backend)) continue;
    slots += Math.min(backend.concurrencyMax, unboundedLines);
    running += Math.min(backend.running, backend.concurrencyMax);
  }
  return Math.max(0, slots - Math.max(running, lines));
}
