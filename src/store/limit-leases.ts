import type { WindowCount } from './repositories/limit-windows.ts';

/** One limit of one account or key. */
export interface LimitName {
  /** The id of an account or a key, or the result of `ofModel`. */
  readonly subject: string;
  /** `running`: concurrent requests. */
  readonly kind: 'running' | WindowCount['kind'];
  /** Length of each of its windows; 0 for running requests, which have no windows. */
  readonly lengthMs: number;
}

/** The part of an account or a key that is for one model; ids of both have no `@`. */
export const ofModel = (subject: string, modelId: string): string => `${subject}@${modelId}`;

/** What a process returns of its share of a limit, and what it needs in addition, in one step. Non-negative integers. */
export interface LimitExchange extends LimitName {
  /** When the current window began, by the caller's clock; 0 without windows. */
  readonly startsAt: number;
  /** All shares together never exceed this: an existing excess is not taken back, but nothing is granted. */
  readonly limit: number;
  /** Leased and not used. */
  readonly back: number;
  /** Used beyond the lease: it counts even above the limit. */
  readonly owed: number;
  /** What the waiting requests need; less than `least` helps none of them. */
  readonly least: number;
  readonly need: number;
  /** The desired amount when there is plenty: at most a sixteenth of what is left. */
  readonly want: number;
  /** Whether to forget the share: anything not returned is used up and will never come back. */
  readonly leaves: boolean;
}

export interface LimitAnswer {
  /**
   * The window that counts. Differs from the requested one if the clocks of two processes differ; then nothing was granted or taken back,
   * and what was owed counts there.
   */
  readonly startsAt: number;
  readonly granted: number;
  /** What the caller has now, used or not. */
  readonly held: number;
  /** What all processes have now, used or not. */
  readonly used: number;
}

/** A process's share of a limit. */
export interface LimitShare extends LimitName {
  readonly startsAt: number;
  readonly held: number;
}

/** A limit of which others need what may be idle here. */
export interface WantedLimit extends LimitName {
  /** The number of processes that have or want a share of it, including the caller. */
  readonly contenders: number;
}

export interface LimitListener {
  /** It is unknown whether the last exchange took effect; `shares` is everything that is held. */
  restored(shares: readonly LimitShare[]): void;
  /** This process has expired: its shares are gone, including those of running requests. */
  lost(): void;
}

/**
 * Where the limits of all processes are kept, and leased in shares (money.md, "Limits across replicas";
 * docs/decisions/010-limits-across-replicas.md). One exchange runs at a time; requests that arrive meanwhile form the next one.
 */
export interface LimitLeases {
  /** Called once, before everything else. */
  listen(listener: LimitListener): void;
  /**
   * Until when running requests may be admitted from a share, by `performance.now()`: before that it is given to no other process, whatever
   * happens to this one.
   */
  readonly trustedUntilMs: number;
  /**
   * Carries out what `collect` returns; it is called at the last moment, after `restored`, and returns each limit at most once. Resolves
   * with an answer to each. Rejects with a StoreError: the outcome is unknown, and `restored` reports it before the next exchange.
   */
  exchange(collect: () => readonly LimitExchange[]): Promise<readonly LimitAnswer[]>;
  /** The limits of which this process has a share and others needed one within the last second. */
  wanted(): Promise<readonly WantedLimit[]>;
}

/** A share is at most this fraction of what is left, unless a request waits for more. */
export const plentyParts = 16;
/** How long a process's need of a share stays recorded. */
export const wantedForMs = 1_000;
