import type { OperationServices } from '../accounts/operation.ts';
import { operate } from '../accounts/operations.ts';
import type { Config } from '../config/config.ts';
import type { Log } from '../platform/log.ts';

export interface RetentionServices {
  readonly operations: OperationServices;
  readonly config: () => Pick<Config, 'retention'>;
  readonly log: Log;
}

const dayMs = 86_400_000;

/**
 * Takes one step towards `retention.details_days`, if one is due: like `tokenhouse db prune` it records since when details are
 * kept, also in the audit log, and `UsageRemoval` removes the rows. May be called often, but not concurrently.
 */
export async function moveRetention({ operations, config, log }: RetentionServices): Promise<void> {
  const days = config().retention.detailsDays;
  if (days === undefined) return;
  const now = operations.now();
  const before = await operations.repositories.nextKeptSince({ before: now - days * dayMs, now });
  if (before === undefined) return;
  const { keptSince } = await operate({ kind: 'prune_usage', before }, operations);
  log.service({
    level: 'info',
    event: 'usage_retention_moved',
    detail: { kept_since: new Date(keptSince).toISOString() },
  });
}
