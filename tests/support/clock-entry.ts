/**
 * The real program under a clock that a test sets: SIGUSR2 moves the time of day to the milliseconds since 1970 that stand
 * in the file `clock` of the current folder; from there it goes on. Started by tests in place of the program.
 */
import { readFileSync } from 'node:fs';

import { runCommandLine } from '../../src/cli/command-line.ts';

const systemNow = Date.now;
let aheadMs = 0;
Date.now = () => systemNow() + aheadMs;

process.on('SIGUSR2', () => {
  aheadMs = Number(readFileSync('clock', 'utf8')) - systemNow();
});

process.exitCode = await runCommandLine(process.argv.slice(2));
