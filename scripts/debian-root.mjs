// A minimal Debian 12, made once with debootstrap and kept as an archive among the fetched tools, for tests of installations on a
// file system that has nothing else.
import { spawnSync } from 'node:child_process';
import fs from 'node:fs';
import path from 'node:path';
import { cacheFolder } from './cache-folder.mjs';

const release = 'bookworm';
const packageOf = {
  'dpkg-deb': 'dpkg',
  unshare: 'util-linux',
  nsenter: 'util-linux',
  ip: 'iproute2',
  'systemd-nspawn': 'systemd-container',
};

/** Reports what is missing. `tools`: programs that the suite needs besides debootstrap. */
export function needRoot(tools) {
  if (process.platform !== 'linux' || process.arch !== 'x64') throw new Error('this suite is for Linux on x64 alone');
  if (process.getuid() !== 0) throw new Error('only root may change into a root of its own: start it with sudo');
  const missing = [...tools, 'debootstrap'].filter((tool) => spawnSync(tool, ['--version']).error !== undefined);
  if (missing.length > 0)
    throw new Error(
      `missing: ${missing.join(', ')}. Debian and Ubuntu: apt-get install ${missing.map((tool) => packageOf[tool] ?? tool).join(' ')}`,
    );
}

/** Returns the archive. With packages it has a separate name: `debianRoot('systemd', ['systemd', 'dbus'])`. */
export function debianRoot(name = '', packages = []) {
  const folder = cacheFolder(['debian', release, name].filter(Boolean).join('-'));
  const archive = path.join(folder, 'root.tar');
  if (fs.existsSync(archive)) return archive;
  const making = fs.mkdtempSync(path.join(folder, 'making-'));
  try {
    process.stderr.write(`fetch    ${["Debian's base", release, ...packages].join(', ')}, once\n`);
    const root = path.join(making, 'root');
    const wanted = packages.length === 0 ? [] : [`--include=${packages.join(',')}`];
    const made = spawnSync('debootstrap', ['--variant=minbase', ...wanted, release, root], { encoding: 'utf8' });
    if (made.status !== 0)
      throw new Error(
        `debootstrap could not make a ${release}; it needs Debian's mirror. It said: ${made.stdout.slice(-500)}${made.stderr.slice(-500)}`,
      );
    fs.rmSync(path.join(root, 'var/cache/apt/archives'), { recursive: true });
    const packed = `${archive}.making`;
    if (spawnSync('tar', ['-cf', packed, '-C', root, '.'], { stdio: ['ignore', 2, 2] }).status !== 0)
      throw new Error(`${packed} could not be written with tar`);
    fs.renameSync(packed, archive);
  } finally {
    fs.rmSync(making, { recursive: true, force: true });
  }
  return archive;
}
