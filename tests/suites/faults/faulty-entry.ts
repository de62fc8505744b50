/**
 * The real program with faults that cannot be reached from outside of this file: the next SIGUSR2 makes what the first
 * line of `fault` in the current folder says. Started by tests in place of the program.
 */
import { readFileSync } from 'node:fs';

import { runCommandLine } from '../../../src/cli/command-line.ts';

const canary = 'CANARY of a request\n    at secret (/tmp/src/secret.ts:1:1)';

let isBusy = false;

/** Holds the event loop up for 300 ms, again and again. */
function stayBusy(): void {
  const endAt = performance.now() + 300;
  while (performance.now() < endAt);
  if (isBusy) setImmediate(stayBusy);
}

process.on('SIGUSR2', () => {
  switch (readFileSync('fault', 'utf8').trim()) {
    case 'exception':
      throw new TypeError(canary);
    case 'rejection':
      void Promise.reject(new RangeError(canary));
      return;
    case 'string':
      throw canary;
    case 'busy':
      isBusy = true;
      stayBusy();
      return;
    case 'calm':
      isBusy = false;
      return;
    default:
      throw new Error('an unknown fault');
  }
});

process.exitCode = await runCommandLine(process.argv.slice(2));
