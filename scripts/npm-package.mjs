// Packages of the npm registry in separate folders, only for tests; they never touch node_modules.
import { createHash } from 'node:crypto';
import fs from 'node:fs';
import path from 'node:path';
import { cacheFolder } from './cache-folder.mjs';
import { runNpm, say } from './setup.mjs';

/** Returns the newest release that `accepts` allows, or the newest that is kept if the registry cannot be reached. */
export function newestVersion(packageName, kind, accepts = () => true) {
  const asked = runNpm(['view', packageName, 'versions', '--json', '--loglevel=error'], { capture: true });
  const released = asked.status === 0 ? JSON.parse(asked.stdout.toString()) : undefined;
  const versions = released ?? keptVersions(packageName, kind);
  const newest = [versions]
    .flat()
    .filter((version) => /^\d+\.\d+\.\d+$/.test(version) && accepts(version))
    .toSorted(byVersion)
    .at(-1);
  if (newest === undefined) {
    throw new Error(
      released === undefined
        ? `the npm registry could not be asked for ${packageName}, and no version is kept; check the network and start again`
        : `the npm registry has no fitting version of ${packageName}`,
    );
  }
  if (released === undefined) say(`note     the npm registry could not be asked; ${packageName} ${newest} is kept`);
  return newest;
}

/** Returns the folder in whose `node_modules` the packages are, given as name and version. Runs no install scripts. */
export function installedPackages(packages, kind) {
  const names = packages.map(([name, version]) => `${name}@${version}`);
  const folder = path.join(cacheFolder(kind), folderName(names.join('+').replaceAll('/', '-')));
  if (fs.existsSync(folder)) return folder;
  const making = fs.mkdtempSync(`${folder}.`);
  try {
    fs.writeFileSync(path.join(making, 'package.json'), '{ "private": true }');
    const { status } = runNpm(
      [
        ...['install', ...names, '--ignore-scripts', '--no-audit', '--no-fund', '--save-exact'],
        // Not `--omit=optional`: some clients cannot be imported without what they call optional.
        ...['--omit=peer', '--loglevel=error'],
      ],
      { cwd: making },
    );
    if (status !== 0) throw new Error(`${names.join(', ')} could not be installed; check the network`);
    fs.renameSync(making, folder);
  } catch (error) {
    // Another run may have installed it first.
    if (!fs.existsSync(folder)) throw error;
  } finally {
    fs.rmSync(making, { recursive: true, force: true });
  }
  return folder;
}

/** File systems do not accept names of more than 255 bytes. */
const folderName = (name) =>
  name.length <= 120 ? name : `${name.slice(0, 60)}+${createHash('sha256').update(name).digest('hex').slice(0, 16)}`;

/** Versions that earlier runs have installed; each folder records its own. */
function keptVersions(packageName, kind) {
  const kept = cacheFolder(kind);
  return fs.readdirSync(kept).flatMap((folder) => {
    try {
      const { dependencies } = JSON.parse(fs.readFileSync(path.join(kept, folder, 'package.json'), 'utf8'));
      return dependencies?.[packageName] ?? [];
    } catch {
      return [];
    }
  });
}

function byVersion(a, b) {
  const [left, right] = [a, b].map((version) => version.split('.').map(Number));
  return left[0] - right[0] || left[1] - right[1] || left[2] - right[2];
}
