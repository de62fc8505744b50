import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { jsonSchemaGrammar } from '../../../src/inference/constraints/json-schema.ts';
import { inlineRefs } from '../../../src/inference/constraints/schema-refs.ts';
import { refusal } from './refusal.ts';

const integer = { type: 'integer' };
const nested = (levels: number): unknown =>
  Array.from({ length: levels }).reduce<unknown>((inner) => ({ not: inner }), {});
const ones = (count: number): readonly number[] => Array.from({ length: count }, () => 1);
const typeless = (keyword: string): unknown => ({ properties: { a: { type: 'string', [keyword]: '3' } } });

const refused: readonly (readonly [schema: unknown, message: string])[] = [
  [5, ' at #: a schema is an object, true or false.'],
  [{ items: [5] }, ' at #/items/0: a schema is an object, true or false.'],
  [{ type: 'array', items: 5 }, ' at #/items: a schema is an object, true or false.'],
  [{ items: [], additionalItems: 5 }, ' at #/additionalItems: a schema is an object, true or false.'],
  [{ prefixItems: [{}, null] }, ' at #/prefixItems/1: a schema is an object, true or false.'],
  [{ prefixItems: {} }, " at #: 'prefixItems' is not a list."],
  [{ allOf: {} }, " at #: 'allOf' is not a list."],
  [{ allOf: [{}, { anyOf: 1 }] }, " at #/allOf/1: 'anyOf' is not a list."],
  [{ oneOf: [5] }, ' at #/oneOf/0: a schema is an object, true or false.'],
  [{ anyOf: [{}, 5] }, ' at #/anyOf/1: a schema is an object, true or false.'],
  [{ enum: 'a' }, " at #: 'enum' is not a list."],
  [{ properties: [] }, " at #: 'properties' is not an object."],
  [{ properties: { 'a/b~': 5 } }, ' at #/properties/a~1b~0: a schema is an object, true or false.'],
  [{ patternProperties: { '^/': 5 } }, ' at #/patternProperties/^~1: a schema is an object, true or false.'],
  [{ patternProperties: { '(': {} } }, " at #/patternProperties/(: '(' is not closed (character 0 of the pattern)."],
  [{ patternProperties: 5 }, " at #: 'patternProperties' is not an object."],
  [{ additionalProperties: 5 }, ' at #/additionalProperties: a schema is an object, true or false.'],
  [{ unevaluatedProperties: 5 }, ' at #/unevaluatedProperties: a schema is an object, true or false.'],
  [{ unevaluatedItems: 5 }, ' at #/unevaluatedItems: a schema is an object, true or false.'],
  [{ propertyNames: 5 }, ' at #/propertyNames: a schema is an object, true or false.'],
  [
    { propertyNames: { anyOf: [{ pattern: 'a' }, { maxLength: 1 }] } },
    ' at #/propertyNames: several forms of names cannot be enforced.',
  ],
  [
    { propertyNames: { anyOf: [{ const: 'a' }, { type: 'string', maxLength: 1 }] } },
    ' at #/propertyNames: several forms of names cannot be enforced.',
  ],
  [{ required: 'a' }, ' at #/required: a list of names is expected.'],
  [{ required: ['a', 1] }, ' at #/required: a list of names is expected.'],
  [{ dependentRequired: { a: [1] } }, ' at #/dependentRequired/a: a list of names is expected.'],
  [{ dependentSchemas: { 'a/': 5 } }, ' at #/dependentSchemas/a~1: a schema is an object, true or false.'],
  [{ dependencies: [] }, " at #: 'dependencies' is not an object."],
  [{ type: 5 }, " at #/type: 'type' is not a JSON type."],
  [{ type: [] }, " at #/type: 'type' is not a JSON type."],
  [{ type: ['string', 'file'] }, " at #/type: 'type' is not a JSON type."],
  [{ pattern: 5 }, " at #: 'pattern' is not text."],
  [{ pattern: 'a(' }, " at #/pattern: '(' is not closed (character 1 of the pattern)."],
  ...['minLength', 'maxLength'].map(
    (keyword) => [typeless(keyword), ` at #/properties/a: '${keyword}' is not a number.`] as const,
  ),
  ...['minLength', 'maxLength', 'minItems', 'maxItems', 'minProperties', 'maxProperties'].flatMap((keyword) =>
    [-1, 1.5].map((value) => [{ [keyword]: value }, ` at #: '${keyword}' is not a whole number from 0.`] as const),
  ),
  ...['minimum', 'maximum', 'exclusiveMinimum', 'exclusiveMaximum'].map(
    (keyword) => [{ [keyword]: '1' }, ` at #: '${keyword}' is not a number.`] as const,
  ),
  ...['contains', 'minContains', 'maxContains'].map(
    (keyword) => [{ allOf: [{ [keyword]: 1 }] }, ` at #/allOf/0: '${keyword}' cannot be enforced.`] as const,
  ),
  [
    { oneOf: [{ type: 'string' }, integer, { minimum: 2, type: 'number' }] },
    ' at #/oneOf: a value can match both 1 and 2, which cannot be prevented; use anyOf.',
  ],
  [
    { oneOf: [{ properties: { a: integer } }, { properties: { a: { minimum: 1 } } }] },
    ' at #/oneOf: a value can match both 0 and 1, which cannot be prevented; use anyOf.',
  ],
  [
    { properties: { a: { type: 'object', minProperties: 2 } } },
    " at #/properties/a/minProperties: 'minProperties' needs several members whose names the schema leaves open, and one could be written twice; list them in 'properties'.",
  ],
  [
    { type: 'object', patternProperties: Object.fromEntries(ones(6).map((_, i) => [`${i}`, {}])) },
    ' has an object with more than 5 patternProperties.',
  ],
  [{ type: 'string', enum: [1] }, ' allows no value.'],
  [{ type: 'integer', minimum: 3, maximum: 2 }, ' allows no value.'],
  [{ type: 'object', properties: { a: false }, required: ['a'] }, ' allows no value.'],
  [{ type: 'object', minProperties: 2, maxProperties: 1 }, ' allows no value.'],
  [false, ' allows no value.'],
  [{ enum: [] }, ' allows no value.'],
  [{ type: 'array', minItems: 2, items: false }, ' allows no value.'],
  [nested(65), ' nests deeper than 64 levels.'],
  [{ enum: [nested(63)] }, ' nests deeper than 64 levels.'],
  [{ description: 'x'.repeat(65_520) }, ' is longer than 65536 characters.'],
  [{ enum: ['x'.repeat(65_526)] }, ' is longer than 65536 characters.'],
  [{ enum: ones(32_765) }, ' is longer than 65536 characters.'],
];

