// Keeps what was bundled for tests, so that a later run can reuse it if it would come out the same: a build takes 5 to 10 s of
// processor time, and CI has 17 suites. In doubt, it is built again.
import { createHash } from 'node:crypto';
import fs from 'node:fs';
import path from 'node:path';
import { isAlive } from './basics.mjs';

/** Written last; a folder without it is not used. */
const manifestName = 'kept.json';
/** Marks the folder as used by a process: an empty file with its id. */
const markEnding = '.uses-it';

/** Builds of one kind to keep, besides those in use. All kept ones are reusable; others are removed. */
const keptMax = 8;
/** A new folder has no mark yet. */
const unmarkedMs = 60_000;

/**
 * Returns a folder `<below>/<kind>-…` immediately, and `made`, which resolves when it has the outcome of `make`, from an earlier
 * run if possible. `recipe` is texts that determine the outcome besides the files read. `entries` are names of what is made: a
 * build with more of them can serve too. `make(folder)` resolves with the paths of all files that it has read; with undefined the
 * outcome is for this process only. The folder stays until this process ends. `now` in ms.
 */
export function keptBuild({ below, kind, recipe, entries, make, now = Date.now() }) {
  fs.mkdirSync(below, { recursive: true });
  const recipeHash = hashOf(recipe.join('\0'));
  const printOf = remembered(filePrint);
  const folders = fs
    .readdirSync(below)
    .flatMap((name) => (name.startsWith(`${kind}-`) ? [path.join(below, name)] : []));
  const current = folders.filter((folder) => isCurrent(manifestOf(folder), printOf));
  const has = (folder) => {
    const manifest = manifestOf(folder);
    return manifest?.recipe === recipeHash && entries.every((entry) => manifest.entries.includes(entry));
  };
  const found = current.find((folder) => has(folder) && take(folder));
  removeOld(folders, current, now);
  if (found !== undefined) return { folder: found, made: Promise.resolve() };
  const folder = fs.mkdtempSync(path.join(below, `${kind}-`));
  mark(folder);
  return { folder, made: makeAndNote(folder, make, { recipe: recipeHash, entries }) };
}

async function makeAndNote(folder, make, fields) {
  const startedAt = Date.now();
  const inputs = await make(folder);
  const prints = inputs === undefined ? undefined : printsOf(inputs, startedAt);
  if (prints === undefined) return;
  const draft = path.join(folder, `${manifestName}.new`);
  fs.writeFileSync(draft, JSON.stringify({ ...fields, inputs: prints }));
  fs.renameSync(draft, path.join(folder, manifestName));
}

/** `{ recipe, entries, inputs: { file: print } }`; undefined if there is no readable one. */
function manifestOf(folder) {
  try {
    const { recipe, entries, inputs } = JSON.parse(fs.readFileSync(path.join(folder, manifestName), 'utf8'));
    return Array.isArray(entries) && Object.keys(inputs).length > 0 ? { recipe, entries, inputs } : undefined;
  } catch {
    return undefined;
  }
}

const isCurrent = (manifest, printOf) =>
  manifest !== undefined && Object.entries(manifest.inputs).every(([file, print]) => printOf(file) === print);

/** Undefined if one of them changed meanwhile or cannot be read, so that it is unknown what the outcome was made of. */
function printsOf(inputs, startedAt) {
  const prints = inputs.map((file) => {
    const stats = fs.statSync(file, { throwIfNoEntry: false });
    return [file, stats !== undefined && stats.mtimeMs < startedAt ? filePrint(file) : undefined];
  });
  return prints.every(([, print]) => print !== undefined) ? Object.fromEntries(prints) : undefined;
}

/** A fingerprint of the content, or for installed files of size and time, since those are never edited. Undefined if there is no file. */
function filePrint(file) {
  try {
    if (!file.split(path.sep).includes('node_modules')) return hashOf(fs.readFileSync(file));
    const { size, mtimeMs } = fs.statSync(file);
    return `${size} ${mtimeMs}`;
  } catch {
    return undefined;
  }
}

const hashOf = (content) => createHash('sha256').update(content).digest('base64url').slice(0, 22);

function remembered(compute) {
  const known = new Map();
  return (key) => {
    if (!known.has(key)) known.set(key, compute(key));
    return known.get(key);
  };
}

/** Marks a folder as used, and returns whether that succeeded. A remover takes the manifest first, and then checks for marks. */
function take(folder) {
  const now = new Date();
  try {
    mark(folder);
    fs.utimesSync(path.join(folder, manifestName), now, now);
    return true;
  } catch {
    return false;
  }
}

/** Folders that this process uses, until it ends. */
const used = new Set();

const markIn = (folder) => path.join(folder, `${process.pid}${markEnding}`);

function mark(folder) {
  fs.writeFileSync(markIn(folder), '');
  if (used.size === 0) process.once('exit', unmarkAll);
  used.add(folder);
}

function unmarkAll() {
  for (const folder of used) {
    fs.rmSync(markIn(folder), { force: true });
    if (!fs.existsSync(path.join(folder, manifestName))) fs.rmSync(folder, { recursive: true, force: true });
  }
}

/** Removes unused folders that cannot be reused, and the longest unused of the others beyond `keptMax`. */
function removeOld(folders, current, now) {
  const usedAt = (folder) => fs.statSync(path.join(folder, manifestName), { throwIfNoEntry: false })?.mtimeMs ?? 0;
  const kept = current.toSorted((a, b) => usedAt(b) - usedAt(a)).slice(0, keptMax);
  for (const folder of folders) {
    if (kept.includes(folder) || isUsed(folder) || madeAt(folder) > now - unmarkedMs) continue;
    fs.rmSync(path.join(folder, manifestName), { force: true });
    if (!isUsed(folder)) fs.rmSync(folder, { recursive: true, force: true });
  }
}

const madeAt = (folder) => fs.statSync(folder, { throwIfNoEntry: false })?.birthtimeMs ?? 0;

function isUsed(folder) {
  const names = fs.existsSync(folder) ? fs.readdirSync(folder) : [];
  return names.some((name) => name.endsWith(markEnding) && isAlive(Number(name.slice(0, -markEnding.length))));
}
