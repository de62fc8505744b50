import type { askForStatus } from '../../app/control/control-client.ts';
import type { readContext } from '../read-context.ts';

/** The result of one check. */
export interface Finding {
  readonly check: string;
  readonly state: 'ok' | 'warning' | 'problem';
  readonly found: string;
  /** What else was found, on a separate line. */
  readonly more?: string;
  /** Why it matters, if it is not ok. */
  readonly why?: string;
  /** The command that repairs it, if it is not ok. */
  readonly repair?: string;
}

/** The input of the checks. */
export type Patient = ReturnType<typeof readContext> & {
  readonly status: Awaited<ReturnType<typeof askForStatus>>;
};
