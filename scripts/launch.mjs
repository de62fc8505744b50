// Runs the built program inside this very process, so that signals, the terminal and the exit code are its own.
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
 * npm hands a signal on to the program although the terminal, or a service manager, has sent it to the whole group already.
 * The second of two equal signals within a moment is that echo, not somebody who has lost patience.
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
