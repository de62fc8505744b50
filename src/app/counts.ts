import type { LimitCounts } from '../billing/rate-limits/counts.ts';
import { LeasedLimits } from '../billing/rate-limits/leased-limits.ts';
import { WholeLimits } from '../billing/rate-limits/whole-limits.ts';
import { Windows } from '../billing/rate-limits/windows.ts';
import type { Log } from '../platform/log.ts';
import type { Store } from './stores.ts';

export interface OpenCounts {
  readonly of: LimitCounts;
  /** Makes the counts durable, and returns the leases. */
  close(): Promise<void>;
}

/** Opens the counts of limits: for this process alone, or for all on its ledger. */
export async function openCounts(
  store: Pick<Store, 'repositories' | 'limits'>,
  now: () => number,
  log: Log,
  lost: () => void,
): Promise<OpenCounts> {
  if (store.limits !== undefined) {
    const shares = new LeasedLimits({ leases: store.limits, now, lost });
    return { of: shares, close: () => shares.close() };
  }
  const windows = new Windows({
    store: {
      load: (request) => store.repositories.loadLimitWindows(request),
      add: (changes) => store.repositories.addLimitWindows({ changes }),
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
  return { of: new WholeLimits(windows), close: () => windows.write() };
}
