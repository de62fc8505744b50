// `npm run suite NAME [word…] [-- options]`: a suite beside the ordinary tests; words and options are those of `npm test`.
// `npm run suite all` runs every suite, one after the other, including those that CI leaves out; a failure does not stop the others.
// Without a name, it lists them; `-- --json` does so for a workflow.
import { spawnSync } from 'node:child_process';
import path from 'node:path';
import { fail, root, say } from './setup.mjs';
import { suites } from './suites.mjs';

const [name, ...rest] = process.argv.slice(2);
const isSuite = Object.hasOwn(suites, name ?? '');
if (name === '--json') {
  const rows = Object.entries(suites).map(([suite, { minutes, root: asRoot = false, apt = '' }]) => ({
    suite,
    // Includes installing and building; a shared machine is twice as slow as a quiet one.
    minutes: 2 * minutes + 40,
    root: asRoot,
    apt,
  }));
  process.stdout.write(`${JSON.stringify(rows)}\n`);
} else if (name === undefined) {
  for (const [suite, { about }] of Object.entries(suites)) say(`${suite.padEnd(15)} ${about}`);
} else if (!isSuite && name !== 'all') {
  fail(`There is no suite '${name}'. npm run suite lists them.`);
} else {
  const failed = (isSuite ? [name] : Object.keys(suites)).filter((suite) => {
    if (!isSuite) say(`\n=== ${suite}`);
    const command = [path.join(root, 'scripts', 'test.mjs'), '--suite', suite, ...rest];
    return spawnSync(process.execPath, command, { cwd: root, stdio: 'inherit' }).status !== 0;
  });
  if (!isSuite) say(failed.length === 0 ? 'every suite passed' : `failed: ${failed.join(', ')}`);
  process.exitCode = failed.length === 0 ? 0 : 1;
}
