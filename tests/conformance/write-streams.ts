import { writeFileSync } from 'node:fs';

import { wires } from './dialects.ts';
import { pathInStreamCase, print, readStreamCase, streamCaseNames } from './stream-case.ts';

/** Prints the expected bytes of every case anew; for a person who then reads the difference, never for a test run. */
if (process.env['CI'] !== undefined || process.env['NODE_TEST_CONTEXT'] !== undefined) {
  throw new Error('fixtures are written by hand only: a test run that writes what it expects proves nothing');
}
for (const name of streamCaseNames()) {
  for (const [wire, printer] of wires) {
    const printed = print(readStreamCase(name), printer);
    writeFileSync(pathInStreamCase(name, `${wire}.sse`), printed.sse);
    writeFileSync(pathInStreamCase(name, `${wire}.json`), printed.json);
  }
}
