import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { pathToFileURL } from 'node:url';

import { configSchema } from '../../src/config/schema.ts';
import { root } from '../support/repository.ts';

/** The tables of docs/configuration.md and docs/cli.md are what `npm run check -- --fix` prints now. */
const { documents } = (await import(pathToFileURL(join(root, 'scripts', 'docs.mjs')).href)) as {
  documents(): Promise<Readonly<Record<string, string>>>;
};
const printed = await documents();

for (const file of ['docs/configuration.md', 'docs/cli.md']) {
  test(`${file} is up to date`, () => {
    assert.equal(
      readFileSync(join(root, file), 'utf8'),
      printed[file],
      `${file} is stale: run npm run check -- --fix and commit what it writes`,
    );
  });
}

test('the tables have the keys, defaults and words of the schema', () => {
  const text = printed['docs/configuration.md'] ?? '';
  const limits = Object.entries(configSchema().properties?.['server']?.properties?.['limits']?.properties ?? {});
  assert.ok(limits.length > 20);
  for (const [name, { default: value }] of limits)
    if (value !== undefined)
      assert.match(text, new RegExp(`^\\| \`server\\.limits\\.${name}\` \\| \`${value as number}\` \\| \\w+`, 'm'));
  assert.match(text, /^\| `models\[\]\.id` \| \| the value of `model` in requests \|$/m);
  assert.match(
    text,
    /^\| `openai\.flavor` \| \| what kind of server it is: `llama-server`, `lm-studio`, `ollama`, `openai`, `sglang`, `tei`, `tgi` or `vllm` \|$/m,
  );
  assert.match(text, /^\| `say\[\]\.tool_call\.name` \| \| called \|$/m);
});

test('every key is described', () => {
  const rows = [...(printed['docs/configuration.md'] ?? '').matchAll(/^\| `([^`]+)` \|(.*)\|$/gm)];
  assert.ok(rows.length > 60);
  for (const [, key, rest] of rows) assert.notEqual(rest?.split('|').at(-1)?.trim(), '', key);
  const keys = rows.map(([, key]) => key);
  assert.equal(new Set(keys).size, keys.length, 'a key stands there twice');
});

test('every command has its section', () => {
  for (const name of ['serve', 'init', 'config check', 'chat', 'doctor', 'keys create', 'completion', 'explain'])
    assert.match(printed['docs/cli.md'] ?? '', new RegExp(`^### tokenhouse ${name}\\b`, 'm'));
});
