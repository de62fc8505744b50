/** Libraries in one file each (docs/decisions/021-packed-libraries.md). */
import assert from 'node:assert/strict';
import { existsSync, readdirSync, realpathSync, symlinkSync } from 'node:fs';
import path from 'node:path';
import { test } from 'node:test';
import { fileURLToPath } from 'node:url';

import { clone, root, run } from './clone.ts';
import type { Clone } from './clone.ts';

const modules = path.join(root, 'dist', 'node_modules');

test('what is compiled finds the packed libraries', () => {
  for (const name of ['kysely', 'typebox', 'typebox/compile', 'typebox/value'])
    assert.ok(fileURLToPath(import.meta.resolve(name)).startsWith(modules + path.sep), name);
});

/** A clone with a library of its own, and a compiled program that uses it. */
function library(files: Readonly<Record<string, string>>, program: string): Clone {
  const project = clone(
    {
      'package.json': '{ "type": "module", "dependencies": { "kysely": "1" } }',
      ...Object.fromEntries(Object.entries(files).map(([name, text]) => [`node_modules/kysely/${name}`, text])),
      'dist/src/main.js': program,
    },
    { linkModules: false },
  );
  symlinkSync(
    realpathSync(path.join(root, 'node_modules', 'typescript')),
    path.join(project.folder, 'node_modules', 'typescript'),
  );
  return project;
}
const description = (version: string): string =>
  JSON.stringify({ name: 'kysely', version, type: 'module', exports: { '.': { import: './index.js' } } });

async function said(project: Clone, file: string): Promise<{ code: number | null; output: string; errors: string }> {
  const program = run(project, [file]);
  const { code } = await program.ended;
  return { code, output: program.output(), errors: program.errors() };
}

test('modules that need each other run in their order and export the same, and a new version is packed anew', async () => {
  const project = library(
    {
      'package.json': description('1.0.0'),
      'index.js': `import './order.js'; export * from './a.js'; export { default } from './c.js'; export * as c from './c.js';`,
      'order.js': `globalThis.order = [];`,
      'a.js': `import { twice } from './b.js'; export * from './b.js'; order.push('a');
        export const a = () => twice(2); export class A { #x = 1; get x() { return this.#x; } }`,
      'b.js': `export * from './c.js'; import { a } from './a.js'; order.push('b');
        export function twice(x) { return 2 * x; } export const viaA = () => a() + 1;`,
      'c.js': `export * from './a.js'; order.push('c'); export const late = 'c'; export default class C {}`,
    },
    `import C, * as all from 'kysely';
     console.log(JSON.stringify([order, Object.keys(all), all.a(), all.viaA(), new all.A().x, all.c.twice(3), all.c.late, C.name]));
     console.log(import.meta.resolve('kysely').includes('dist'));`,
  );
  const before = await said(project, 'dist/src/main.js');
  assert.match(
    before.output,
    /^\[\["c","b","a"\],\["A","a","c","default","late","twice","viaA"\],4,5,1,6,"c","C"\]\nfalse\n$/,
  );
  const packing = await said(project, 'scripts/pack.mjs');
  assert.deepEqual([packing.code, packing.output], [0, ''], packing.errors);
  assert.equal((await said(project, 'dist/src/main.js')).output, before.output.replace('false', 'true'));
  assert.equal((await said(project, 'scripts/pack.mjs')).errors, '', 'nothing is packed twice');
  project.write('node_modules/kysely/package.json', description('1.0.1'));
  project.write('node_modules/kysely/c.js', `export const late = 'later'; export default 1;`);
  assert.match((await said(project, 'scripts/pack.mjs')).errors, /^pack +kysely in /);
  project.write('dist/src/main.js', `import { c } from 'kysely'; console.log(c.late);`);
  assert.equal((await said(project, 'dist/src/main.js')).output, 'later\n');
});

test('what cannot be packed is used as it is installed', async () => {
  const project = library(
    { 'package.json': description('1.0.0'), 'index.js': `export { load } from 'elsewhere';` },
    `console.log(import.meta.resolve('kysely').includes('dist'));`,
  );
  const { code, errors } = await said(project, 'scripts/pack.mjs');
  assert.equal(code, 1);
  assert.match(errors, /^pack +not done: .*index\.js needs elsewhere\n$/);
  const packed = path.join(project.folder, 'dist', 'node_modules');
  assert.deepEqual(existsSync(packed) ? readdirSync(packed) : [], []);
  assert.equal((await said(project, 'dist/src/main.js')).output, 'false\n');
});
