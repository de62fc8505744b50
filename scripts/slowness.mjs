// How slow this machine currently is, compared with the quiet one on which limits and times were measured (bench/results.md): 1 is
// as fast. The same tests took 8 minutes of two processors one day and 40 the next, on a host that gave the machine a fifth of its
// own. A limit is meant to detect a test that hangs, so it is longer by this factor; CI leaves out what would no longer fit.
import { spawnSync } from 'node:child_process';
import { isStarted } from './setup.mjs';

/** Time to start Node as tests do (scripts/test.mjs), which they do most. In ms, on the quiet machine. */
const quietMs = 20;
/** Beyond this, limits would be useless. */
const slownessMax = 8;

/** Measured by the quickest of five starts, because the others had to share a processor. */
export function slowness() {
  const times = Array.from({ length: 5 }, () => {
    const startedAt = performance.now();
    spawnSync(process.execPath, ['-e', '0'], { env: { ...process.env, NODE_EXTRA_CA_CERTS: undefined } });
    return performance.now() - startedAt;
  });
  return Math.min(slownessMax, Math.max(1, Math.min(...times) / quietMs));
}

// For a shell, which has no fractions: in hundredths.
if (isStarted(import.meta.url)) process.stdout.write(`${Math.round(slowness() * 100)}\n`);