describe('a schema that is refused', () => {
  for (const [schema, message] of refused) {
    it(`contracts decision 15: ${JSON.stringify(schema).slice(0, 90)}`, () => {
      const found = refusal(() => jsonSchemaGrammar(schema, 'tools[0]'), 'unsupported_value', 'tools[0]');
      assert.equal(found, `'tools[0]'${message}`);
    });
  }

  it('is not one that is only just within a bound', () => {
    for (const schema of [
      nested(64),
      { enum: [nested(62)] },
      { description: 'x'.repeat(65_519) },
      { type: 'object', patternProperties: Object.fromEntries(ones(5).map((_, i) => [`${i}`, {}])) },
      { minLength: 0, maxLength: 0 },
      { propertyNames: { anyOf: [{ const: 'a' }, { const: 'b' }] }, additionalProperties: {} },
    ])
      jsonSchemaGrammar(schema, 'schema');
  });

  it('has a place of at most 200 characters, the end of it', () => {
    const deep = Array.from({ length: 30 }).reduce<unknown>((inner) => ({ properties: { 'a-b-c-d': inner } }), 5);
    const found = refusal(() => jsonSchemaGrammar(deep, 'x'), 'unsupported_value', 'x');
    const [, place = ''] = /at (\S+): a schema is/.exec(found) ?? [];
    assert.equal(place.length, 201);
    assert.match(place, /^….*\/properties\/a-b-c-d$/);
  });
});

