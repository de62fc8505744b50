import { spawnSync } from 'node:child_process';
import { readFileSync } from 'node:fs';

/**
 * Keeps this process, and what it starts, from leaving its memory on the disk when it crashes: what requests say is in it
 * (reliability part 4). False when the system would still write one.
 */
export function forbidCoreDumps(): boolean {
  if (process.platform !== 'linux' || mayNotDump()) return true;
  // Node has no call for it; this tool of util-linux is on every distribution.
  spawnSync('prlimit', [`--pid=${process.pid}`, '--core=0:0'], { stdio: 'ignore', timeout: 5_000 });
  return mayNotDump();
}

/** The limit that holds, as the kernel tells it. */
function mayNotDump(): boolean {
  try {
    return /^Max core file size +0 /m.test(readFileSync('/proc/self/limits', 'latin1'));
  } catch {
    return false;
  }
}
