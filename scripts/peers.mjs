// The programs of others that `npm run bench -- --peers` measures: each is installed once, among the caches. Each function returns the
// program's file, or throws an error that says what is missing.
import { spawnSync } from 'node:child_process';
import fs from 'node:fs';
import path from 'node:path';
import { cacheFolder } from './cache-folder.mjs';
import { unpackedPackage } from './debian-package.mjs';
import { root, say } from './setup.mjs';

/** nginx: the installed one, else Debian's package, unpacked. */
export function nginxProgram() {
  const runs = (file) => spawnSync(file, ['-v'], { stdio: 'ignore' }).status === 0;
  if (runs('nginx')) return 'nginx';
  const file = path.join(unpackedPackage('nginx-light', /^nginx$/), 'usr', 'sbin', 'nginx');
  if (runs(file)) return file;
  throw new Error('install it (Debian, Ubuntu: apt-get install nginx-light)');
}

const smgVersion = '1.13.0';

/** SMG, the router of the SGLang project: the package `smg` of the Python registry. */
export function smgProgram() {
  const folder = cacheFolder(`smg-${smgVersion}`);
  const program = path.join(folder, 'bin', 'smg');
  const stamp = path.join(folder, '.installed');
  if (fs.existsSync(stamp)) return program;
  say(`smg      installing ${smgVersion} below ${folder}`);
  run(
    'python3',
    ['-m', 'venv', '--clear', folder],
    'install Python 3.9 or later (Debian: apt-get install python3-venv)',
  );
  const python = path.join(folder, 'bin', 'python');
  run(python, ['-m', 'pip', 'install', '--quiet', `smg==${smgVersion}`], 'the Python registry must be reachable');
  fs.writeFileSync(stamp, '');
  return program;
}

/** Bifrost's core behind our own thin HTTP server (bench/bifrost-core), built with Go. */
export function bifrostProgram() {
  const source = path.join(root, 'bench', 'bifrost-core');
  const names = ['main.go', 'go.mod'];
  const texts = names.map((name) => fs.readFileSync(path.join(source, name), 'utf8')).join('\n');
  const folder = cacheFolder('bifrost-core');
  const program = path.join(folder, 'bifrost-core');
  const stamp = path.join(folder, '.built');
  if (fs.existsSync(stamp) && fs.readFileSync(stamp, 'utf8') === texts) return program;
  say(`bifrost  building its core below ${folder}: some minutes of a processor`);
  for (const name of names) fs.copyFileSync(path.join(source, name), path.join(folder, name));
  // It writes down the versions of what those three modules need, which theirs fix.
  const parameters = ['go', 'build', '-mod=mod', '-trimpath', '-o', program, '.'];
  run('nice', parameters, 'install Go 1.26 or newer (https://go.dev/doc/install)', { cwd: folder });
  fs.writeFileSync(stamp, texts);
  return program;
}

function run(command, parameters, otherwise, options = {}) {
  const { status, error } = spawnSync(command, parameters, { stdio: ['ignore', 2, 2], ...options });
  if (status !== 0)
    throw new Error(
      `${path.basename(command)} ${parameters[1]} failed${error ? ` (${error.message})` : ''}: ${otherwise}`,
    );
}
