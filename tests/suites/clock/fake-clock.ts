/** The clock of a process that somebody sets. */
import assert from 'node:assert/strict';
import { mkdtempSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { TestContext } from 'node:test';

const library = process.env['TOKENHOUSE_TEST_FAKETIME'];
assert.ok(library !== undefined, 'start this suite with: npm run suite clock');

/** `set('+400d')` holds at once, for processes that were started with the environment; the time that only passes is left alone. */
export function fakeClock(t: Pick<TestContext, 'after'>): {
  readonly environment: Record<string, string>;
  set(offset: string): void;
} {
  const folder = mkdtempSync(join(tmpdir(), 'tokenhouse-clock-'));
  t.after(() => rmSync(folder, { recursive: true, force: true }));
  const file = join(folder, 'clock');
  const set = (offset: string): void => {
    writeFileSync(`${file}.new`, `${offset}\n`);
    renameSync(`${file}.new`, file);
  };
  set('+0');
  return {
    environment: {
      FAKETIME_TIMESTAMP_FILE: file,
      LD_PRELOAD: library!,
      FAKETIME_NO_CACHE: '1',
      FAKETIME_DONT_FAKE_MONOTONIC: '1',
    },
    set,
  };
}
