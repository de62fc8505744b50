import { availableParallelism } from 'node:os';
import { setFlagsFromString } from 'node:v8';

/** Of V8: threads that mark, sweep and copy beside the one that runs the program. */
const flags = ['--no-concurrent-marking', '--no-concurrent-sweeping', '--no-parallel-scavenge'];

/**
 * Where there is one core, V8's collecting threads take it from the thread that serves, for 50 ms at a time: it collects by
 * itself then, in steps. At 200 streams on one core the first token's p99 is 13 ms instead of 54 (bench/results.md). To be
 * called before anything is served. Returns whether it was done.
 */
export function collectAlone(cores = availableParallelism()): boolean {
  if (cores > 1) return false;
  for (const flag of flags) setFlagsFromString(flag);
  return true;
}
