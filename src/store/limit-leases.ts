import type { WindowCount } from './repositories/limit-windows.ts';

/** One limit of one account or key. */
export interface LimitName {
  /** Id of an account or a key. */
  readonly subject: string;
  /** `running`: requests at the same time. */
  readonly kind: 'running' | WindowCount['kind'];
  /** Of each of its windows; 0 for running requests, which have none. */
  readonly lengthMs: number;
}

/** What a process gives back of its share of a limit and what it needs more, in one step. Whole numbers from 0. */
export interface LimitExchange extends LimitName {
  /** When the window began that is now, by the asker's clock; 0 without windows. */
  readonly startsAt: number;
  /** All shares together are never more: what is beyond it already is not asked back, and nothing is granted. */
  readonly limit: number;
  /** Leased and not used. */
  readonly back: number;
  /** Used beyond what was leased: it counts whatever the limit. */
  readonly owed: number;
  /** What those who wait need; less than `least` is of use to none of them. */
  readonly least: number;
  readonly need: number;
  /** What would be good to have, out of plenty: at most a sixteenth of what is left. */
  readonly want: number;
  /** What is not given back is used up, and nothing of it will come back: the share is forgotten. */
  readonly leaves: boolean;
}

export interface LimitAnswer {
  /**
   * The window that counts. Another one than was asked for: the clocks of two processes differ; nothing was granted or taken
   * back, and what was owed counts there.
   */
  readonly startsAt: number;
  readonly granted: number;
  /** What the asker has now, used or not. */
  readonly held: number;
  /** What all have now, used or not. */
  readonly used: number;
}

/** What a process has of a limit. */
export interface LimitShare extends LimitName {
  readonly startsAt: number;
  readonly held: number;
}

/** Others lack what may be idle here. */
export interface WantedLimit extends LimitName {
  /** Those who have a share of it or want one, the asker among them. */
  readonly contenders: number;
}

export interface LimitListener {
  /** What was asked last may have happened or not; this is what is held, all of it. */
  restored(shares: readonly LimitShare[]): void;
  /** This process was taken for dead: its shares are gone, those of running requests too. */
  lost(): void;
}

/**
 * Where the limits of all processes are kept, and leased in shares (money.md, "Limits across replicas"; docs/decisions/010-limits-across-replicas.md).
 * One exchange runs at a time; what is asked meanwhile is the next one.
 */
export interface LimitLeases {
  /** Called once, before all else. */
  listen(listener: LimitListener): void;
  /**
   * Until when running requests may be let in out of a share, by `performance.now()`: nobody gives it to others before, whatever
   * becomes of this process.
   */
  readonly trustedUntilMs: number;
  /**
   * Carries out what `collect` asks, which is called at the last moment, after `restored`; each limit at most once. Resolves
   * with an answer to each. Rejects with a StoreError; then nobody knows, and `restored` tells before the next exchange.
   */
  exchange(collect: () => readonly LimitExchange[]): Promise<readonly LimitAnswer[]>;
  /** The limits of which this process has a share and others lack one, within the last second. */
  wanted(): Promise<readonly WantedLimit[]>;
}

/** A share is at most this part of what is left, unless somebody waits for more. */
export const plentyParts = 16;
/** So long it stands that somebody lacks a share. */
export const wantedForMs = 1_000;
