// The newest client libraries for the tests, because people install those instead of the ones locked here.
import fs from 'node:fs';
import path from 'node:path';
import { pathToFileURL } from 'node:url';
import { clientTests } from './clients.mjs';
import { installedPackages, newestVersion } from './npm-package.mjs';
import { fail, root, say } from './setup.mjs';

/** Returns modules to import before the tests, which resolve the names of the locked libraries to their newest releases. */
export function newestClients() {
  const locked = JSON.parse(fs.readFileSync(path.join(root, clientTests, 'package.json'), 'utf8'));
  try {
    // In one folder, because they import each other.
    const packages = Object.keys(locked.dependencies).map((name) => {
      const version = newestVersion(name, 'clients');
      say(`client   ${name} ${version}`);
      return [name, version];
    });
    const folder = installedPackages(packages, 'clients');
    const url = pathToFileURL(path.join(root, 'scripts', 'import-clients.mjs'));
    url.search = new URLSearchParams(packages.map(([name]) => [name, folder])).toString();
    return [url.href];
  } catch (error) {
    return fail(`The newest clients could not be made ready: ${error.message}.`);
  }
}