const target = { type: 'object', properties: { x: integer } };
const chain = (refs: number): unknown => ({
  $ref: '#/$defs/d1',
  $defs: Object.fromEntries(
    ones(refs).map((_, i) => [`d${i + 1}`, i + 1 === refs ? {} : { $ref: `#/$defs/d${i + 2}` }]),
  ),
});
const referring = (values: number): unknown => ({
  anyOf: [{ $ref: '#/$defs/a' }],
  $defs: { a: { enum: ones(values) } },
});

const inlined: readonly (readonly [name: string, schema: unknown, expected: unknown])[] = [
  ['one', { $ref: '#/$defs/a', $defs: { a: target } }, target],
  [
    'with notes beside it',
    { $ref: '#/$defs/a', title: 't', default: 1, $defs: { a: target } },
    { ...target, title: 't', default: 1 },
  ],
  [
    'with keywords beside it',
    { $ref: '#/$defs/a', minProperties: 1, $defs: { a: target } },
    { allOf: [target, { minProperties: 1 }] },
  ],
  [
    'with what its target leaves',
    { $ref: '#/$defs/a', unevaluatedProperties: false, unevaluatedItems: true, $defs: { a: target } },
    { allOf: [target, {}], unevaluatedProperties: false, unevaluatedItems: true },
  ],
  ['to true', { items: { $ref: '#/$defs/a', title: 'x' }, $defs: { a: true } }, { items: true }],
  [
    'through an array',
    { items: { $ref: '#/anyOf/1' }, anyOf: [{}, integer] },
    { items: integer, anyOf: [{}, integer] },
  ],
  [
    'by an escaped name',
    { items: { $ref: '#/$defs/a~1b~0c%20~01' }, $defs: { 'a/b~c ~1': integer } },
    { items: integer },
  ],
  [
    'of a reference',
    { items: { $ref: '#/definitions/a' }, definitions: { a: { $ref: '#/definitions/b' }, b: integer } },
    { items: integer },
  ],
  [
    'in data, which is none',
    { enum: [{ $ref: '#/x' }], const: { $ref: 'y' }, default: { $ref: 'z' } },
    { enum: [{ $ref: '#/x' }], const: { $ref: 'y' }, default: { $ref: 'z' } },
  ],
  [
    'below every keyword',
    { ...belowEveryKeyword({ $ref: '#/$defs/a' }), $defs: { a: integer } },
    belowEveryKeyword(integer),
  ],
];

/** A schema with this one below each keyword that has schemas. */
function belowEveryKeyword(schema: object): object {
  const at = (keywords: readonly string[], value: unknown): object =>
    Object.fromEntries(keywords.map((keyword) => [keyword, value]));
  return {
    ...at(['items', 'additionalItems', 'contains', 'additionalProperties', 'propertyNames'], schema),
    ...at(['unevaluatedItems', 'unevaluatedProperties', 'not', 'if', 'then', 'else'], schema),
    ...at(['prefixItems', 'allOf', 'anyOf', 'oneOf'], [true, schema]),
    ...at(['properties', 'patternProperties', 'dependentSchemas', 'dependencies'], { items: schema, b: ['c'] }),
  };
}

