// `npm start`: installs, builds and serves, in one process. The web console is built beside it: the service is there first.
import { spawn } from 'node:child_process';
import path from 'node:path';
import { setUpProgram } from './build.mjs';
import { launch } from './launch.mjs';
import { root } from './setup.mjs';

await setUpProgram();
const args = process.argv.slice(2);
const building = spawn(process.execPath, [path.join(root, 'scripts', 'console.mjs'), '--quiet'], {
  stdio: ['ignore', 'ignore', 'inherit'],
});
// A service that ends does not wait for it; what it has not finished the next start does.
building.on('error', () => {});
building.unref();
process.once('exit', () => building.kill());
await launch(['serve', ...args]);
