// The client libraries that tests/clients uses. They are installed there, apart from the product, to keep it small.
import fs from 'node:fs';
import path from 'node:path';
import { installLocked, isStarted, root, setup } from './setup.mjs';

/** Tests that need the client libraries, which `npm start` does not install: a separate package. */
export const clientTests = path.join('tests', 'clients');

/** Installs the client libraries, or exits with a message. */
export function installClients() {
  installLocked(path.join(root, clientTests), {
    what: 'the client libraries of the tests (no install scripts)',
    failed: 'The client libraries of the tests could not be installed',
  });
}

/** Their names. They are not bundled, because another release may replace the locked one (`--newest-clients`). */
export const clientPackages = () =>
  Object.keys(JSON.parse(fs.readFileSync(path.join(root, clientTests, 'package.json'), 'utf8')).dependencies);

if (isStarted(import.meta.url)) {
  setup();
  installClients();
}