const faulty: readonly (readonly [name: string, schema: unknown, message: string])[] = [
  ['remote', { $ref: 'https://example.com/s.json' }, ' at #: a remote $ref is not supported.'],
  ['no text', { not: { $ref: 5 } }, ' at #/not: a $ref is not text.'],
  [
    'unresolved',
    { properties: { 'a/': { $ref: '#/$defs/none' } } },
    ' at #/properties/a~1: a $ref points to nothing in the schema.',
  ],
  [
    'through a text',
    { items: { $ref: '#/title/length' }, title: 'x' },
    ' at #/items: a $ref points to nothing in the schema.',
  ],
  [
    'through nothing',
    { items: { $ref: '#/default/a' }, default: null },
    ' at #/items: a $ref points to nothing in the schema.',
  ],
  ['of a prototype', { $ref: '#/constructor' }, ' at #: a $ref points to nothing in the schema.'],
  ['to a list', { items: { $ref: '#/enum' }, enum: [] }, ' at #/items: a $ref does not point to a schema.'],
  ['badly escaped', { $ref: '#/%' }, ' at #: a $ref is not a JSON pointer.'],
  [
    'recursive',
    { $defs: { a: { items: { $ref: '#/$defs/a' } } }, $ref: '#/$defs/a' },
    ' at #/items: a $ref leads back to itself.',
  ],
  [
    'recursive by turns',
    { $defs: { a: { not: { $ref: '#/$defs/b' } }, b: { not: { $ref: '#/$defs/a' } } }, items: { $ref: '#/$defs/a' } },
    ' at #/items/not/not: a $ref leads back to itself.',
  ],
  [
    'to the root',
    { properties: { a: { $ref: '#' } } },
    ' at #/properties/a/properties/a: a $ref leads back to itself.',
  ],
  ['to an anchor', { $ref: '#a' }, ' at #: a $ref names an anchor, not a path.'],
  ['dynamic', { anyOf: [{ $dynamicRef: '#a' }] }, ' at #/anyOf/0: $dynamicRef is not supported.'],
  ['recursive by name', { $recursiveRef: '#' }, ' at #: $recursiveRef is not supported.'],
  ['129 deep', chain(129), ' at #: the schema nests deeper than 128 levels with its $refs written out.'],
  [
    'of too many values',
    referring(19_997),
    ' at #/anyOf/0: the schema is larger than 20000 values with its $refs written out.',
  ],
];

describe('a reference', () => {
  for (const [name, schema, expected] of inlined)
    it(`${name} is replaced by its target`, () => assert.deepEqual(inlineRefs(schema, 'schema'), expected));

  for (const [name, schema, message] of faulty) {
    it(`§4.2.3(2), contracts decision 21: ${name} is refused`, () => {
      const found = refusal(() => inlineRefs(schema, 'schema'), 'json_schema_refs_unsupported', 'schema');
      assert.equal(found, `'schema'${message}`);
    });
  }

  it('is counted with each copy of its target, and the target is one object', () => {
    inlineRefs(chain(128), 'schema');
    inlineRefs(referring(19_996), 'schema');
    const twice = (values: number) => ({
      anyOf: [{ $ref: '#/$defs/a' }, { $ref: '#/$defs/a' }],
      $defs: { a: { enum: ones(values) } },
    });
    inlineRefs(twice(9_996), 'schema');
    refusal(() => inlineRefs(twice(9_998), 'schema'), 'json_schema_refs_unsupported', 'schema');
    const { anyOf } = inlineRefs(twice(1), 'schema') as { readonly anyOf: readonly unknown[] };
    assert.deepEqual(anyOf, [{ enum: [1] }, { enum: [1] }]);
    // Its levels count where it is copied, too.
    const levels = (below: number, deep: number): unknown => ({
      properties: {
        a: { $ref: '#/$defs/a' },
        b: Array.from({ length: below }).reduce<unknown>((inner) => ({ not: inner }), { $ref: '#/$defs/a' }),
      },
      $defs: { a: nested(deep) },
    });
    inlineRefs(levels(60, 66), 'schema');
    refusal(() => inlineRefs(levels(60, 67), 'schema'), 'json_schema_refs_unsupported', 'schema');
  });

  it('is not blamed where a schema without any is too large', () => {
    inlineRefs({ enum: ones(19_999) }, 'schema');
    refusal(() => inlineRefs({ enum: ones(20_000) }, 'schema'), 'unsupported_value', 'schema');
  });
});
