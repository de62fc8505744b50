/** What a browser loads of the console before it shows something, and for each page more, compressed. */
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { test } from 'node:test';

import { inRepository } from '../../support/repository.ts';

const kilobyte = 1000;
const firstLoadMax = 170 * kilobyte;
const pageMax = 60 * kilobyte;
/** Pages that may be larger. */
const largerPages: Readonly<Record<string, number>> = { playground: 90 * kilobyte };

interface Manifest {
  readonly files: Readonly<Record<string, { readonly gz: number; readonly br: number; readonly bytes: number }>>;
}

const read = (name: string): string => readFileSync(inRepository(`dist/console/${name}`), 'utf8');
const { files } = JSON.parse(read('manifest.json')) as Manifest;
const index = read('index.html');

test('the first load is at most 170 kB', () => {
  const loaded = [...index.matchAll(/<(?:script|link)[^>]*(?:href|src)="\/([^"]+)"([^>]*)>/g)]
    .filter(([, , rest = '']) => !rest.includes('disabled'))
    .map(([, name = '']) => name);
  assert.ok(loaded.some((name) => name.endsWith('.js')) && loaded.some((name) => name.endsWith('.css')), index);
  const texts = Object.keys(files).filter((name) => /\/en-/.test(name));
  const largestTexts = Math.max(...texts.map((name) => files[name]!.gz));
  const bytes = loaded.reduce((sum, name) => sum + files[name]!.gz, files['index.html']!.gz + largestTexts);
  assert.ok(bytes <= firstLoadMax, `${bytes} bytes: ${loaded.join(', ')}`);
});

test('what is loaded later is at most 60 kB a file', () => {
  for (const [name, { gz }] of Object.entries(files)) {
    if (index.includes(`"/${name}"`) && !name.endsWith('.css')) continue;
    const max = Object.entries(largerPages).find(([page]) => name.startsWith(`assets/${page}-`))?.[1] ?? pageMax;
    assert.ok(gz <= max, `${name}: ${gz} bytes`);
  }
});

test('the playground with the colours of code is at most 100 kB', () => {
  const loaded = Object.entries(files).filter(([name]) =>
    /^assets\/(?:playground-page|highlighted)-.*\.js$/.test(name),
  );
  assert.equal(loaded.length, 2, Object.keys(files).join(', '));
  const bytes = loaded.reduce((sum, [, { gz }]) => sum + gz, 0);
  assert.ok(bytes <= 100 * kilobyte, `${bytes} bytes`);
});

test('everything that gains by it lies there compressed', () => {
  for (const [name, { bytes, br }] of Object.entries(files)) if (bytes > 500) assert.ok(br < bytes, name);
});
