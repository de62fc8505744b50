import type { WindowCount } from './repositories/limit-windows.ts';

/** One limit of one account or key. */
export interface LimitName {
  /** Id of an account or a key. */
  readonly subject: string;
  /** `running`: requests at the same time. */
  readonly kind: 'running' | WindowCount['kind'];
  /** Length of each of its windows; 0 for running requests, which have none. */
  readonly lengthMs: number;
}

/** What a process returns of its share of a limit, and what it needs more, in one step. Whole numbers from 0. */
export interface LimitExchange extends LimitName {
  /** When the current window began, by the asker's clock; 0 without windows. */
  readonly startsAt: number;
  /** All shares together never exceed this: an existing excess is not taken back, but nothing is granted. */
  readonly limit: number;
  /** Leased and not used. */
  readonly back: number;
  /** Used beyond what was leased: it counts even above the limit. */
  readonly owed: number;
  /** What the waiting requests need; less than `least` helps none of them. */
  readonly least: number;
  readonly need: number;
  /** What would be good to have when there is plenty: at most a sixteenth of what is left. */
  readonly want: number;
  /** What is not returned is used up and will never come back: the share is forgotten. */
  readonly leaves: boolean;
}

export interface LimitAnswer {
  /**
   * The window that counts. Differs from the one asked for when the clocks of two processes differ; then nothing was granted or
   * taken back, and what was owed counts there.
   */
  readonly startsAt: number;
  readonly granted: number;
  /** What the asker has now, used or not. */
  readonly held: number;
  /** What all have now, used or not. */
  readonly used: number;
}

/** A process's share of a limit. */
export interface LimitShare extends LimitName {
  readonly startsAt: number;
  readonly held: number;
}

/** Others lack what may be idle here. */
export interface WantedLimit extends LimitName {
  /** The processes that have or want a share of it, the asker among them. */
  readonly contenders: number;
}

export interface LimitListener {
  /** The last exchange may have happened or not; this is everything that is held. */
  restored(shares: readonly LimitShare[]): void;
  /** This process has expired: its shares are gone, including those of running requests. */
  lost(): void;
}

/**
 * Where the limits of all processes are kept, and leased in shares (money.md, "Limits across replicas";
 * docs/decisions/010-limits-across-replicas.md). One exchange runs at a time; what is asked meanwhile is the next one.
 */
export interface LimitLeases {
  /** Called once, before all else. */
  listen(listener: LimitListener): void;
  /**
   * Until when running requests may be admitted out of a share, by `performance.now()`: it is given to no other process before,
   * whatever becomes of this one.
   */
  readonly trustedUntilMs: number;
  /**
   * Carries out what `collect` asks for; it is called at the last moment, after `restored`, with each limit at most once.
   * Resolves with an answer to each. Rejects with a StoreError: the outcome is unknown, and `restored` tells it before the next
   * exchange.
   */
  exchange(collect: () => readonly LimitExchange[]): Promise<readonly LimitAnswer[]>;
  /** The limits of which this process has a share and others lack one, within the last second. */
  wanted(): Promise<readonly WantedLimit[]>;
}

/** A share is at most this part of what is left, unless somebody waits for more. */
export const plentyParts = 16;
/** How long a process's lack of a share stays on record. */
export const wantedForMs = 1_000;
