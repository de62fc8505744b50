// Imported before each test file: records, when the file ends, its processor time and that of ended programs that it started. For
// files that share a process, each gets the time from its beginning to that of the next; the first also gets the start of the
// process. The module's URL says where to: ?file=/path.
import fs from 'node:fs';
import { fileURLToPath, pathToFileURL } from 'node:url';
import { isMainThread } from 'node:worker_threads';
import { groupIndex } from './test-groups.mjs';

const notesFile = new URL(import.meta.url).searchParams.get('file');
const testFile = process.argv[1];
// Not in the workers and forks of a test, which inherit the option.
const notes = notesFile !== null && isMainThread && /\.test\.js$/.test(testFile ?? '');
let current = groupIndex(testFile ?? '') === undefined ? testFile : undefined;
let notedMs = 0;
if (notes) process.on('exit', noteCurrent);

/** Called when the tests of `file` begin in this process, and those of the previous file have ended. */
export function beginFile(file) {
  noteCurrent();
  current = file;
}

function noteCurrent() {
  if (!notes || current === undefined) return;
  const { user, system } = process.cpuUsage();
  const usedMs = (user + system) / 1000 + endedChildrenMs();
  fs.appendFileSync(notesFile, `${JSON.stringify({ file: current, processorMs: usedMs - notedMs })}\n`);
  notedMs = usedMs;
}

/** The URL of this module that makes it record in `notesFile` what each file took. */
export function notingUrl(notesFile) {
  const url = pathToFileURL(fileURLToPath(import.meta.url));
  url.search = new URLSearchParams({ file: notesFile }).toString();
  return url.href;
}

/** Only Linux reports it where a program without native parts can read it, in hundredths of a second. */
function endedChildrenMs() {
  try {
    const stat = fs.readFileSync('/proc/self/stat', 'utf8');
    const fields = stat.slice(stat.lastIndexOf(')') + 2).split(' ');
    return (Number(fields[13]) + Number(fields[14])) * 10;
  } catch {
    return 0;
  }
}
