// `npm start`: installs, builds and serves, in one process; the web console is built beside it.
import { setUpProgram } from './build.mjs';
import { buildConsoleBeside } from './console.mjs';
import { launch } from './launch.mjs';

await setUpProgram();
buildConsoleBeside();
await launch(['serve', ...process.argv.slice(2)]);
