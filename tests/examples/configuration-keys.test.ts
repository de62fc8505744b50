import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { test } from 'node:test';
import { fileURLToPath } from 'node:url';

import { defaultFirstCreditCents, defaultLimits, defaultServer, defaultStorage } from '../../src/config/defaults.ts';
import { configSchema } from '../../src/config/schema.ts';
import { scriptSchema } from '../../src/engines/scripted/script-schema.ts';

/** The tables of docs/configuration.md have every key that the boot code knows, in its order, and no other. */
const document = readFileSync(fileURLToPath(new URL('../../../docs/configuration.md', import.meta.url)), 'utf8');

interface Row {
  readonly key: string;
  readonly default: string;
  readonly meaning: string;
}

/** All rows of tables whose first cell is a key. */
const rows: readonly Row[] = document
  .split('\n')
  .map((line) => /^\| `([\w[\].]+)` \| (.*?) ?\| (.*) \|$/.exec(line))
  .filter((match) => match !== null)
  .map(([, key = '', value = '', meaning = '']) => ({ key, default: value.replaceAll('`', ''), meaning }));

interface Schema {
  readonly type?: string;
  readonly const?: unknown;
  readonly description?: string;
  readonly properties?: Readonly<Record<string, Schema>>;
  readonly required?: readonly string[];
  readonly items?: Schema;
  readonly anyOf?: readonly Schema[];
}

interface Key {
  readonly key: string;
  readonly description: string;
  readonly isRequired: boolean;
}

/** The leaves of a schema by their paths; the keys of a backend stand under the name of its engine. */
function keysOf(schema: Schema, path = '', isRequired = false): readonly Key[] {
  const { properties, required = [], items, anyOf } = schema;
  if (properties !== undefined) {
    const engine = properties['engine']?.const;
    const prefix = typeof engine === 'string' ? `${engine}.` : path === '' ? '' : `${path}.`;
    return Object.entries(properties).flatMap(([name, value]) =>
      keysOf(value, `${prefix}${name}`, required.includes(name)),
    );
  }
  if (anyOf?.every((choice) => choice.properties !== undefined)) {
    return anyOf.flatMap((choice) => keysOf(choice, path, isRequired));
  }
  if (items?.properties !== undefined || items?.anyOf?.every((choice) => choice.properties !== undefined)) {
    return keysOf(items, `${path}[]`, isRequired);
  }
  return [{ key: path, description: schema.description ?? '', isRequired }];
}

const configKeys = keysOf(configSchema() as unknown as Schema);
const scriptKeys = keysOf(scriptSchema as unknown as Schema);

test('every key of the schemas has its row, and there are no others', () => {
  const expected = [...configKeys, ...scriptKeys].map(({ key }) => key);
  const described = rows.map(({ key }) => key).filter((key) => !/^[A-Z_]+$/.test(key));
  // The schema of a script lists its conditions in another order than a reader wants.
  assert.deepEqual(described.toSorted(), [...new Set(expected)].toSorted());
  assert.equal(new Set(described).size, described.length, 'a key stands there twice');
});

test("a key is described in the schema's words, and what is required has no default", () => {
  for (const { key, description, isRequired } of configKeys) {
    const row = rows.find((candidate) => candidate.key === key);
    assert.ok(row, key);
    if (description !== '') assert.ok(row.meaning.startsWith(description), `${key}: ${description}`);
    assert.equal(row.default === '', isRequired, `${key}: default ${row.default}`);
  }
});

test('the defaults are the defaults', () => {
  const expected = new Map<string, string>([
    ['storage', defaultStorage],
    ['accounts.first_credit_cents', defaultFirstCreditCents],
  ]);
  for (const [name, value] of Object.entries(defaultLimits)) expected.set(`server.limits.${name}`, String(value));
  for (const [host, listen] of Object.entries(defaultServer)) {
    for (const [name, value] of Object.entries(listen)) expected.set(`server.${host}.${name}`, String(value));
  }
  for (const [key, value] of expected) assert.equal(rows.find((row) => row.key === key)?.default, value, key);
});
