/** Light and dark differ in colours alone, so the tests in browsers look at everything else in one of them (tests/suites/browser/browser.ts). */
import assert from 'node:assert/strict';
import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { inRepository } from '../support/repository.ts';

test('no style and no script asks which colour scheme it is', () => {
  const folders = [inRepository('web/src'), inRepository('scripts/docs-site')];
  const files = folders.flatMap((folder) =>
    readdirSync(folder, { recursive: true, encoding: 'utf8' })
      .filter((name) => /\.(css|tsx?|mjs)$/.test(name))
      .map((name) => join(folder, name)),
  );
  const texts = [...files, inRepository('web/index.html')].map((file) => ({ file, text: readFileSync(file, 'utf8') }));
  assert.ok(texts.some(({ text }) => text.includes('light-dark(')));
  assert.deepEqual(
    texts.filter(({ text }) => /prefers-color-scheme/.test(text)).map(({ file }) => file),
    [],
  );
});
