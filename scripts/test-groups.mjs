// Test files that share a process, one after the other. A separate process costs a file half a second of processor time before its
// first test: for Node, the modules, and the first, slow run of everything; with one for each file, that was a third of `npm test`.
import fs from 'node:fs';
import path from 'node:path';
import { pathToFileURL } from 'node:url';

/** Few enough that a group ends within the time limit of one file, and that the last groups keep all processors busy. */
const filesMax = 10;

/** A file that cannot share a process says so, and why: it measures the process, or changes process-wide state. */
const aloneMark = /^\/\/ Alone in its process: \S/m;

/**
 * Groups of `files`, paths below `root`, in their order, because neighbours use the same modules. Each file is in one group; those
 * that cannot share come last, because they are short.
 */
export function groupsOf(files, root) {
  const isAlone = (file) => aloneMark.test(fs.readFileSync(path.join(root, file), 'utf8'));
  const alone = files.filter(isAlone);
  const shared = files.filter((file) => !alone.includes(file));
  // Equal groups instead of full ones and a remainder.
  const count = Math.ceil(shared.length / filesMax);
  const groups = Array.from({ length: count }, (_, index) =>
    shared.slice(Math.round((index * shared.length) / count), Math.round(((index + 1) * shared.length) / count)),
  );
  return [...groups, ...alone.map((file) => [file])];
}

/** The built file that runs the group of this index, and the index of such a file; undefined for others. */
export const groupFile = (index) => `group-${index}.test.js`;
export const groupIndex = (file) => {
  const [, index] = /^group-(\d+)\.test\.js$/.exec(path.basename(file)) ?? [];
  return index === undefined ? undefined : Number(index);
};

/** The source of a group: a suite for each file, which has the file's tests and hooks. `built` returns the path of a built file. */
export function groupSource(files, built, notesUrl) {
  const entries = files.map((file) => [file, pathToFileURL(built(file)).href]);
  return [
    "import { describe } from 'node:test';",
    `import { beginFile } from ${JSON.stringify(notesUrl)};`,
    `for (const [name, url] of ${JSON.stringify(entries)})`,
    '  await describe(name, async () => {',
    '    beginFile(name);',
    '    await import(url);',
    '  });',
    '',
  ].join('\n');
}
