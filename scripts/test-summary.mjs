// A reporter of `node --test` that records how long each file took and what failed, and the summary made from its records.
import fs from 'node:fs';
import path from 'node:path';
import { groupIndex } from './test-groups.mjs';

const dearestShown = 10;

export default async function* notes(events) {
  // Results inside a file of a group are reported before the file, as with every suite.
  let inside = [];
  for await (const { type, data } of events) {
    const { file, name, nesting, skip, details } = data ?? {};
    const isShared = nesting === 0 && isSharedFile(name);
    if (type === 'test:complete' && (isShared || (nesting === 0 && isFile(name, file)))) {
      if (groupIndex(name) === undefined) yield note({ file: isShared ? name : file, durationMs: details.duration_ms });
    } else if (type === 'test:fail' && isShared) {
      const own = details?.error?.failureType === 'subtestsFailed' ? [] : [{ failed: 'the file itself' }];
      yield* [...inside, ...own].map((entry) => note({ ...entry, file: name }));
      inside = [];
    } else if (type === 'test:pass' && isShared) {
      yield* inside.map((entry) => note({ ...entry, file: name }));
      inside = [];
    } else if (type === 'test:fail' && details?.type !== 'suite') {
      inside.push({ file, failed: name });
    } else if (type === 'test:pass' && details?.type !== 'suite' && !isFile(name, file)) {
      inside.push(skip === undefined || skip === false ? { passed: 1 } : { file, skipped: name });
    }
    if (nesting === 0 && (type === 'test:fail' || type === 'test:pass')) {
      yield* inside.map(note);
      inside = [];
    }
  }
  yield* inside.map(note);
}

const note = (fields) => `${JSON.stringify(fields)}\n`;

/** A file is reported as a test whose name is its path. */
const isFile = (name, file) => file !== undefined && (name === file || path.resolve(name) === file);

/** In a group it is a suite of this name. */
const isSharedFile = (name) => /^tests[/\\].+\.test\.ts$/.test(name ?? '');

/**
 * Test files with a failed test, in lists of those that failed together: all files of a group whose process crashed, and all that a
 * module with shared tests is in, as `filesWith(module)` says. `groups` are those of the run.
 */
export const failedTogether = (file, root, groups = [], filesWith = () => []) => {
  const failed = entriesOf(file).filter((entry) => entry.failed !== undefined && entry.file !== undefined);
  const files = [...new Set(failed.map((entry) => entry.file))];
  const listOf = (at) => {
    const source = sourceOf(at, root);
    return source.endsWith('.test.ts') ? [source] : filesWith(at);
  };
  const lists = files.map((at) => groups[groupIndex(at)] ?? listOf(at));
  // Of a module that is in none of them nothing can be run again, and a second try without it would pass.
  if (lists.some((list) => list.length === 0)) return [];
  return [...new Map(lists.map((list) => [list.join('\n'), list])).values()];
};

/** A file is reported by its source if there is a map, else by its built file (`dist/test-…/`). */
const sourceOf = (file, root) =>
  path
    .relative(root, path.resolve(root, file))
    .replace(/^dist.test-[^/\\]*./, '')
    .replace(/\.js$/, '.ts');

function entriesOf(file) {
  const lines = fs.existsSync(file) ? fs.readFileSync(file, 'utf8').split('\n') : [];
  return lines.flatMap((line) => (line === '' ? [] : [JSON.parse(line)]));
}

/** The file for the records of `processor-time.mjs`, beside those of the reporter. */
export const processorNotes = (file) => `${file}.processor`;

/**
 * The files that took most processor time, which is what a suite costs when several run at the same time; what was skipped and what
 * failed; the last line has the counts. A file that was killed has no processor time.
 */
export function summaryLines({ suite, file, root, seconds }) {
  const all = entriesOf(file);
  const where = ({ file: at }) => (at === undefined ? '' : sourceOf(at, root));
  const processorMs = new Map(entriesOf(processorNotes(file)).map((entry) => [where(entry), entry.processorMs]));
  const processorSum = [...processorMs.values()].reduce((sum, ms) => sum + ms, 0) / 1000;
  const costMs = (entry) => processorMs.get(where(entry)) ?? entry.durationMs;
  const dearest = all
    .filter((entry) => entry.durationMs !== undefined)
    .toSorted((a, b) => costMs(b) - costMs(a))
    .slice(0, dearestShown);
  const failed = all.filter((entry) => entry.failed !== undefined);
  const skipped = all.filter((entry) => entry.skipped !== undefined);
  const passed = all.filter((entry) => entry.passed !== undefined).length;
  return [
    '',
    `${suite} took ${seconds.toFixed(0)} s, and ${processorSum.toFixed(0)} s of processors; its dearest files, in time and processors:`,
    ...dearest.map((entry) =>
      [secondsText(entry.durationMs), secondsText(processorMs.get(where(entry))), where(entry)].join('  '),
    ),
    ...skipped.map((entry) => `skipped: ${where(entry)}: ${entry.skipped}`),
    ...failed.map((entry) => `failed: ${where(entry)}: ${entry.failed}`),
    `${suite}: ${passed} passed, ${failed.length} failed, ${skipped.length} skipped`,
  ];
}

const secondsText = (ms) => (ms === undefined ? '?'.padStart(10) : `${(ms / 1000).toFixed(1).padStart(8)} s`);
