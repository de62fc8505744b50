import type { KeyLookUps } from '../accounts/key-look-ups.ts';
import type { Directory } from '../accounts/directory.ts';
import { steadyClock } from '../billing/rate-limits/steady-clock.ts';
import type { Config } from '../config/config.ts';
import { Batches } from '../inference/batches/batches.ts';
import type { Lines } from '../inference/batches/line.ts';
import { BatchRunner } from '../inference/batches/runner.ts';
import type { Files } from '../inference/files/files.ts';
import type { IdleSlots } from '../inference/pipeline/idle-slots.ts';
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
  readonly rollout: { readonly config: Config };
  readonly runtimeConfigs: { readonly current: RuntimeConfig };
  /** Receives what closes it. */
  readonly opened: (() => unknown)[];
}

/** Opens the batches of accounts; `begin` runs their lines from then on. */
export function openBatches({ store, files, directory, keyLookUps, now, log, ...parts }: BatchParts) {
  const config = (): Config => parts.rollout.config;
  const runtimeConfig = (): RuntimeConfig => parts.runtimeConfigs.current;
  const { repositories } = store;
  let runner: BatchRunner | undefined;
  const watching = new Watching();
  const batches = new Batches({
    repositories,
    files,
    bounds: () => config().batches,
    now,
    changed: () => runner?.begin(),
  });
  const close = async (): Promise<void> => {
    watching.watch(new Set(), runtimeConfig(), () => {});
    await runner?.close();
  };
  parts.opened.push(close);
  return {
    batches,
    begin: (lines: Lines): void => {
      runner = new BatchRunner({
        repositories,
        files,
        lines,
        owner: () => store.ledger.replicaId,
        now,
        // The time of several processes is the database's, which nobody sets.
        steadyNow: store.limits === undefined ? steadyClock(now()) : now,
        bounds: () => ({ ...config().batches, lineBytesMax: runtimeConfig().limits.bodyBytesMax - 1 }),
        room: (modelId) => (lines.areShed ? 0 : (runtimeConfig().pools.get(modelId)?.idle.free ?? 0)),
        watch: (modelIds, wake) => watching.watch(modelIds, runtimeConfig(), wake),
        isShared: store.limits !== undefined,
        callerOf: async (keyId) => {
          const found = directory.findById(keyId);
          return typeof found === 'object' ? found : await keyLookUps.readById(keyId);
        },
        log: (record) => log.service(record),
      });
      runner.begin();
    },
    /** Begins no further lines. */
    stop: (): void => runner?.stop(),
    close,
  };
}

/** The slots of models that have lines to run. A reload of the configuration may replace them. */
class Watching {
  readonly #watched = new Map<Pick<IdleSlots, 'watch'>, () => void>();

  watch(modelIds: ReadonlySet<string>, { pools }: RuntimeConfig, wake: () => void): void {
    const wanted = new Set<Pick<IdleSlots, 'watch'>>([...modelIds].flatMap((id) => pools.get(id)?.idle ?? []));
    for (const [idle, end] of this.#watched)
      if (!wanted.has(idle)) {
        end();
        this.#watched.delete(idle);
      }
    for (const idle of wanted) if (!this.#watched.has(idle)) this.#watched.set(idle, idle.watch(wake));
  }
}
