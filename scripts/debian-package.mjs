// Unpacks programs and libraries of Debian packages into our own folder: needs no root, and installs nothing. Uses only Node's own modules.
import { spawnSync } from 'node:child_process';
import fs from 'node:fs';
import path from 'node:path';
import { cacheFolder } from './cache-folder.mjs';

const quiet = { stdio: ['ignore', 2, 2] };

/**
 * Returns the folder that the package is unpacked into, with those of its dependencies whose names `alsoNeeds` matches. What could
 * not be fetched is missing, so check for the file.
 */
export function unpackedPackage(name, alsoNeeds = /^$/) {
  const folder = cacheFolder(name);
  if (fs.existsSync(path.join(folder, 'usr'))) return folder;
  if (!download(folder, [name])) {
    spawnSync('apt-get', ['update'], quiet);
    download(folder, [name]);
  }
  const needed = packagesIn(folder)
    .flatMap(dependenciesOf)
    .filter((one) => alsoNeeds.test(one));
  if (needed.length > 0) download(folder, needed);
  for (const file of packagesIn(folder)) spawnSync('dpkg', ['-x', file, '.'], { cwd: folder, ...quiet });
  return folder;
}

const download = (folder, names) =>
  spawnSync('apt-get', ['download', ...names], { cwd: folder, ...quiet }).status === 0;

const packagesIn = (folder) =>
  fs
    .readdirSync(folder)
    .filter((name) => name.endsWith('.deb'))
    .map((name) => path.join(folder, name));

/** Only the names: `libevent-2.1-7 (>= 2.1.8-stable) | other` becomes `libevent-2.1-7`. */
function dependenciesOf(file) {
  const { stdout } = spawnSync('dpkg-deb', ['--field', file, 'Depends'], { encoding: 'utf8' });
  return (stdout ?? '').split(',').map((one) => /^\s*([^\s(|:]*)/.exec(one)[1]);
}
