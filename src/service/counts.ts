import { Arbiter } from '../limits/arbiter.ts';
import type { LimitCounts } from '../limits/counts.ts';
import { Shares } from '../limits/shares.ts';
import { Windows } from '../limits/windows.ts';
import type { Log } from '../log.ts';
import type { Store } from './stores.ts';

export interface OpenCounts {
  readonly of: LimitCounts;
  /** What was counted is durable, and what was leased is given back. */
  close(): Promise<void>;
}

/** What is used of limits: by this process alone, or by all on its books. */
export async function openCounts(
  store: Pick<Store, 'desk' | 'limits'>,
  now: () => number,
  log: Log,
  lost: () => void,
): Promise<OpenCounts> {
  if (store.limits !== undefined) {
    const shares = new Shares({ leases: store.limits, now, lost });
    return { of: shares, close: () => shares.close() };
  }
  const { arbiter, close } = await openArbiter(store, now, log);
  return { of: arbiter, close };
}

/** All limits whole, in this process. */
export async function openArbiter(
  store: Pick<Store, 'desk'>,
  now: () => number,
  log: Log,
): Promise<{ readonly arbiter: Arbiter; close(): Promise<void> }> {
  const windows = new Windows({
    store: {
      load: (request) => store.desk.loadLimitWindows(request),
      add: (changes) => store.desk.addLimitWindows({ changes }),
    },
    now,
    kept: (isKept) =>
      log.service({
        level: isKept ? 'info' : 'warn',
        event: isKept ? 'limits_written' : 'limits_unwritten',
        detail: {},
      }),
  });
  await windows.load();
  return { arbiter: new Arbiter(windows), close: () => windows.write() };
}
