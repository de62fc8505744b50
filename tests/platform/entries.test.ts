import assert from 'node:assert/strict';
import { existsSync, readFileSync } from 'node:fs';
import { basename, dirname, join } from 'node:path';
import { test } from 'node:test';
import { pathToFileURL } from 'node:url';

import { mainFile } from '../support/built.ts';
import { inRepository } from '../support/repository.ts';

test('every entry that the program knows is built, and every one that is built is known', async () => {
  const { programEntries } = (await import(pathToFileURL(inRepository('scripts/bundle.mjs')).href)) as {
    programEntries(): readonly { readonly in: string; readonly out: string }[];
  };
  const made = programEntries().map(({ out }) => out);
  const text = readFileSync(inRepository('src/platform/entries.ts'), 'utf8');
  const known = [...text.matchAll(/'([a-z-]+-(?:child|thread|worker))'/g)].map(([, name]) => name!);
  assert.deepEqual(made.toSorted(), [...known, 'main'].toSorted());
  for (const name of made) assert.ok(existsSync(join(dirname(mainFile), `${name}.js`)), name);
});

test('every entry begins with the names of our files in stacks', async () => {
  const { programEntries } = (await import(pathToFileURL(inRepository('scripts/bundle.mjs')).href)) as {
    programEntries(): readonly { readonly in: string }[];
  };
  for (const { in: file } of programEntries()) {
    const [first] = /^import .*$/m.exec(readFileSync(file, 'utf8')) ?? [];
    assert.match(first ?? '', /^import '[./]+(platform\/)?stack-traces\.ts';$/, basename(file));
  }
});
