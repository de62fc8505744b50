// `npm start`: installs, builds and serves, in one process; the web console and the documentation are built in another.
import { buildBeside } from './beside.mjs';
import { setUpProgram } from './bundle.mjs';
import { launch } from './launch.mjs';

await setUpProgram();
buildBeside();
await launch(['serve', ...process.argv.slice(2)]);
