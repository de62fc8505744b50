/** Schemas, and texts of JSON that are written under each, or never. */
interface Row {
  readonly name: string;
  readonly schema: unknown;
  readonly accepted: readonly string[];
  readonly rejected: readonly string[];
}
const integer = { type: 'integer' };
const object = (properties: Readonly<Record<string, unknown>>, required: readonly string[] = []) => ({
  type: 'object',
  properties,
  required,
});

export const schemaRows: readonly Row[] = [
  {
    name: 'required and optional members in their order',
    schema: object({ a: integer, b: {}, c: { type: 'null' } }, ['b']),
    accepted: ['{"b":1}', '{"a":1,"b":"x","c":null}', '{"b":[],"c":null}'],
    rejected: ['{}', '{"a":1}', '{"b":1,"a":1}', '{"b":1,"d":1}', '{"a":"x","b":1}'],
  },
  {
    name: 'all optional',
    schema: object({ a: integer, b: integer }),
    accepted: ['{}', '{"b":2}', '{"a":1}', '{"a":1,"b":2}', '{\n  "a": 1\n}'],
    rejected: ['{"c":1}', '{,"b":2}', '{"a":1,}'],
  },
  {
    name: 'members beside the declared ones, whose names they cannot take',
    schema: { ...object({ a: integer }), additionalProperties: { type: 'string' } },
    accepted: ['{"a":1,"ab":"x","":"y"}', '{"b":"x"}'],
    rejected: ['{"a":"x"}', '{"a":1,"a":"x"}', '{"\\u0061":"x"}', '{"b":1}'],
  },
  {
    name: 'additionalProperties false without properties',
    schema: { type: 'object', additionalProperties: false },
    accepted: ['{}'],
    rejected: ['{"a":1}'],
  },
  {
    name: 'patternProperties',
    schema: {
      type: 'object',
      properties: { x_known: {} },
      patternProperties: { '^x_': integer, _y$: { minimum: 5 } },
      additionalProperties: { type: 'null' },
    },
    accepted: ['{"x_known":3,"x_a":1}', '{"x_y":5}', '{"a_y":7,"b":null}'],
    rejected: ['{"x_known":"s"}', '{"x_y":4}', '{"x_a":null}', '{"b":1}'],
  },
  {
    name: 'patternProperties beside properties, where nothing is said of others',
    schema: { ...object({ a: integer }), patternProperties: { '^x': integer } },
    accepted: ['{"a":1,"xy":2}', '{"x":2}', '{}'],
    rejected: ['{"b":1}', '{"x":"s"}'],
  },
  {
    name: 'propertyNames',
    schema: { type: 'object', propertyNames: { pattern: '^[a-z]+$', maxLength: 3 }, additionalProperties: integer },
    accepted: ['{"abc":1}', '{}'],
    rejected: ['{"Abc":1}', '{"abcd":1}'],
  },
  {
    name: 'minProperties and maxProperties',
    schema: { ...object({ a: integer, b: integer, c: integer }), minProperties: 1, maxProperties: 2 },
    accepted: ['{"a":1}', '{"b":1,"c":2}'],
    rejected: ['{}', '{"a":1,"b":1,"c":2}'],
  },
  {
    name: 'dependentRequired',
    schema: { ...object({ a: integer, b: integer }), dependentRequired: { a: ['b'] } },
    accepted: ['{}', '{"b":1}', '{"a":1,"b":1}'],
    rejected: ['{"a":1}'],
  },
  {
    name: 'unevaluatedProperties beside allOf',
    schema: { allOf: [object({ a: integer }, ['a'])], unevaluatedProperties: false },
    accepted: ['{"a":1}'],
    rejected: ['{"a":1,"b":2}'],
  },
  {
    name: 'unevaluatedProperties alone',
    schema: { type: 'object', unevaluatedProperties: integer },
    accepted: ['{"b":2}'],
    rejected: ['{"b":"x"}'],
  },
  {
    name: 'unevaluatedProperties beside properties, patternProperties and allOf',
    schema: {
      allOf: [object({ a: integer })],
      properties: { b: integer },
      patternProperties: { '^x': {} },
      unevaluatedProperties: { type: 'null' },
    },
    accepted: ['{"b":1,"a":1}', '{"xy":"s"}', '{"c":null}'],
    rejected: ['{"a":null}', '{"b":null}', '{"c":1}'],
  },
  {
    name: 'unevaluatedProperties in a part of allOf, where another part allows more',
    schema: { allOf: [{ unevaluatedProperties: true }, { ...object({ a: integer }), unevaluatedProperties: false }] },
    accepted: ['{}', '{"a":1}'],
    rejected: ['{"b":1}'],
  },
  {
    name: 'unevaluatedProperties in a part of allOf, where anyOf declares another member',
    schema: { allOf: [{ ...object({ a: {} }), unevaluatedProperties: false }], anyOf: [object({ b: {} })] },
    accepted: ['{}', '{"a":1}'],
    rejected: ['{"b":1}', '{"a":1,"b":1}'],
  },
  {
    name: 'unevaluatedProperties beside additionalProperties of another type',
    schema: { allOf: [{ type: 'object', additionalProperties: integer }], unevaluatedProperties: false },
    accepted: ['{"a":1}'],
    rejected: ['{"a":null}'],
  },
  {
    name: 'unevaluatedProperties beside $ref covers the members of its target',
    schema: {
      $ref: '#/$defs/t',
      properties: { a: integer },
      unevaluatedProperties: false,
      $defs: { t: object({ b: integer }) },
    },
    accepted: ['{"b":1,"a":1}', '{"b":1}'],
    rejected: ['{"c":1}'],
  },
  {
    name: 'a required member that unevaluatedProperties forbids makes its part impossible',
    schema: {
      type: 'object',
      anyOf: [{ required: ['a'], unevaluatedProperties: false }, { ...object({ b: integer }, ['b']) }],
    },
    accepted: ['{"b":1}'],
    rejected: ['{"a":1}'],
  },
  {
    name: 'unevaluatedItems after the longest prefix, also of allOf and of $ref',
    schema: {
      $ref: '#/$defs/t',
      allOf: [{ prefixItems: [{ type: 'string' }], minItems: 1 }],
      unevaluatedItems: { type: 'null' },
      $defs: { t: { type: 'array', prefixItems: [{}, integer] } },
    },
    accepted: ['["a"]', '["a",1]', '["a",1,null]'],
    rejected: ['[1]', '["a",null]', '["a",1,1]'],
  },
  {
    name: 'unevaluatedItems of a member, whose items another schema of the object declares',
    schema: {
      ...object({ a: { prefixItems: [{ type: 'string' }], unevaluatedItems: false, minItems: 0 } }, ['a']),
      anyOf: [object({ a: { type: 'array', prefixItems: [{}, { type: 'string' }] } })],
    },
    accepted: ['{"a":[]}', '{"a":["x"]}'],
    rejected: ['{"a":["x","y"]}'],
  },
  {
    name: 'arrays',
    schema: { type: 'array', items: integer, minItems: 1, maxItems: 3 },
    accepted: ['[1]', '[1,2,3]', '[ 1, 2 ]'],
    rejected: ['[]', '[1,2,3,4]', '["x"]'],
  },
  {
    name: 'tuples',
    schema: { prefixItems: [{ type: 'string' }, integer], items: { type: 'null' }, minItems: 1, maxItems: 3 },
    accepted: ['["a"]', '["a",1]', '["a",1,null]'],
    rejected: ['[]', '[1]', '["a",1,null,null]', '["a",1,1]'],
  },
  {
    name: 'tuples of draft 7',
    schema: { type: 'array', items: [{ type: 'string' }, integer], additionalItems: false },
    accepted: ['["a",1]'],
    rejected: ['["a",1,2]'],
  },
  {
    name: 'length in characters, however they are escaped',
    schema: { type: 'string', minLength: 2, maxLength: 3 },
    accepted: ['"ab"', '"😀😀😀"', '"\\ud83d\\ude00\\n"'],
    rejected: ['"a"', '"abcd"', '"\\ud83d\\ude00"', '"\\ud83d\\ud83d"'],
  },
  {
    name: 'pattern and length',
    schema: { type: 'string', pattern: '^(ab|c)*$', minLength: 3, maxLength: 4 },
    accepted: ['"abc"', '"cccc"', '"abab"'],
    rejected: ['"ab"', '"ababc"'],
  },
  {
    name: 'an e-mail address with a length',
    schema: {
      type: 'string',
      pattern: '^[a-zA-Z0-9_.+-]+@[a-zA-Z0-9-]+\\.[a-zA-Z0-9-.]+$',
      minLength: 6,
      maxLength: 254,
    },
    accepted: [
      '"ab@c.d"',
      `"${'a'.repeat(250)}@b.c"`,
      `"a@b.${'c'.repeat(250)}"`,
      `"${'a'.repeat(100)}@b.${'c'.repeat(151)}"`,
    ],
    rejected: [
      '"a@b.c"',
      `"${'a'.repeat(251)}@b.c"`,
      `"a@b.${'c'.repeat(251)}"`,
      `"${'a'.repeat(100)}@b.${'c'.repeat(152)}"`,
      '"ab@c"',
    ],
  },
  {
    name: 'a length that matters behind a beginning of several',
    schema: { type: 'string', pattern: '^data:(png|jpeg);[a-z+/]*$', maxLength: 5000, minLength: 11 },
    accepted: [`"data:png;${'a'.repeat(4991)}"`, `"data:jpeg;${'a'.repeat(4990)}"`, '"data:png;ab"', '"data:jpeg;a"'],
    rejected: [`"data:png;${'a'.repeat(4992)}"`, `"data:jpeg;${'a'.repeat(4991)}"`, '"data:png;a"', '"data:jpeg;"'],
  },
  {
    name: 'a length that only some loops of a pattern can have',
    schema: { type: 'string', pattern: '^((abc)+|x(yz)*)$', minLength: 7, maxLength: 8 },
    accepted: ['"xyzyzyz"'],
    rejected: ['"abcabc"', '"abcabcabc"', '"xyzyz"', '"xyzyzyzyz"'],
  },
  {
    name: 'names with a length and no pattern',
    schema: { type: 'object', propertyNames: { maxLength: 2 }, additionalProperties: integer },
    accepted: ['{"ab":1,"":2}'],
    rejected: ['{"abc":1}'],
  },
  {
    name: 'characters that JSON escapes, in their one spelling',
    schema: { type: 'string', pattern: '^[^a]$' },
    accepted: ['"\\u0000"', '"\\u001f"', '"\\n"', '"\\""', '"\\\\"', '"\u007f"', '"\\u000b"'],
    rejected: ['"\\u000a"', '"\\u001F"', '"\\u0020"', '"\\u0022"', '"\\/"', '"\n"', '"a"'],
  },
  {
    name: 'pattern in a JSON string',
    schema: { type: 'string', pattern: '^a"\\\\b\\n$' },
    accepted: ['"a\\"\\\\b\\n"'],
    rejected: ['"a"', '"a\\"\\\\b"'],
  },
  {
    name: 'zod integers (contracts 1.5)',
    schema: { type: 'integer', minimum: -9007199254740991, maximum: 9007199254740991 },
    accepted: ['0', '-1', '9007199254740991', '-9007199254740991'],
    rejected: ['9007199254740992', '-9007199254740992', '90071992547409910', '1.5', '01'],
  },
  {
    name: 'exclusive bounds, old and new',
    schema: {
      anyOf: [
        { type: 'integer', exclusiveMinimum: 0, maximum: 12 },
        { type: 'integer', minimum: 100, exclusiveMinimum: true },
      ],
    },
    accepted: ['1', '12', '101'],
    rejected: ['0', '13', '100'],
  },
  {
    name: 'numbers',
    schema: { type: 'number', minimum: -0.5, exclusiveMaximum: 10.25 },
    accepted: ['-0.5', '-0.49', '0', '10', '10.2499', '3.14'],
    rejected: ['-0.51', '10.25', '10.3', '11', '-1'],
  },
  {
    name: 'enum and const of any JSON',
    schema: { enum: ['a', 1, null, true, { k: [1] }, 'é"'] },
    accepted: ['"a"', '1', 'null', '{"k":[1]}', '{ "k": [ 1 ] }', '"é\\""'],
    rejected: ['2', '{"k":[2]}', 'false'],
  },
  {
    name: 'enum bound by what stands beside it',
    schema: { enum: ['a', 'bb', 3], type: 'string', minLength: 2 },
    accepted: ['"bb"'],
    rejected: ['"a"', '3'],
  },
  {
    name: 'nullable and lists of types',
    schema: { anyOf: [{ type: 'string', nullable: true }, { type: ['integer', 'boolean'] }] },
    accepted: ['null', '"x"', '1', 'true'],
    rejected: ['[]', '1.5'],
  },
  {
    name: 'allOf',
    schema: {
      allOf: [object({ a: integer }, ['a']), object({ b: integer, a: { minimum: 3 } }, ['b'])],
      properties: { c: { type: 'null' } },
    },
    accepted: ['{"c":null,"a":3,"b":1}', '{"a":3,"b":1}'],
    rejected: ['{"a":2,"b":1}', '{"a":3}'],
  },
  {
    name: 'oneOf of parts that exclude each other',
    schema: {
      oneOf: [
        object({ kind: { const: 'a' }, x: {} }, ['kind']),
        object({ kind: { const: 'b' } }, ['kind']),
        { type: 'null' },
      ],
    },
    accepted: ['{"kind":"a","x":1}', '{"kind":"b"}', 'null'],
    rejected: ['{"kind":"b","x":1}', '{}'],
  },
  {
    name: '§4.2.3(3) dropped keywords',
    schema: {
      type: 'array',
      items: { type: 'integer', multipleOf: 5, not: { const: 3 } },
      uniqueItems: true,
      if: {},
      then: false,
      else: {},
      format: 'x',
    },
    accepted: ['[3,3]'],
    rejected: ['["x"]'],
  },
  {
    name: 'a schema that names no type is about the type of its keywords',
    schema: { properties: { a: integer } },
    accepted: ['{"a":1}'],
    rejected: ['1', '"x"', '{"a":"x"}'],
  },
  {
    name: 'any value',
    schema: {},
    accepted: ['1', '"x"', '{"a":[true,null]}', '-1.5e3'],
    rejected: ['', '{', '01', '"\n"', "'a'", '1e999'],
  },
  {
    name: 'names of prototypes',
    schema: JSON.parse(
      '{"type":"object","properties":{"__proto__":{"type":"integer"},"constructor":{}},"required":["__proto__"]}',
    ) as unknown,
    accepted: ['{"__proto__":1}', '{"__proto__":1,"constructor":2}'],
    rejected: ['{}', '{"__proto__":"x"}'],
  },
  {
    name: '§4.2.3(2) references',
    schema: {
      $defs: { 'a/b~c d': integer },
      definitions: { list: { type: 'array', items: { $ref: '#/$defs/a~1b~0c%20d' } } },
      ...object({ x: { $ref: '#/definitions/list', maxItems: 1, description: 'd' } }, ['x']),
    },
    accepted: ['{"x":[1]}', '{"x":[]}'],
    rejected: ['{"x":[1,2]}', '{"x":["a"]}'],
  },
  {
    name: 'parts of oneOf of which all but one are impossible',
    schema: {
      oneOf: [
        { type: 'array', prefixItems: [{}], items: false, minItems: 2 },
        { type: 'array', minItems: 2, maxItems: 1 },
        { type: 'array', items: integer, minItems: 0 },
        { type: 'string', pattern: '^a{3}$', maxLength: 2 },
        { type: 'string', minLength: 3, maxLength: 2 },
        { allOf: [{ type: 'string', pattern: '^a$' }, { pattern: '^b$' }] },
        { type: 'string' },
        { type: 'object', required: ['a', 'b'], maxProperties: 1, properties: { a: {}, b: {} } },
        { type: 'object', minProperties: 2, maxProperties: 1 },
        { type: 'object', required: ['a'], propertyNames: { maxLength: 0 } },
        { type: 'object', required: ['a'], properties: { a: { type: 'integer', minimum: 1, maximum: 0 } } },
        object({ a: integer }),
        { type: 'integer', minimum: 5, maximum: 4 },
        { type: 'integer', exclusiveMinimum: 5, maximum: 5 },
        { type: 'number', exclusiveMinimum: 5, maximum: 5 },
        { type: 'number' },
      ],
    },
    accepted: ['[1,2]', '[]', '"aaa"', '""', '{"a":1}', '{}', '5', '4.5'],
    rejected: ['["x"]', '{"b":1}', 'null'],
  },
  {
    name: 'allOf of a part that names no type and one that names several',
    schema: {
      allOf: [{ properties: { a: integer } }, { type: ['object', 'string', 'null', 'boolean', 'number', 'array'] }],
    },
    accepted: ['{"a":1}', '{}'],
    rejected: ['"x"', 'null', 'true', '1', '[]', '{"a":"x"}'],
  },
  {
    name: 'a value of an enum in a part that names no type',
    schema: { allOf: [{ enum: ['x', { a: 1 }] }, { properties: { a: integer } }] },
    accepted: ['{"a":1}'],
    rejected: ['"x"'],
  },
];
