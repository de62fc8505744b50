/**
 * Steady milliseconds since 1970: read once from the time of day, then counted by a monotonic clock. What it times stays true
 * when the time of day jumps (reliability S5).
 */
export function steadyClock(startMs: number, monotonicMs: () => number = () => performance.now()): () => number {
  const begunMs = monotonicMs();
  return () => startMs + Math.floor(monotonicMs() - begunMs);
}
