// Compiles the TypeScript into dist/, and does nothing when nothing has changed.
import { spawnSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import fs from 'node:fs';
import path from 'node:path';
import { unpackedLibraries } from './pack.mjs';
import { fail, isStarted, root, say, setup } from './setup.mjs';

const dist = path.join(root, 'dist');
const folders = ['src', 'tests', 'bench'];

/** Tests that need the client libraries, which `npm start` does not install: a project of their own. */
export const clientTests = path.join('tests', 'clients');

/** Leaves the process with code 1 when the sources do not compile; the compiler says why. */
export function build() {
  const { own, clients } = sourceFiles();
  compile({ project: root, sources: own, read: own });
  removeLeftovers(new Set([...own, ...clients].map(outputOf)));
  packLibraries();
}

/** What is not packed is loaded as it is installed: slower, and the same. */
function packLibraries() {
  if (unpackedLibraries().length === 0) return;
  const script = path.join(root, 'scripts', 'pack.mjs');
  spawnSync(process.execPath, [script], { cwd: root, stdio: ['ignore', 2, 2] });
}

/** After `build`, and with the client libraries installed. */
export function buildClientTests() {
  const { own, clients } = sourceFiles();
  compile({ project: path.join(root, clientTests), sources: clients, read: [...own, ...clients] });
}

function sourceFiles() {
  const sources = folders
    .flatMap((folder) => filesUnder(path.join(root, folder)))
    .filter((file) => file.endsWith('.ts') && !file.endsWith('.d.ts'));
  const isClient = (file) => file.startsWith(path.join(root, clientTests) + path.sep);
  return { own: sources.filter((file) => !isClient(file)), clients: sources.filter(isClient) };
}

/** Runs the compiler on a project when one of the files that it reads has changed, or an output is missing. */
function compile({ project, sources, read }) {
  const outputFolder = path.join(dist, path.relative(root, project));
  const stampFile = path.join(outputFolder, '.tokenhouse-build.json');
  const complete = sources.every((file) => fs.existsSync(outputOf(file)));
  const settings = [root, project].flatMap((folder) => [
    path.join(folder, 'tsconfig.json'),
    path.join(folder, 'package-lock.json'),
  ]);
  const stamp = stampOf([...new Set([...read, ...settings])]);
  if (complete && readStamp(stampFile) === stamp) return;
  const startedAt = Date.now();
  // The compiler trusts its own notes; where a file it once wrote is missing, they must go.
  if (!complete) fs.rmSync(path.join(outputFolder, 'tsconfig.tsbuildinfo'), { force: true });
  fs.rmSync(stampFile, { force: true });
  const compiler = path.join(root, 'node_modules', 'typescript', 'bin', 'tsc');
  const { status } = spawnSync(process.execPath, [compiler, '-p', project], { cwd: root, stdio: ['ignore', 2, 2] });
  if (status !== 0) fail('The sources do not compile; see above.');
  fs.writeFileSync(stampFile, JSON.stringify({ stamp }));
  say(`build    ${sources.length} files in ${((Date.now() - startedAt) / 1000).toFixed(1)} s`);
}

const outputOf = (file) => path.join(dist, path.relative(root, file)).replace(/\.ts$/, '.js');

/** Not what is installed or linked there. */
function filesUnder(folder) {
  if (!fs.existsSync(folder)) return [];
  return fs.readdirSync(folder, { withFileTypes: true }).flatMap((entry) => {
    const file = path.join(folder, entry.name);
    if (entry.isDirectory()) return entry.name === 'node_modules' ? [] : filesUnder(file);
    return entry.isFile() ? [file] : [];
  });
}

/** Sizes and times of change: cheap to read and enough to notice an edit. */
function stampOf(files) {
  const hash = createHash('sha256');
  for (const file of files.toSorted()) {
    const { size, mtimeMs } = fs.statSync(file);
    hash.update(`${path.relative(root, file)} ${size} ${mtimeMs}\n`);
  }
  return hash.digest('hex');
}

function readStamp(stampFile) {
  try {
    return JSON.parse(fs.readFileSync(stampFile, 'utf8')).stamp;
  } catch {
    return undefined;
  }
}

/** A test whose source was deleted must not go on running. */
function removeLeftovers(outputs) {
  for (const folder of folders) {
    for (const file of filesUnder(path.join(dist, folder))) {
      if (!outputs.has(file.replace(/\.map$/, '')) && /\.js(\.map)?$/.test(file)) fs.rmSync(file);
    }
  }
}

if (isStarted(import.meta.url)) {
  setup();
  build();
}
