// `npm start`: installs, builds and serves, in one process.
import { setUpProgram } from './build.mjs';
import { launch } from './launch.mjs';

await setUpProgram();
await launch(['serve', ...process.argv.slice(2)]);
