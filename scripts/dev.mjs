// `npm run dev [-- options of serve]`: builds and serves, again after every change of a source. The data stay: each start uses the
// same folder. Ctrl-C ends it.
import { spawn } from 'node:child_process';
import path from 'node:path';
import { dist, watchProgram } from './bundle.mjs';
import { watchConsole } from './console.mjs';
import { say, setup } from './setup.mjs';

setup();
let child;
let isWanted = false;

/** Runs one at a time: a database has one owner, so the next start waits until the previous one has ended. */
function restart() {
  isWanted = true;
  if (child !== undefined) {
    child.kill('SIGTERM');
    return;
  }
  isWanted = false;
  child = spawn(process.execPath, [path.join(dist, 'main.js'), 'serve', ...process.argv.slice(2)], {
    stdio: 'inherit',
  });
  child.on('exit', (code, signal) => {
    child = undefined;
    if (isWanted) restart();
    else say(`dev      the service ended (${signal ?? code}); it starts again with the next change`);
  });
}

const stopWatching = await watchProgram((seconds) => {
  say(`build    ${seconds} s`);
  restart();
});
const stopWatchingConsole = await watchConsole();
for (const signal of ['SIGINT', 'SIGTERM'])
  process.once(signal, async () => {
    await Promise.all([stopWatching(), stopWatchingConsole()]);
    isWanted = false;
    if (child === undefined) process.exit(0);
    child.once('exit', (code) => process.exit(code ?? 1));
    child.kill(signal);
  });
