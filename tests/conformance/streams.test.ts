import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { test } from 'node:test';

import { wires } from './dialects.ts';
import { filesOfStreamCase, pathInStreamCase, print, readStreamCase, streamCaseNames } from './stream-case.ts';

/**
 * One script, several wires: `events.json` of each folder in `tests/fixtures/streams` is what an engine says, the files
 * beside it are the exact bytes that each dialect prints, streamed and whole. After a wanted change write them anew with
 * `node scripts/run.mjs tests/conformance/write-streams.ts` and read the difference.
 */
for (const name of streamCaseNames()) {
  for (const [wire, printer] of wires) {
    test(`${name} on ${wire}`, () => {
      const printed = print(readStreamCase(name), printer);
      assert.equal(printed.sse, readFileSync(pathInStreamCase(name, `${wire}.sse`), 'utf8'));
      assert.equal(printed.json, readFileSync(pathInStreamCase(name, `${wire}.json`), 'utf8'));
    });
  }
}

test('every case has the files of every dialect and no others', () => {
  const expected = ['events.json', ...[...wires.keys()].flatMap((wire) => [`${wire}.json`, `${wire}.sse`])].sort();
  const names = streamCaseNames();
  assert.ok(names.length >= 13, 'cases are missing');
  for (const name of names) assert.deepEqual(filesOfStreamCase(name), expected, name);
});
