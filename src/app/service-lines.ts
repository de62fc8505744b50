import type { FilterOutcome } from '../accounts/key-look-ups.ts';
import type { Backend } from '../inference/pipeline/backend-pool.ts';
import type { OnCompared } from '../inference/routing/comparison.ts';
import type { OnHealth } from '../inference/routing/fleet.ts';
import type { Log, ServiceRecord } from '../platform/log.ts';

/** Tells the operator that a backend is excluded because it fails, or is back. */
const healthLog =
  (log: Log) =>
  (model: string): OnHealth<Backend> =>
  ({ label, failures, failureShare, ejectedUntilMs, isSilent }, ejectedAtMs) => {
    const backend = { model, backend: label };
    if (ejectedAtMs === undefined) return log.service({ level: 'info', event: 'backend_returned', detail: backend });
    return log.service({
      level: 'warn',
      event: 'backend_ejected',
      detail: {
        ...backend,
        failures_in_a_row: failures,
        failure_share: Number(failureShare.toFixed(2)),
        // One that does not answer is excluded until it does.
        ...(isSilent ? { silent: true } : { seconds: Math.round((ejectedUntilMs - ejectedAtMs) / 1_000) }),
      },
    });
  };

/** Tells the operator that a backend is worse than its peers, and by what, or is not any more. */
const comparisonLog =
  (log: Log) =>
  (model: string): OnCompared<Backend> =>
  ({ label, quality }, change) => {
    const backend = { model, backend: label };
    const worse = quality?.worse;
    if (change === 'recovered' || worse === undefined)
      return log.service({ level: 'info', event: 'backend_recovered', detail: backend });
    return log.service({
      level: 'warn',
      event: 'backend_worse',
      detail: {
        ...backend,
        by: worse.by,
        failure_share: Number(worse.share.toFixed(3)),
        peers_share: Number(worse.peersShare.toFixed(3)),
      },
    });
  };

/** What the log says of how backends do. */
export const backendLog = (log: Log) => ({ onHealth: healthLog(log), onCompared: comparisonLog(log) });

/** The log line for more keys than fit into memory. */
export const filterLine = (outcome: FilterOutcome): ServiceRecord =>
  'error' in outcome
    ? {
        level: 'warn',
        event: 'key_filter_failed',
        detail: { reason: outcome.error instanceof Error ? outcome.error.message : String(outcome.error) },
      }
    : {
        level: 'info',
        event: 'key_filter',
        detail: { keys: outcome.keys, seconds: Number((outcome.elapsedMs / 1_000).toFixed(1)) },
      };
