// A Debian 12 with nothing but its base, made once with debootstrap, as an archive among the fetched tools.
import { spawnSync } from 'node:child_process';
import fs from 'node:fs';
import path from 'node:path';
import { cacheFolder } from '../../../scripts/cache-folder.mjs';

const release = 'bookworm';
const tools = { 'dpkg-deb': 'dpkg', unshare: 'util-linux', debootstrap: 'debootstrap', lintian: 'lintian' };

export function setup() {
  if (process.platform !== 'linux' || process.arch !== 'x64')
    throw new Error('the Debian package is tried on Linux on x64 alone');
  if (process.getuid() !== 0)
    throw new Error('a package is installed in a root of its own, which only root may do: start it with sudo');
  const missing = Object.keys(tools).filter((tool) => spawnSync(tool, ['--version']).error !== undefined);
  if (missing.length > 0)
    throw new Error(
      `missing: ${missing.join(', ')}. Debian and Ubuntu: apt-get install ${missing.map((tool) => tools[tool]).join(' ')}`,
    );
  return { DEBIAN_ROOT: debianRoot() };
}

function debianRoot() {
  const folder = cacheFolder(`debian-${release}`);
  const archive = path.join(folder, 'root.tar');
  if (fs.existsSync(archive)) return archive;
  const making = fs.mkdtempSync(path.join(folder, 'making-'));
  try {
    process.stderr.write(`fetch    Debian's base (${release}), once\n`);
    const root = path.join(making, 'root');
    const made = spawnSync('debootstrap', ['--variant=minbase', release, root], { encoding: 'utf8' });
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
