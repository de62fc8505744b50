/**
 * Which backends are left out because of their recent behavior: outlier detection by the results of requests, as Envoy does it, and by how
 * long the oldest prompt has waited there. docs/decisions/031-failing-backends.md has the figures and their reasons.
 */

/** A backend's recent behavior. */
export interface BackendHealth {
  /** Consecutive failed requests. */
  failures: number;
  /** Share of its latest requests that it failed, from 0 to 1. */
  failureShare: number;
  /** How often it was left out since its last answer, and since the start. */
  pauses: number;
  ejections: number;
  /** Until then it gets no request, and after that one at a time until it has answered one; 0: it is in use. */
  ejectedUntilMs: number;
  /** It does not even answer probes, so it gets no request at all. */
  isSilent: boolean;
  /** Requests placed there while it was left out; those placed before, which may write for minutes, do not count as probes. */
  probes: number;
}

export const soundHealth = (): BackendHealth => ({
  failures: 0,
  failureShare: 0,
  pauses: 0,
  ejections: 0,
  ejectedUntilMs: 0,
  isSilent: false,
  probes: 0,
});

/** This many consecutive failures end the use of a backend. */
const failuresMax = 3;
/** Weight of the latest request. */
const latestShare = 0.1;
/** A backend that fails a larger share of its requests is left out although it answers others. */
const failureShareMax = 0.5;
const pauseMinMs = 1_000;
const pauseMaxMs = 30_000;

/** Records an answered request. Returns whether that brings the backend back. */
export function answered(health: BackendHealth): boolean {
  const isBack = health.ejectedUntilMs > 0;
  health.failures = 0;
  health.failureShare = isBack ? 0 : health.failureShare * (1 - latestShare);
  health.pauses = 0;
  health.ejectedUntilMs = 0;
  health.isSilent = false;
  return isBack;
}

/** Records a failure that is the backend's own fault. Returns whether that leaves it out: each time for twice as long. */
export function failed(health: BackendHealth, nowMs: number): boolean {
  health.failures++;
  health.failureShare += latestShare * (1 - health.failureShare);
  // Requests from before the pause do not make it longer.
  if (nowMs < health.ejectedUntilMs) return false;
  const isOnProbation = health.ejectedUntilMs > 0;
  if (!isOnProbation && health.failures < failuresMax && health.failureShare <= failureShareMax) return false;
  health.ejectedUntilMs = nowMs + Math.min(pauseMaxMs, pauseMinMs * 2 ** health.pauses++);
  health.ejections++;
  return true;
}

/**
 * Another process has left the backend out, for that long. The cause may be that process's own network, so our own next answer brings the
 * backend back, and our own next failure starts with the shortest pause. Returns whether that leaves it out.
 */
export function ejectedElsewhere(health: BackendHealth, forMs: number, nowMs: number): boolean {
  if (health.ejectedUntilMs > 0) return false;
  health.ejectedUntilMs = nowMs + Math.min(pauseMaxMs, forMs);
  return true;
}

/** The backend has answered another process that had left it out: the pause is over, and one request tries it. */
export function backElsewhere(health: BackendHealth, nowMs: number): void {
  if (health.ejectedUntilMs > nowMs) health.ejectedUntilMs = nowMs;
}

/** The backend did not answer a probe. Returns whether that leaves it out: it may have been left out before. */
export function fellSilent(health: BackendHealth, nowMs: number): boolean {
  if (health.isSilent) return false;
  health.isSilent = true;
  if (health.ejectedUntilMs > 0) return false;
  health.ejectedUntilMs = nowMs;
  health.ejections++;
  return true;
}

/**
 * The backend has answered a probe. Returns whether it was silent, or answered late during a pause: then it is on probation from now on,
 * and the rest of its pause is cancelled.
 */
export function spoke(health: BackendHealth, nowMs: number, isLate = false): boolean {
  if (!health.isSilent && !(isLate && health.ejectedUntilMs > nowMs)) return false;
  health.isSilent = false;
  health.ejectedUntilMs = nowMs;
  return true;
}

/** Whether its failures allow it a request: it is in use, or on probation and no other request is trying it. */
export const isInUse = ({ ejectedUntilMs, isSilent, probes }: BackendHealth, nowMs: number): boolean =>
  ejectedUntilMs === 0 || (!isSilent && nowMs >= ejectedUntilMs && probes === 0);

/** Shorter waits have many causes. */
const overdueMinMs = 3_000;
/** Factor over the time that its speed explains: a server that is also writing many answers reads more slowly than measured. */
const overdueRatio = 10;

/**
 * Whether the oldest prompt has been there far longer than reading it takes: the server hangs, or has no room for another answer, which
 * looks the same from outside. Ends with the next first token there.
 */
export const isOverdue = (
  { readingTokens, readingSinceMs, waiting }: Reading,
  tokensPerSecond: number,
  nowMs: number,
): boolean =>
  waiting.size > 0 &&
  nowMs - readingSinceMs > Math.max(overdueMinMs, (overdueRatio * 1_000 * readingTokens) / tokensPerSecond);

interface Reading {
  readonly readingTokens: number;
  readonly readingSinceMs: number;
  readonly waiting: ReadonlySet<unknown>;
}
