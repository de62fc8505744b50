// Makes a fresh clone ready: checks Node and installs the locked dependencies. Plain JavaScript that uses only Node's own modules,
// because nothing is installed yet when it runs.
import { spawnSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import fs from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { aboutOf, fail, isStarted, nodeProblem, nodeRemark, root, say } from './basics.mjs';

export { aboutOf, fail, isStarted, nodeProblem, nodeRemark, root, say };

/**
 * Exits with a message and code 1 if the clone cannot be made ready. `onlyToRun`: running the program takes fewer packages than
 * working on it.
 */
export function setup({ onlyToRun = false } = {}) {
  const problem = nodeProblem(process.versions.node);
  if (problem !== undefined) fail(problem);
  const remark = nodeRemark(process.versions.node);
  if (remark !== undefined) say(remark);
  installDependencies(onlyToRun);
}

function installDependencies(onlyToRun) {
  installLocked(root, {
    what: onlyToRun
      ? 'what runs, as it is locked (no install scripts, no GPU packages)'
      : 'the locked dependencies, with those for development (no install scripts, no GPU packages)',
    failed: 'The dependencies could not be installed',
    onlyToRun,
  });
}

/** Records what was found or installed there: `{ stamp, everything, isOwn, isSlim }`. */
export const stampFileIn = (modules) => path.join(modules, '.tokenhouse-setup.json');

/** Installs a folder's locked packages if they are not there yet. `onFailure` receives the message, and does not return. */
export function installLocked(folder, { what, failed, onlyToRun = false, onFailure = fail }) {
  const modules = path.join(folder, 'node_modules');
  // A linked folder belongs to another clone, which maintains it.
  if (fs.lstatSync(modules, { throwIfNoEntry: false })?.isSymbolicLink()) return;
  const stampFile = stampFileIn(modules);
  const lockFile = path.join(folder, 'package-lock.json');
  const wanted = stampOf(lockFile);
  const stamped = readJson(stampFile);
  if (stamped?.stamp === wanted && (onlyToRun || stamped.everything)) return;
  const isThere = stamped?.isSlim !== true && isInstalled(modules, lockFile, onlyToRun);
  if (!isThere) {
    say(`install  ${what}`);
    const startedAt = Date.now();
    const packages = onlyToRun ? '--omit=dev' : '--include=dev';
    const result = runNpm(['ci', '--ignore-scripts', packages, '--no-audit', '--no-fund', '--loglevel=error'], {
      cwd: folder,
    });
    if (result.status !== 0) {
      const reason = result.error === undefined ? '' : ` (${result.error.message})`;
      onFailure(
        `${failed}${reason}. Check the network and the npm registry, then start again; nothing else was changed.`,
      );
    }
    say(`install  done in ${((Date.now() - startedAt) / 1000).toFixed(1)} s`);
  }
  fs.writeFileSync(stampFile, JSON.stringify({ stamp: wanted, everything: !onlyToRun, isOwn: !isThere }));
}

/** Native parts differ by platform, so a folder that moved to another one is installed again. */
function stampOf(lockFile) {
  const lock = createHash('sha256').update(fs.readFileSync(lockFile)).digest('hex');
  return `${lock} ${process.platform} ${process.arch}`;
}

/** Somebody may have run npm by hand, so npm's record in the folder is compared with the lock file. */
function isInstalled(modules, lockFile, onlyToRun) {
  const installed = readJson(path.join(modules, '.package-lock.json'))?.packages;
  if (installed === undefined) return false;
  const locked = Object.entries(readJson(lockFile).packages).filter(([name]) => name !== '');
  const complete = locked.every(([name, { dev, optional, version }]) =>
    installed[name] === undefined
      ? optional === true || (onlyToRun && dev === true)
      : installed[name].version === version,
  );
  const engine = `@node-llama-cpp/${{ linux: 'linux', darwin: 'mac', win32: 'win' }[process.platform]}-${process.arch}`;
  const engineLocked = locked.some(([name]) => name.startsWith(`node_modules/${engine}`));
  const engineThere = Object.keys(installed).some((name) => name.startsWith(`node_modules/${engine}`));
  return complete && (engineThere || !engineLocked);
}

/** Runs npm with its output on standard error; with `capture` its standard output is in the result instead. */
export function runNpm(args, { cwd = root, capture = false } = {}) {
  const options = {
    cwd,
    stdio: ['ignore', capture ? 'pipe' : 2, 2],
    env: { ...process.env, ...cacheInsteadOfHome() },
    maxBuffer: 16 * 1024 * 1024,
  };
  const script = npmScript();
  if (script !== undefined) return spawnSync(process.execPath, [script, ...args], options);
  return spawnSync('npm', args, { ...options, shell: process.platform === 'win32' });
}

/** npm's script: the npm that started us, else the one that came with Node. */
function npmScript() {
  const bin = path.dirname(process.execPath);
  const candidates = [
    process.env.npm_execpath,
    path.join(bin, 'node_modules', 'npm', 'bin', 'npm-cli.js'),
    path.join(bin, '..', 'lib', 'node_modules', 'npm', 'bin', 'npm-cli.js'),
  ];
  return candidates.find(
    (file) => file !== undefined && path.basename(file).startsWith('npm-cli') && fs.existsSync(file),
  );
}

/** npm keeps its cache in the home folder; if that is unusable, it gets a temporary folder. */
function cacheInsteadOfHome() {
  try {
    fs.accessSync(os.homedir(), fs.constants.W_OK);
    return {};
  } catch {
    return {
      npm_config_cache: path.join(
        os.tmpdir(),
        `tokenhouse-npm-${typeof process.getuid === 'function' ? process.getuid() : 'cache'}`,
      ),
    };
  }
}

export function readJson(file) {
  try {
    return JSON.parse(fs.readFileSync(file, 'utf8'));
  } catch {
    return undefined;
  }
}

if (isStarted(import.meta.url)) setup();
