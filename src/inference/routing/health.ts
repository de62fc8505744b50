/**
 * Which backends are left out because of how they did lately: outlier detection by what requests met there, as Envoy does it, and by
 * how long the oldest prompt there has waited. docs/decisions/031-failing-backends.md has the figures and their reasons.
 */

/** How a backend has done lately. */
export interface BackendHealth {
  /** Requests that it failed in a row. */
  failures: number;
  /** Part of its latest requests that it failed, from 0 to 1. */
  failureShare: number;
  /** How often it was left out since it last answered, and since the start. */
  pauses: number;
  ejections: number;
  /** Until then it gets no request, and afterwards one at a time until it has answered one; 0: it is in use. */
  ejectedUntilMs: number;
  /** It answers nothing, not even a look, so it gets no request at all. */
  isSilent: boolean;
  /** Requests there that it got while it was left out; those from before, which may write for minutes, try nothing. */
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

/** So many in a row end the use of a backend. */
const failuresMax = 3;
/** Weight of the latest request. */
const latestShare = 0.1;
/** One that fails this part of its requests is left out although it answers others. */
const failureShareMax = 0.5;
const pauseMinMs = 1_000;
const pauseMaxMs = 30_000;

/** It has answered a request. Returns whether that brings it back. */
export function answered(health: BackendHealth): boolean {
  const isBack = health.ejectedUntilMs > 0;
  health.failures = 0;
  health.failureShare = isBack ? 0 : health.failureShare * (1 - latestShare);
  health.pauses = 0;
  health.ejectedUntilMs = 0;
  health.isSilent = false;
  return isBack;
}

/** It has failed a request by its own fault. Returns whether that leaves it out: each time for twice as long. */
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
 * Another process has left it out, for that long. What one of them meets may be its own network, so one's own next answer brings the
 * backend back, and one's own next failure begins with the shortest pause. Returns whether that leaves it out.
 */
export function ejectedElsewhere(health: BackendHealth, forMs: number, nowMs: number): boolean {
  if (health.ejectedUntilMs > 0) return false;
  health.ejectedUntilMs = nowMs + Math.min(pauseMaxMs, forMs);
  return true;
}

/** It has answered another process that had left it out: the pause is over, and one request tries it. */
export function backElsewhere(health: BackendHealth, nowMs: number): void {
  if (health.ejectedUntilMs > nowMs) health.ejectedUntilMs = nowMs;
}

/** It did not answer a look. Returns whether that leaves it out: it may have been left out before. */
export function fellSilent(health: BackendHealth, nowMs: number): boolean {
  if (health.isSilent) return false;
  health.isSilent = true;
  if (health.ejectedUntilMs > 0) return false;
  health.ejectedUntilMs = nowMs;
  health.ejections++;
  return true;
}

/**
 * It has answered a look. Returns whether it was silent, or answered late in a pause: then it is on probation from now on, whatever was
 * left of its pause.
 */
export function spoke(health: BackendHealth, nowMs: number, isLate = false): boolean {
  if (!health.isSilent && !(isLate && health.ejectedUntilMs > nowMs)) return false;
  health.isSilent = false;
  health.ejectedUntilMs = nowMs;
  return true;
}

/** Whether it may get a request as far as its failures go: it is in use, or on probation and no other request tries it. */
export const isInUse = ({ ejectedUntilMs, isSilent, probes }: BackendHealth, nowMs: number): boolean =>
  ejectedUntilMs === 0 || (!isSilent && nowMs >= ejectedUntilMs && probes === 0);

/** Shorter waits have many causes. */
const overdueMinMs = 3_000;
/** Times what its speed explains: a server that writes many answers beside reads more slowly than it was measured to. */
const overdueRatio = 10;

/**
 * Whether the oldest prompt has been there for far longer than reading it takes: the server hangs, or has no room for another
 * answer, which from outside is the same. It ends with the next first token there.
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
