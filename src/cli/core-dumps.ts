import { spawnSync } from 'node:child_process';
import { readFileSync } from 'node:fs';

/**
 * Prevents core dumps of this process and its children on disk when it crashes: they would contain request texts (reliability part
 * 4). Returns false if the system would still write one.
 */
export function forbidCoreDumps(): boolean {
  if (process.platform !== 'linux' || mayNotDump()) return true;
  // Node has no call for it; every distribution has this tool of util-linux.
  spawnSync('prlimit', [`--pid=${process.pid}`, '--core=0:0'], { stdio: 'ignore', timeout: 5_000 });
  return mayNotDump();
}

/** The limit in force, according to the kernel. */
function mayNotDump(): boolean {
  try {
    return /^Max core file size +0 /m.test(readFileSync('/proc/self/limits', 'latin1'));
  } catch {
    return false;
  }
}
