// The client libraries that tests/clients uses: installed there, apart from the product, which stays small without them.
import fs from 'node:fs';
import path from 'node:path';
import { build, buildClientTests, clientTests } from './build.mjs';
import { installLocked, isStarted, root, setup } from './setup.mjs';

/** After `setup` and `build`; leaves the process with words when it is not possible. */
export function setUpClients() {
  installClients();
  buildClientTests();
  linkClients();
}

export function installClients() {
  installLocked(path.join(root, clientTests), {
    what: 'the client libraries of the tests (no install scripts)',
    failed: 'The client libraries of the tests could not be installed',
  });
}

/** The compiled tests look for packages upwards from where they lie. */
function linkClients() {
  const link = path.join(root, 'dist', clientTests, 'node_modules');
  const target = path.join(root, clientTests, 'node_modules');
  if (fs.lstatSync(link, { throwIfNoEntry: false }) !== undefined) {
    if (fs.existsSync(link) && fs.realpathSync(link) === fs.realpathSync(target)) return;
    fs.rmSync(link);
  }
  fs.symlinkSync(target, link, 'junction');
}

if (isStarted(import.meta.url)) {
  setup();
  if (process.argv.includes('--install-only')) installClients();
  else {
    build();
    setUpClients();
  }
}
