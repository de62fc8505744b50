// Finds a llama-server, or builds one, and prints its path. Plain JavaScript that uses only Node's own modules.
//
// In this order: `LLAMA_SERVER` from the environment; one on the PATH; an earlier build; a build of the source that node-llama-cpp
// carries (llama.cpp, MIT), once per revision, beside the model cache. The build needs git, cmake and a C++ compiler, and no
// network. Only the server itself is compiled, and uses the libraries that node-llama-cpp carries; if that fails, or with `--full`,
// everything is compiled for this kind of processor.
import { spawn, spawnSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import fs from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { isAlive } from './basics.mjs';
import { platforms } from './package/platforms.mjs';
import { fail, isStarted, root, say, setup } from './setup.mjs';

/**
 * Returns the path of a working llama-server. Exits with a one-line message and code 69 if there is none. `full`: one that is
 * suitable for speed comparisons and for serving, completely compiled for this processor.
 */
export async function llamaServer({ full = false } = {}) {
  const named = process.env.LLAMA_SERVER;
  if (named) {
    const file = path.resolve(named);
    if (runs(file)) return file;
    unavailable(`LLAMA_SERVER names ${file}, which does not run. Name a llama-server, or unset it to have one built.`);
  }
  const found = onPath('llama-server').find(runs);
  if (found !== undefined) return found;
  if (!fs.existsSync(bundle)) setup();
  const ways = full ? [everything()] : [serverAlone(), everything()];
  return builtBefore(ways) ?? (await build(ways));
}

/**
 * A way to build one. `folder`: where it is kept; `files`: the folder of its CMakeLists.txt; `options`: of cmake; `libraries`:
 * files beside the program. `source` is the clone of llama.cpp, `done` the folder that becomes `folder`.
 * @typedef {{
 *   folder: string, libraries: readonly string[], files: (source: string) => string,
 *   options: (source: string, done: string) => Readonly<Record<string, string>>,
 * }} Way
 */

/** Without TLS (cpp-httplib would search for OpenSSL) and without the web page (it would be fetched). */
const optionsOfBoth = { CMAKE_BUILD_TYPE: 'Release', LLAMA_BUILD_UI: 'OFF', LLAMA_USE_PREBUILT_UI: 'OFF' };

/**
 * Builds only the server, in a ninth of the time: its libraries were compiled from the same source for several instruction sets,
 * and it loads the best fitting ones, as the embedded engine does. They have no OpenMP.
 * @returns {Way}
 */
function serverAlone() {
  return {
    folder: `${keptFolder()}-linked`,
    libraries: carriedLibraries(),
    files: () => path.join(root, 'scripts', 'llama-server'),
    options: (source, done) => ({ ...optionsOfBoth, SOURCE: source, LIBRARIES: done }),
  };
}

/**
 * Builds everything, in one file. It has the same instruction sets as the embedded engine, whose binding loads the ggml build that
 * fits the processor best (`GGML_NATIVE`), so that the two can be compared. OpenMP stays on, as in usual builds of llama-server.
 * @returns {Way}
 */
function everything() {
  // A build for this processor only must not be used by another computer that shares the folder.
  const processor = createHash('sha256').update(processorTraits()).digest('hex').slice(0, 8);
  const options = {
    ...optionsOfBoth,
    BUILD_SHARED_LIBS: 'OFF',
    GGML_NATIVE: 'ON',
    GGML_CCACHE: 'OFF',
    LLAMA_OPENSSL: 'OFF',
    LLAMA_BUILD_TESTS: 'OFF',
    LLAMA_BUILD_EXAMPLES: 'OFF',
    LLAMA_BUILD_APP: 'OFF',
  };
  return { folder: `${keptFolder()}-${processor}`, libraries: [], files: (source) => source, options: () => options };
}

/** Empty if node-llama-cpp has no binaries for this platform; the build then fails. */
function carriedLibraries() {
  const { engine } = platforms.find(({ os: system, cpu }) => system === process.platform && cpu === process.arch) ?? {};
  if (engine === undefined) return [];
  const folder = path.join(root, 'node_modules', engine, 'bins', path.basename(engine));
  if (!fs.existsSync(folder)) return [];
  const names = fs.readdirSync(folder).filter((name) => /\.(so|dylib|dll|metal|metallib)$/.test(name));
  return names.map((name) => path.join(folder, name));
}

const binaryOf = ({ folder }) => path.join(folder, binaryName);
const builtBefore = (ways) => ways.map(binaryOf).find(runs);

const binaryName = process.platform === 'win32' ? 'llama-server.exe' : 'llama-server';
/** The source of llama.cpp, as node-llama-cpp carries it. */
export const bundle = path.join(root, 'node_modules', 'node-llama-cpp', 'llama', 'gitRelease.bundle');
const heartbeatMs = 5_000;
const silenceMs = 60_000;
const signals = ['SIGINT', 'SIGTERM', 'SIGHUP'];

/**
 * Builds the program in the first way that works. Builds in a separate folder and renames it, so that a killed process leaves
 * nothing that looks complete.
 */
async function build(ways) {
  requireTools();
  const kept = keptFolder();
  fs.mkdirSync(path.dirname(kept), { recursive: true });
  const lock = `${kept}.lock`;
  if (!(await locked(lock, () => builtBefore(ways) !== undefined))) return builtBefore(ways);
  const heartbeat = setInterval(() => touch(lock), heartbeatMs);
  const work = `${kept}.building-${process.pid}`;
  // A signal that stops this process also stops the compiler, and leaves no lock.
  const stopping = new AbortController();
  const stop = () => stopping.abort();
  for (const signal of signals) process.on(signal, stop);
  let failure;
  try {
    for (const left of leftovers(kept)) fs.rmSync(left, { recursive: true, force: true });
    fs.mkdirSync(work);
    say(`llama-server  is built once from the source in node-llama-cpp (${revision().slice(0, 8)}), in ${work}`);
    await run('git', ['clone', '--quiet', bundle, path.join(work, 'source')], stopping.signal);
    for (const way of ways) {
      failure = await compile(way, work, stopping.signal).catch((error) => error);
      if (failure === undefined) return binaryOf(way);
      if (stopping.signal.aborted) break;
      if (way !== ways.at(-1)) say(`llama-server  cannot use the libraries in node-llama-cpp: ${failure.message}`);
    }
  } catch (error) {
    failure = error;
  } finally {
    for (const signal of signals) process.off(signal, stop);
    clearInterval(heartbeat);
    fs.rmSync(work, { recursive: true, force: true });
    fs.rmSync(lock, { force: true });
  }
  return fail(`llama-server could not be built: ${failure.message}. Set LLAMA_SERVER to one that you have.`);
}

async function compile(way, work, stopping) {
  const [source, output, done] = ['source', 'build', 'done'].map((name) => path.join(work, name));
  for (const folder of [output, done]) fs.rmSync(folder, { recursive: true, force: true });
  fs.mkdirSync(done);
  for (const library of way.libraries) fs.copyFileSync(library, path.join(done, path.basename(library)));
  const startedAt = Date.now();
  const ninja = onPath('ninja').length > 0 ? ['-G', 'Ninja'] : [];
  const options = way.options(source, done);
  const definitions = Object.entries(options).map(([name, value]) => `-D${name}=${value}`);
  await run('cmake', ['-S', way.files(source), '-B', output, ...ninja, ...definitions], stopping);
  // The largest files take more than 1 GB to compile.
  const jobs = Math.max(1, Math.min(os.availableParallelism(), Math.floor(os.totalmem() / 1.5e9)));
  const args = ['--build', output, '--config', 'Release', '--target', 'llama-server', '--parallel', String(jobs)];
  const progress = showProgress();
  await run('cmake', args, stopping, progress.line);
  progress.end();
  const binary = ['bin', path.join('bin', 'Release')]
    .map((folder) => path.join(output, folder, binaryName))
    .find((file) => fs.existsSync(file));
  if (binary !== undefined) fs.renameSync(binary, path.join(done, binaryName));
  if (!runs(path.join(done, binaryName))) throw new Error('what was built does not run');
  fs.copyFileSync(path.join(source, 'LICENSE'), path.join(done, 'LICENSE'));
  fs.writeFileSync(path.join(done, 'build.json'), `${JSON.stringify({ revision: revision(), options }, null, 2)}\n`);
  fs.rmSync(way.folder, { recursive: true, force: true });
  fs.renameSync(done, way.folder);
  say(`llama-server  built in ${Math.round((Date.now() - startedAt) / 1000)} s`);
}

/** Prints a line every 10 s; in a terminal, updates one line. */
function showProgress() {
  const intervalMs = process.stderr.isTTY ? 500 : 10_000;
  let shownAt = Date.now();
  return {
    line(text) {
      const step = /^\[ *(\d+%|\d+\/\d+)\]/.exec(text)?.[1];
      if (step === undefined || Date.now() - shownAt < intervalMs) return;
      shownAt = Date.now();
      process.stderr.write(process.stderr.isTTY ? `\rllama-server  ${step} ` : `llama-server  ${step}\n`);
    },
    end() {
      if (process.stderr.isTTY) process.stderr.write('\r');
    },
  };
}

/** Runs a tool, and what it starts, to its end or until it is stopped. */
function run(command, args, stopping, onLine = () => {}) {
  return new Promise((resolve, reject) => {
    stopping.throwIfAborted();
    const hasGroup = process.platform !== 'win32';
    const child = spawn(command, args, { stdio: ['ignore', 'pipe', 'pipe'], detached: hasGroup });
    const stop = () => {
      try {
        process.kill(hasGroup ? -child.pid : child.pid, 'SIGTERM');
      } catch {
        // It has already ended.
      }
    };
    stopping.addEventListener('abort', stop, { once: true });
    let tail = '';
    for (const stream of [child.stdout, child.stderr]) {
      stream.setEncoding('utf8');
      stream.on('data', (text) => {
        tail = (tail + text).slice(-4_000);
        for (const line of text.split('\n')) onLine(line);
      });
    }
    child.on('error', reject);
    child.on('close', (code, signal) => {
      stopping.removeEventListener('abort', stop);
      if (stopping.aborted) return reject(new Error('it was stopped'));
      if (code === 0) return resolve();
      if (signal === null) say(tail.trimEnd());
      reject(new Error(`${command} ended with ${signal ?? `code ${code}`}`));
    });
  });
}

/**
 * Returns true if this process may build, false if another has built meanwhile. A lock whose holder is gone or silent is taken
 * over; if two processes take it at the same time, both build in their own folders and the second result replaces the first.
 */
async function locked(lock, isBuilt) {
  let hasSaid = false;
  for (;;) {
    if (isBuilt()) return false;
    try {
      fs.writeFileSync(lock, JSON.stringify({ pid: process.pid, host: os.hostname() }), { flag: 'wx' });
      return true;
    } catch (error) {
      if (error.code !== 'EEXIST') throw error;
    }
    if (isAbandoned(lock)) fs.rmSync(lock, { force: true });
    else {
      if (!hasSaid) say(`llama-server  is being built by another process; waiting for it (${lock})`);
      hasSaid = true;
      await delay(500);
    }
  }
}

function touch(file) {
  try {
    fs.utimesSync(file, new Date(), new Date());
  } catch {
    // Another process has taken over the lock.
  }
}

function isAbandoned(lock) {
  try {
    if (Date.now() - fs.statSync(lock).mtimeMs > silenceMs) return true;
    const { pid, host } = JSON.parse(fs.readFileSync(lock, 'utf8'));
    return host === os.hostname() && !isAlive(pid);
  } catch {
    // Released meanwhile, or not yet written.
    return false;
  }
}

/** Finds folders of killed builds. */
function leftovers(kept) {
  const folder = path.dirname(kept);
  const prefix = `${path.basename(kept)}.building-`;
  return fs
    .readdirSync(folder)
    .filter((name) => name.startsWith(prefix) && !isAlive(Number(name.slice(prefix.length))))
    .map((name) => path.join(folder, name));
}

function requireTools() {
  const compilers = process.env.CXX ? [process.env.CXX] : ['c++', 'g++', 'clang++', 'cl'];
  const missing = [
    ...['git', 'cmake'].filter((name) => onPath(name).length === 0),
    ...(compilers.some((name) => path.isAbsolute(name) || onPath(name).length > 0) ? [] : ['a C++ compiler']),
  ];
  if (missing.length === 0) return;
  const remedy =
    process.platform === 'darwin' ? 'xcode-select --install; brew install cmake' : 'apt-get install -y git cmake g++';
  unavailable(
    `There is no llama-server, and building one needs ${missing.join(' and ')}. Install (${remedy}), or set LLAMA_SERVER.`,
  );
}

/** The common prefix of the paths of kept builds. */
function keptFolder() {
  const name = `llama-server-${revision().slice(0, 12)}-${process.platform}-${process.arch}`;
  return path.join(path.dirname(modelFolder()), name);
}

function processorTraits() {
  try {
    return /^(flags|Features)\s*:.*$/m.exec(fs.readFileSync('/proc/cpuinfo', 'utf8'))?.[0] ?? '';
  } catch {
    return os.cpus()[0]?.model ?? '';
  }
}

/** The same folder as in `src/config/environment.ts`. */
function modelFolder() {
  const { TOKENHOUSE_MODEL_DIR, XDG_CACHE_HOME, HOME, USERPROFILE } = process.env;
  const home = HOME || USERPROFILE || os.homedir();
  return path.resolve(
    TOKENHOUSE_MODEL_DIR || path.join(XDG_CACHE_HOME || path.join(home, '.cache'), 'tokenhouse', 'models'),
  );
}

/** The commit in the bundle: its first lines are its format, then `<commit> <name>`. */
function revision() {
  const file = fs.openSync(bundle, 'r');
  try {
    const head = Buffer.alloc(4_096);
    fs.readSync(file, head);
    return /^([0-9a-f]{40}) /m.exec(head.toString('latin1'))[1];
  } finally {
    fs.closeSync(file);
  }
}

function onPath(name) {
  const suffix = process.platform === 'win32' ? '.exe' : '';
  return (process.env.PATH ?? '')
    .split(path.delimiter)
    .filter((folder) => folder !== '')
    .map((folder) => path.resolve(folder, name + suffix))
    .filter((file) => fs.statSync(file, { throwIfNoEntry: false })?.isFile());
}

function runs(file) {
  if (!fs.existsSync(file)) return false;
  return spawnSync(file, ['--version'], { stdio: 'ignore', timeout: 60_000 }).status === 0;
}

function unavailable(line) {
  say(line);
  process.exit(69);
}

if (isStarted(import.meta.url))
  process.stdout.write(`${await llamaServer({ full: process.argv.includes('--full') })}\n`);
