// The programs of a real server and of a real pooler; each test file starts its own with them (server.ts, pgbouncer.ts).
import { spawnSync } from 'node:child_process';
import fs from 'node:fs';
import path from 'node:path';
import { unpackedPackage } from '../../../scripts/debian-package.mjs';
import { postgresBinaries } from '../../../scripts/postgres.mjs';

const remedy =
  'Debian, Ubuntu: apt-get update && apt-get install pgbouncer (it need not run); or name the program: PGBOUNCER=/usr/sbin/pgbouncer';

export function setup() {
  return { TOKENHOUSE_TEST_POSTGRES: postgresBinaries(), ...pgbouncer() };
}

function pgbouncer() {
  const named = process.env.PGBOUNCER;
  const installed = ['/usr/sbin', '/usr/local/sbin', ...(process.env.PATH ?? '').split(path.delimiter)];
  const found = (named ? [named] : installed.map((folder) => path.join(folder, 'pgbouncer'))).find((file) =>
    runs(file, ''),
  );
  if (found !== undefined) return { TOKENHOUSE_TEST_PGBOUNCER: found, TOKENHOUSE_TEST_PGBOUNCER_LIBRARIES: '' };
  if (named) throw new Error(`PGBOUNCER names ${named}, which does not run.`);
  // What it is linked to comes with it; a server has the rest.
  const folder = process.platform === 'linux' ? unpackedPackage('pgbouncer', /^lib(event|c-?ares)/) : '';
  const file = path.join(folder, 'usr', 'sbin', 'pgbouncer');
  const libraries = librariesBelow(path.join(folder, 'usr', 'lib'));
  if (folder === '' || !runs(file, libraries)) throw new Error(`PgBouncer is missing. ${remedy}`);
  return { TOKENHOUSE_TEST_PGBOUNCER: file, TOKENHOUSE_TEST_PGBOUNCER_LIBRARIES: libraries };
}

const runs = (file, libraries) =>
  fs.existsSync(file) &&
  spawnSync(file, ['--version'], { stdio: 'ignore', env: { ...process.env, LD_LIBRARY_PATH: libraries } }).status === 0;

/** `usr/lib/<machine>` */
const librariesBelow = (folder) =>
  fs.existsSync(folder)
    ? fs
        .readdirSync(folder)
        .map((name) => path.join(folder, name))
        .join(path.delimiter)
    : '';
