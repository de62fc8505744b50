import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import fc from 'fast-check';
import { Check } from 'typebox/schema';
import { jsonSchemaGrammar } from '../../../src/inference/constraints/json-schema.ts';
import { mulberry32 } from '../../support/random.ts';
import { matches } from './matcher.ts';
import { randomTexts } from './random-text.ts';
import { refusal, unlessRefused } from './refusal.ts';

// A name that is written twice counts once for every reader: what counts members must not count it twice.

const boolean = { type: 'boolean' };
const open = /at (#\/\S+): 'minProperties' needs several members whose names the schema leaves open/;
const openOrNoValue = new RegExp(`${open.source}|allows no value`);

const rows: readonly (readonly [
  name: string,
  schema: unknown,
  accepted: readonly string[],
  rejected: readonly string[],
])[] = [
  [
    'names of an enum',
    { type: 'object', minProperties: 2, propertyNames: { enum: ['b', 'a', 'c'] }, additionalProperties: boolean },
    ['{"a":true,"b":false}', '{"a":true,"b":false,"c":true}', '{"b":true,"c":true}'],
    ['{"a":true}', '{"a":true,"a":true}', '{"a":true,"b":true,"a":true}', '{"a":true,"d":true}'],
  ],
  [
    'names of patterns',
    { type: 'object', minProperties: 2, patternProperties: { '^[a-c]$': boolean, '^[cd]$': { enum: [true, null] } } },
    ['{"a":true,"b":false}', '{"a":false,"c":true}', '{"a":true,"d":null}'],
    ['{"a":true,"a":true}', '{"c":false,"a":true}', '{"d":null}'],
  ],
  [
    'a name of 128 characters',
    {
      type: 'object',
      minProperties: 2,
      propertyNames: { enum: ['y'.repeat(128), 'x'] },
      additionalProperties: boolean,
    },
    [`{"x":true,"${'y'.repeat(128)}":false}`],
    ['{"x":true}', '{"x":true,"y":true}'],
  ],
  [
    'one member beside those that are declared',
    { type: 'object', properties: { a: boolean, b: boolean }, minProperties: 2, additionalProperties: boolean },
    ['{"a":true,"x":true}', '{"a":true,"b":true}', '{"b":true,"x":true,"y":true}'],
    ['{"a":true}', '{"x":true}', '{"x":true,"x":true}'],
  ],
];

const refused: readonly (readonly [name: string, schema: unknown, place: string])[] = [
  [
    '257 names',
    {
      type: 'object',
      minProperties: 2,
      propertyNames: { enum: Array.from({ length: 257 }, (_, i) => `n${i}`) },
      additionalProperties: boolean,
    },
    '#/minProperties',
  ],
  [
    'a name of 129 characters',
    {
      type: 'object',
      minProperties: 2,
      propertyNames: { enum: ['y'.repeat(129), 'x'] },
      additionalProperties: boolean,
    },
    '#/minProperties',
  ],
  ['any names', { type: 'object', minProperties: 2, additionalProperties: boolean }, '#/minProperties'],
  [
    'names of a pattern',
    { properties: { m: { type: 'object', minProperties: 3, patternProperties: { '^x_': boolean } } } },
    '#/properties/m/minProperties',
  ],
  [
    'a larger count in another part',
    { type: 'object', minProperties: 1, allOf: [{ minProperties: 4 }], required: ['a'], additionalProperties: boolean },
    '#/allOf/0/minProperties',
  ],
];

describe('members are counted by their names', () => {
  for (const [name, schema, accepted, rejected] of rows) {
    it(name, () => {
      const grammar = jsonSchemaGrammar(schema, 'schema');
      for (const text of accepted) assert.ok(matches(grammar, text), text);
      for (const text of rejected) assert.ok(!matches(grammar, text), text);
    });
  }

  for (const [name, schema, place] of refused) {
    it(`contracts decision 15: ${name} that must be several are refused with their place`, () => {
      const message = refusal(() => jsonSchemaGrammar(schema, 'schema'), 'unsupported_value', 'schema');
      assert.equal(open.exec(message)?.[1], place, message);
    });
  }

  it('more members than there are names is no value', () => {
    for (const names of [{ propertyNames: { enum: ['a', 'b'] } }, { patternProperties: { '^[ab]$': boolean } }]) {
      const schema = { type: 'object', minProperties: 3, ...names };
      assert.match(
        refusal(() => jsonSchemaGrammar(schema, 'schema'), 'unsupported_value', 'schema'),
        /allows no value/,
      );
    }
  });
});

const name = fc.constantFrom('a', 'b', 'c', 'dd');
const value = fc.constantFrom<unknown>(
  boolean,
  true,
  { enum: [1, null] },
  { type: 'array', items: boolean, maxItems: 2 },
);
const maybe = <Value>(arbitrary: fc.Arbitrary<Value>) => fc.option(arbitrary, { nil: undefined, freq: 2 });

const objectSchema = fc
  .record({
    properties: maybe(fc.dictionary(name, value, { maxKeys: 3, noNullPrototype: true })),
    required: maybe(fc.uniqueArray(name, { maxLength: 2 })),
    additionalProperties: maybe(fc.constantFrom<unknown>(boolean, true, false)),
    patternProperties: maybe(
      fc.dictionary(fc.constantFrom('^[ab]$', '^a', 'd+', '^(c|dd|e)$', ''), value, {
        maxKeys: 2,
        noNullPrototype: true,
      }),
    ),
    propertyNames: maybe(
      fc.constantFrom<unknown>({ enum: ['a', 'b', 'z'] }, { pattern: '^[a-d]$' }, { maxLength: 1 }, { minLength: 2 }),
    ),
    minProperties: maybe(fc.integer({ min: 0, max: 4 })),
    maxProperties: maybe(fc.integer({ min: 1, max: 4 })),
    dependentRequired: maybe(fc.dictionary(name, fc.uniqueArray(name, { minLength: 1, maxLength: 2 }), { maxKeys: 1 })),
    dependentSchemas: maybe(fc.constantFrom({ a: { minProperties: 3 } }, { b: { maxProperties: 1 } })),
  })
  .map((schema) => ({ type: 'object', ...(JSON.parse(JSON.stringify(schema)) as object) }));

const schemas = fc.oneof(
  { weight: 3, arbitrary: objectSchema },
  fc.tuple(objectSchema, objectSchema).map(([left, right]) => ({ allOf: [left, right] })),
  fc.tuple(objectSchema, objectSchema).map(([left, right]) => ({ anyOf: [left, right] })),
  fc
    .record({
      items: objectSchema,
      prefixItems: maybe(fc.array(value, { maxLength: 2 })),
      minItems: maybe(fc.integer({ min: 0, max: 3 })),
      maxItems: maybe(fc.integer({ min: 1, max: 4 })),
    })
    .map((schema) => ({ type: 'array', ...(JSON.parse(JSON.stringify(schema)) as object) })),
);

it('what is written under counts is valid for an independent validator, or the schema is refused', () => {
  let [tried, judged] = [0, 0];
  fc.assert(
    fc.property(schemas, fc.integer(), (schema, seed) => {
      tried++;
      const grammar = unlessRefused(() => jsonSchemaGrammar(schema, 'schema'), openOrNoValue);
      if (grammar === undefined) return;
      judged++;
      const write = randomTexts(grammar, mulberry32(seed));
      for (let times = 0; times < 12; times++) {
        const text = write();
        assert.ok(Check(schema as never, JSON.parse(text)), `${JSON.stringify(schema)} does not allow ${text}`);
      }
    }),
    { numRuns: 400 },
  );
  assert.ok(judged > tried * 0.4, `${judged} of ${tried} were judged`);
});
