// What was bundled for tests stays, and a later run takes it where it would come out the same: a build takes 5 to 10 s of
// processors, and CI has 17 suites. Whatever is in doubt is built again.
import { createHash } from 'node:crypto';
import fs from 'node:fs';
import path from 'node:path';
import { isAlive } from './basics.mjs';

/** Written last; a folder without it is not taken. */
const manifestName = 'kept.json';
/** Of a process that uses the folder: an empty file with its id. */
const markEnding = '.uses-it';

/** Of one kind, besides what is in use. All of them could be taken: what could not is removed. */
const keptMax = 8;
/** A folder that has just been made has no mark yet. */
const unmarkedMs = 60_000;

/**
 * Returns a folder `<below>/<kind>-…` at once, and `made`, which resolves when it has the outcome of `make`: from an earlier run
 * where possible. `recipe` is what decides about the outcome besides the files that are read: texts. `entries` are names of what is
 * made: a build that has more of them has these too. `make(folder)` resolves with the paths of all files that it has read; with
 * undefined the outcome is for this process alone. Until this process ends, the folder stays. `now` in ms.
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

/** `{ recipe, entries, inputs: { file: print } }`; undefined where there is none that can be read. */
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

/** Undefined: one of them changed meanwhile, or cannot be read, so nobody knows what the outcome was made of. */
function printsOf(inputs, startedAt) {
  const prints = inputs.map((file) => {
    const stats = fs.statSync(file, { throwIfNoEntry: false });
    return [file, stats !== undefined && stats.mtimeMs < startedAt ? filePrint(file) : undefined];
  });
  return prints.every(([, print]) => print !== undefined) ? Object.fromEntries(prints) : undefined;
}

/** The content; of what is installed size and time, since that is never edited. Undefined where there is no file. */
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

/** Whether this process has it now. Whoever removes it takes the manifest first and looks for marks then. */
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

/** What nobody uses and nobody could take, and the longest unused of the others beyond `keptMax`. */
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
