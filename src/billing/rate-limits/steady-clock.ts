/**
 * Monotonic milliseconds since 1970: starts at the time of day, then follows a monotonic clock. Intervals stay correct when the time of day
 * jumps (reliability S5).
 */
export function steadyClock(startMs: number, monotonicMs: () => number = () => performance.now()): () => number {
  const begunMs = monotonicMs();
  return () => startMs + Math.floor(monotonicMs() - begunMs);
}
