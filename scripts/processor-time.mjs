// Imported before each test file: notes, when it ends, the processor time of it and of the programs that it started and that
// have ended. The address says where: ?file=/path.
import fs from 'node:fs';
import { fileURLToPath, pathToFileURL } from 'node:url';
import { isMainThread } from 'node:worker_threads';

const notesFile = new URL(import.meta.url).searchParams.get('file');
const testFile = process.argv[1];
// Not in the workers and forks of a test, which inherit the option.
if (notesFile !== null && isMainThread && /\.test\.js$/.test(testFile ?? '')) {
  process.on('exit', () => {
    const { user, system } = process.cpuUsage();
    const processorMs = (user + system) / 1000 + endedChildrenMs();
    fs.appendFileSync(notesFile, `${JSON.stringify({ file: testFile, processorMs })}\n`);
  });
}

/** The option that notes what each file took in `notesFile`. */
export function notingOption(notesFile) {
  const url = pathToFileURL(fileURLToPath(import.meta.url));
  url.search = new URLSearchParams({ file: notesFile }).toString();
  return ['--import', url.href];
}

/** Linux alone counts them where a program without native parts can read it: in hundredths of a second. */
function endedChildrenMs() {
  try {
    const stat = fs.readFileSync('/proc/self/stat', 'utf8');
    const fields = stat.slice(stat.lastIndexOf(')') + 2).split(' ');
    return (Number(fields[13]) + Number(fields[14])) * 10;
  } catch {
    return 0;
  }
}
