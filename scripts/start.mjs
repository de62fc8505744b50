// `npm start`: installs, builds and serves, in one process.
import { build } from './build.mjs';
import { launch } from './launch.mjs';
import { setup } from './setup.mjs';

setup();
build();
await launch(['serve', ...process.argv.slice(2)]);
