// Compiles the TypeScript into dist/, and does nothing when nothing has changed.
import { spawnSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import fs from 'node:fs';
import path from 'node:path';
import { fail, isStarted, root, say, setup } from './setup.mjs';

const dist = path.join(root, 'dist');
const stampFile = path.join(dist, '.tokenhouse-build.json');
const folders = ['src', 'tests', 'bench'];

/** Leaves the process with code 1 when the sources do not compile; the compiler says why. */
export function build() {
  const sources = folders
    .flatMap((folder) => filesUnder(path.join(root, folder)))
    .filter((file) => file.endsWith('.ts') && !file.endsWith('.d.ts'));
  const outputs = new Set(sources.map((file) => path.join(dist, path.relative(root, file)).replace(/\.ts$/, '.js')));
  const complete = [...outputs].every((file) => fs.existsSync(file));
  const stamp = stampOf([...sources, path.join(root, 'tsconfig.json'), path.join(root, 'package-lock.json')]);
  if (complete && readStamp() === stamp) return;
  const startedAt = Date.now();
  // The compiler trusts its own notes; where a file it once wrote is missing, they must go.
  if (!complete) fs.rmSync(path.join(dist, 'tsconfig.tsbuildinfo'), { force: true });
  fs.rmSync(stampFile, { force: true });
  const compiler = path.join(root, 'node_modules', 'typescript', 'bin', 'tsc');
  const { status } = spawnSync(process.execPath, [compiler, '-p', root], { cwd: root, stdio: ['ignore', 2, 2] });
  if (status !== 0) fail('The sources do not compile; see above.');
  removeLeftovers(outputs);
  fs.writeFileSync(stampFile, JSON.stringify({ stamp }));
  say(`build    ${sources.length} files in ${((Date.now() - startedAt) / 1000).toFixed(1)} s`);
}

function filesUnder(folder) {
  if (!fs.existsSync(folder)) return [];
  const entries = fs
    .readdirSync(folder, { withFileTypes: true, recursive: true, encoding: 'utf8' })
    .filter((entry) => entry.isFile());
  return entries.map((entry) => path.join(entry.parentPath, entry.name));
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

function readStamp() {
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
