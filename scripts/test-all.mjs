// `npm run test:all [-- options]`: every suite, one after the other, also those that CI leaves out; what fails does not hide the
// others. Options go on to each.
import { spawnSync } from 'node:child_process';
import path from 'node:path';
import { root, say } from './setup.mjs';
import { suites } from './suites.mjs';

const failed = Object.keys(suites).filter((suite) => {
  say(`\n=== ${suite}`);
  const command = [path.join(root, 'scripts', 'test.mjs'), '--suite', suite, ...process.argv.slice(2)];
  return spawnSync(process.execPath, command, { cwd: root, stdio: 'inherit' }).status !== 0;
});
say(failed.length === 0 ? 'every suite passed' : `failed: ${failed.join(', ')}`);
process.exitCode = failed.length === 0 ? 0 : 1;
