/** How a backend has done lately; only the functions here change it. */
export interface BackendHealth {
  /** Requests that it failed in a row. */
  failures: number;
  /** Part of its latest requests that it failed, from 0 to 1. */
  failureShare: number;
  /** Since it last answered. */
  ejections: number;
  /** Until then it gets no request, and afterwards one at a time until it has answered one; 0: it is in use. */
  ejectedUntilMs: number;
}

export const soundHealth = (): BackendHealth => ({ failures: 0, failureShare: 0, ejections: 0, ejectedUntilMs: 0 });

/** So many in a row end the use of a backend. */
const failuresMax = 3;
/** Weight of the latest request. */
const latestShare = 0.1;
/** One that fails so many of its requests, with answers in between, is left out too. */
const failureShareMax = 0.5;
const pauseMinMs = 1_000;
const pauseMaxMs = 30_000;

/** It has answered a request. Returns whether it comes back by that. */
export function answered(health: BackendHealth): boolean {
  const isBack = health.ejectedUntilMs > 0;
  health.failures = 0;
  health.failureShare = isBack ? 0 : health.failureShare * (1 - latestShare);
  health.ejections = 0;
  health.ejectedUntilMs = 0;
  return isBack;
}

/** It has failed a request by its own fault. Returns whether it is ejected by that: each time for twice as long. */
export function failed(health: BackendHealth, nowMs: number): boolean {
  health.failures++;
  health.failureShare += latestShare * (1 - health.failureShare);
  // Requests from before the ejection do not make it longer.
  if (nowMs < health.ejectedUntilMs) return false;
  const isOnProbation = health.ejectedUntilMs > 0;
  if (!isOnProbation && health.failures < failuresMax && health.failureShare <= failureShareMax) return false;
  health.ejectedUntilMs = nowMs + Math.min(pauseMaxMs, pauseMinMs * 2 ** health.ejections++);
  return true;
}

/** Whether it may get a request: in use, or on probation with nothing to do. */
export const isUsable = ({ ejectedUntilMs, running }: BackendHealth & { readonly running: number }, nowMs: number): boolean =>
  ejectedUntilMs === 0 || (nowMs >= ejectedUntilMs && running === 0);
