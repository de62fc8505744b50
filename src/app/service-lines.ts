import type { FilterOutcome } from '../accounts/key-look-ups.ts';
import type { Backend } from '../inference/pipeline/backend-pool.ts';
import type { OnHealth } from '../inference/routing/fleet.ts';
import type { Log, ServiceRecord } from '../platform/log.ts';

/** Tells the operator that a backend is excluded because it fails, or is back. */
export const healthLog =
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
