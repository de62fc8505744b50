/** Limits for fetching one model file; every wait has one. */
export interface FetchLimits {
  readonly connectTimeoutMs: number;
  /** Longest silence of a host, before its response and within it. */
  readonly idleTimeoutMs: number;
  /** Longest time without a new byte from a package tool, which asks its index first and may retry by itself. */
  readonly toolIdleTimeoutMs: number;
  /** Longest time in total, including waiting for another process. */
  readonly totalTimeoutMs: number;
  /** Consecutive tries without a new byte, and tries in total, per URL. */
  readonly fruitlessTriesMax: number;
  readonly triesMax: number;
  /** First pause between tries; doubles up to `pauseMaxMs`. */
  readonly pauseMs: number;
  readonly pauseMaxMs: number;
  readonly redirectsMax: number;
}

export const defaultFetchLimits: FetchLimits = {
  connectTimeoutMs: 10_000,
  idleTimeoutMs: 30_000,
  toolIdleTimeoutMs: 180_000,
  totalTimeoutMs: 6 * 3600_000,
  fruitlessTriesMax: 4,
  triesMax: 100,
  pauseMs: 500,
  pauseMaxMs: 10_000,
  redirectsMax: 5,
};
