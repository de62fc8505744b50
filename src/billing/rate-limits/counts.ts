import type { LimitName } from '../../store/limit-leases.ts';

/** A maximum for one account or key: concurrent, or in each window. */
export interface LimitRule extends LimitName {
  readonly limit: number;
}

/** The amount that a request takes from a limit. */
export interface Claim {
  readonly rule: LimitRule;
  readonly amount: number;
}

/** An admitted claim. */
export interface Taken extends Claim {
  /** When its window began; 0 without windows. */
  readonly startsAt: number;
  /** Epoch of the shares that it was taken from; amounts from earlier epochs are not returned. */
  readonly epoch: number;
}

/** Either all claims were taken, or none, because of the ones that fall short now. */
export type Taking<Of extends Claim> = { readonly taken: readonly Taken[] } | { readonly lacking: readonly Of[] };

/** Counts the use of limits, in this process or in several. */
export interface LimitCounts {
  /**
   * Takes all claims or none. Synchronous if this process can decide; otherwise a promise, which rejects with a StoreError when the other
   * processes cannot be asked.
   */
  take<Of extends Claim>(claims: readonly Of[]): Taking<Of> | Promise<Taking<Of>>;
  /**
   * Ends a request: called once for each claim. `change` is added to the amount taken from a window: a negative change is returned to the
   * same window; a positive one counts in the current window. A running slot is always returned.
   */
  end(taken: Taken, change: number): void;
  /** Usage by all processes together, as far as known here: never less. */
  used(rule: LimitRule): number;
  /** Milliseconds until the next window begins, more than 0. */
  restMs(rule: LimitRule): number;
}

export const nameOf = ({ subject, kind, lengthMs }: LimitName): string => `${subject} ${kind} ${lengthMs}`;
