/** The catalogues of the console: the compiler holds that no text is missing, this that the texts fit each other. */
import assert from 'node:assert/strict';
import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, test } from 'node:test';

import { featureFlags } from '../../src/catalog/card-flags.ts';
import { textsOf } from '../support/console-texts.ts';
import { inRepository } from '../support/repository.ts';

const source = inRepository('web/src');
const folders = ['app', ...readdirSync(join(source, 'pages')).map((name) => `pages/${name}`)];

const marksOf = (text: string): readonly string[] =>
  [...new Set([...text.matchAll(/\{\w+\}|<\w+>/g)].map(([mark]) => mark))].toSorted();

describe('the texts of', () => {
  for (const folder of folders) {
    test(folder, () => {
      const english = textsOf(folder, 'en');
      assert.ok(english.size > 0);
      for (const language of ['de', 'zh']) {
        const other = textsOf(folder, language);
        assert.deepEqual([...other.keys()], [...english.keys()], language);
        for (const [key, text] of english) {
          assert.notEqual(other.get(key)!.trim(), '', `${language}: ${key}`);
          assert.deepEqual(marksOf(other.get(key)!), marksOf(text), `${language}: ${key}`);
        }
      }
    });
    test(`${folder} are all used`, () => {
      const used = folder === 'app' ? codeBelow('') : codeBelow(folder);
      // The API says which features there are.
      const named: ReadonlySet<string> = new Set(folder === 'pages/models' ? featureFlags : []);
      const unused = [...textsOf(folder, 'en').keys()].filter((key) => !named.has(key) && !used.includes(`'${key}'`));
      assert.deepEqual(unused, []);
    });
  }
});

function codeBelow(folder: string): string {
  return readdirSync(join(source, folder), { recursive: true, encoding: 'utf8' })
    .filter((name) => /\.tsx?$/.test(name) && !name.includes('messages') && !name.includes('node_modules'))
    .map((name) => readFileSync(join(source, folder, name), 'utf8'))
    .join('\n');
}
