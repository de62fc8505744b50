import type { LimitName } from '../../store/limit-leases.ts';

/** A maximum for one account or key: at the same time, or in each window. */
export interface LimitRule extends LimitName {
  readonly limit: number;
}

/** What a request takes of a limit. */
export interface Claim {
  readonly rule: LimitRule;
  readonly amount: number;
}

/** An admitted claim. */
export interface Taken extends Claim {
  /** When its window began; 0 without windows. */
  readonly startsAt: number;
  /** Epoch of the shares that it was taken from; what was taken from earlier ones does not come back. */
  readonly epoch: number;
}

/** All claims were taken, or none, because of those that are lacking now. */
export type Taking<Of extends Claim> = { readonly taken: readonly Taken[] } | { readonly lacking: readonly Of[] };

/** Counts the use of limits, in this process or in several. */
export interface LimitCounts {
  /**
   * Takes all claims or none. At once, wherever this process can decide; a promise where others have to be asked, which rejects
   * with a StoreError when there is no answer.
   */
  take<Of extends Claim>(claims: readonly Of[]): Taking<Of> | Promise<Taking<Of>>;
  /**
   * The request has ended: called once for each claim. `change` is added to what was taken of a window: below 0 it comes back, in
   * the same window; above 0 it counts in the current window. What was running comes back in any case.
   */
  end(taken: Taken, change: number): void;
  /** Use by all processes together, as far as it is known here: never less. */
  used(rule: LimitRule): number;
  /** Milliseconds until the next window begins, more than 0. */
  restMs(rule: LimitRule): number;
}

export const nameOf = ({ subject, kind, lengthMs }: LimitName): string => `${subject} ${kind} ${lengthMs}`;
