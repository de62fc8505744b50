/**
 * Milliseconds since 1970 that pass evenly: read once from the time of day, from there on counted by a clock that nobody
 * sets. What is timed by it stays true when the time of day jumps (reliability S5).
 */
export function steadyClock(startMs: number, monotonicMs: () => number = () => performance.now()): () => number {
  const begunMs = monotonicMs();
  return () => startMs + Math.floor(monotonicMs() - begunMs);
}
