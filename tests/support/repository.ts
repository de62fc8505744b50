import assert from 'node:assert/strict';
import { existsSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';

/** The nearest folder above the running file that holds `name`: what is bundled does not run where its source lies. */
export function folderWith(name: string): string {
  let folder = dirname(fileURLToPath(import.meta.url));
  while (!existsSync(join(folder, name))) {
    assert.notEqual(dirname(folder), folder, `no ${name} above the running file`);
    folder = dirname(folder);
  }
  return folder;
}

/** The repository. */
export const root = folderWith('package.json');

/** A path in the repository. */
export const inRepository = (...names: readonly string[]): string => join(root, ...names);
