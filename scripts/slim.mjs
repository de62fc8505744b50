// Reduces the packages of a clone that only runs the program to what the bundle was made of and what is loaded from the
// installation: a third of their 300 MB. A clone for development has everything, and is left alone.
import fs from 'node:fs';
import path from 'node:path';
import { readJson, root, setup, stampFileIn } from './setup.mjs';

const modules = path.join(root, 'node_modules');

/** Binaries are in folders and packages that are named after their platforms, in Node's spelling or with "mac" and "win". */
const platforms = [process.platform, { darwin: 'mac', win32: 'win' }[process.platform] ?? process.platform];
const ours = platforms.map((platform) => `${platform}-${process.arch}`);

/** Files of installed packages that are only for other platforms, compilers, and editors. */
const unneeded = [
  /^node_modules\/node-llama-cpp\/llama\/gitRelease\.bundle$/,
  /^node_modules\/@photostructure\/sqlite\/(src|scripts)\//,
  /\.(d\.[cm]?ts|[cm]?ts|map|md)$/,
];
const platformOf = [
  /^node_modules\/@photostructure\/sqlite\/prebuilds\/([^/]+)\//,
  /^node_modules\/@node-llama-cpp\/([^/]+)\//,
];

/** Runs once after our own installation. `inputs` are the files of the bundle, `loaded` is what it loads from the installation. */
export function slim(inputs, loaded) {
  const stampFile = stampFileIn(modules);
  const stamped = readJson(stampFile);
  if (stamped === undefined || stamped.everything || !stamped.isOwn || stamped.isSlim) return;
  // Recorded first, because an interrupted removal leaves an incomplete installation.
  fs.writeFileSync(stampFile, JSON.stringify({ ...stamped, isSlim: true }));
  const bundled = new Set(inputs);
  const whole = [...withDependencies(loaded.packages), ...loaded.folders.map((name) => `node_modules/${name}/`)];
  removeBelow('node_modules', (file) => {
    if (bundled.has(file) || path.dirname(file) === 'node_modules') return true;
    if (!whole.some((folder) => file.startsWith(folder))) return false;
    const platform = platformOf.flatMap((pattern) => pattern.exec(file)?.[1] ?? [])[0];
    if (platform !== undefined && !ours.some((own) => platform.startsWith(own))) return false;
    return !unneeded.some((pattern) => pattern.test(file));
  });
}

/** Reinstalls everything if something was removed; returns whether it did. */
export function installAgain() {
  const stampFile = stampFileIn(modules);
  if (readJson(stampFile)?.isSlim !== true) return false;
  fs.rmSync(path.join(modules, '.package-lock.json'), { force: true });
  fs.rmSync(stampFile, { force: true });
  setup({ onlyToRun: true });
  return true;
}

/** The folders of packages and of all their dependencies, as in the lock file, each with a trailing slash. */
function withDependencies(names) {
  const { packages } = readJson(path.join(root, 'package-lock.json'));
  const found = new Set();
  const visit = (name, from) => {
    // From the innermost folder outwards, as Node searches for packages.
    for (let at = from; ; at = at.slice(0, Math.max(0, at.lastIndexOf('node_modules/') - 1))) {
      const folder = `${at === '' ? '' : `${at}/`}node_modules/${name}`;
      if (packages[folder] !== undefined) {
        if (found.has(folder)) return;
        found.add(folder);
        const { dependencies, optionalDependencies } = packages[folder];
        for (const needed of Object.keys({ ...dependencies, ...optionalDependencies })) visit(needed, folder);
        return;
      }
      if (at === '') return;
    }
  };
  const top = Object.keys(packages).flatMap((folder) => /^node_modules\/((?:@[^/]+\/)?[^/]+)$/.exec(folder)?.[1] ?? []);
  for (const wanted of names)
    for (const name of top) if (typeof wanted === 'string' ? name === wanted : wanted.test(name)) visit(name, '');
  return [...found].map((folder) => `${folder}/`);
}

/** A package's metadata and licence stay with what is kept of it. */
const isAbout = (name) => name === 'package.json' || /^(licen[cs]e|notice|copying)/i.test(name);

/** Paths are relative to the repository, with slashes on every platform. Returns whether anything useful is left. */
function removeBelow(folder, isKept) {
  let isLeft = false;
  for (const entry of fs.readdirSync(path.join(root, folder), { withFileTypes: true })) {
    const file = `${folder}/${entry.name}`;
    if (entry.isDirectory() ? removeBelow(file, isKept) : isKept(file)) isLeft = true;
    else if (!isAbout(entry.name)) fs.rmSync(path.join(root, file), { recursive: true, force: true });
  }
  if (!isLeft) fs.rmSync(path.join(root, folder), { recursive: true, force: true });
  return isLeft;
}
