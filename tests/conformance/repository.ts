import assert from 'node:assert/strict';
import { existsSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';

/** A path in the repository; tests run from `dist/`, where no fixtures are. */
export function inRepository(...names: readonly string[]): string {
  let folder = dirname(fileURLToPath(import.meta.url));
  while (!existsSync(join(folder, 'package.json'))) {
    assert.notEqual(dirname(folder), folder, 'no package.json above the test');
    folder = dirname(folder);
  }
  return join(folder, ...names);
}
