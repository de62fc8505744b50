// Runs the built program inside this process, so that it gets the signals and the terminal, and sets the exit code.
import fs from 'node:fs';
import path from 'node:path';
import { pathToFileURL } from 'node:url';
import { fail, nodeProblem, root } from './basics.mjs';

export async function launch(args) {
  const problem = nodeProblem(process.versions.node);
  if (problem !== undefined) fail(problem);
  const main = path.join(root, 'dist', 'main.js');
  if (!fs.existsSync(main))
    fail('Tokenhouse is not built yet. Run `npm start` to build and start it, or `npm run build` to build it only.');
  process.argv = [process.execPath, main, ...args];
  joinRepeatedSignals();
  await import(pathToFileURL(main).href);
}

const sameKeypressMs = 300;

/**
 * npm forwards a signal to the program although the terminal, or a service manager, has already sent it to the whole group. The
 * second of two equal signals in quick succession is that echo, not an impatient user.
 */
function joinRepeatedSignals() {
  const lastAt = new Map();
  const emit = process.emit;
  process.emit = function (name, ...rest) {
    if (name === 'SIGINT' || name === 'SIGTERM') {
      const now = performance.now();
      const echo = now - (lastAt.get(name) ?? -Infinity) < sameKeypressMs;
      lastAt.set(name, now);
      if (echo) return true;
    }
    return emit.call(this, name, ...rest);
  };
}
