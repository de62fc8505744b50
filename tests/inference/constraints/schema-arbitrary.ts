import fc from 'fast-check';

const name = fc.constantFrom('a', 'b', 'c', 'dd');
const pattern = fc.constantFrom('^a', 'b$', '^[ab]*$', '^(ab|c)+$', '^.{2}$', 'b.?', '^(a|bb)?c*$');
const scalar = fc.constantFrom<unknown>(
  null,
  true,
  false,
  0,
  1,
  -1,
  2,
  1.5,
  '',
  'a',
  'ab',
  'abc',
  [],
  [1],
  {},
  { a: 1 },
);
const maybe = <Value>(arbitrary: fc.Arbitrary<Value>) => fc.option(arbitrary, { nil: undefined, freq: 2 });
const small = (max: number) => fc.integer({ min: 0, max });
const bound = fc.constantFrom(-1, -0.5, 0, 0.5, 1, 1.5, 2, 10);

/** A record without the members that are undefined. */
const record = (members: Readonly<Record<string, fc.Arbitrary<unknown>>>): fc.Arbitrary<object> =>
  fc.record(members).map((value) => JSON.parse(JSON.stringify(value)) as object);

/**
 * Schemas over few names and values. `explicit`: what is written is everything that is valid, because each schema names its types, says whether
 * an object has other members, and how long a tuple is. `keyword`: of which parts may be alternatives.
 */
export function schemaArbitrary(explicit: boolean, keyword = 'oneOf'): fc.Arbitrary<unknown> {
  const { schema } = fc.letrec<{ schema: unknown; plain: unknown; object: object; array: object; combined: unknown }>(
    (tie) => {
      const types = (...names: readonly string[]) =>
        explicit ? fc.constantFrom(...names) : maybe(fc.constantFrom(...names));
      const said = <Value>(arbitrary: fc.Arbitrary<Value>) => (explicit ? arbitrary : maybe(arbitrary));
      return {
        plain: fc.oneof(
          fc.constantFrom<unknown>(
            { type: 'null' },
            { type: 'boolean' },
            true,
            false,
            { type: ['string', 'null'] },
            {},
          ),
          scalar.map((value) => ({ const: value })),
          fc.array(scalar, { minLength: 1, maxLength: 4 }).map((values) => ({ enum: values })),
          record({
            type: types('integer', 'number'),
            minimum: maybe(bound),
            maximum: maybe(bound),
            exclusiveMinimum: maybe(bound),
            exclusiveMaximum: maybe(bound),
          }),
          record({
            type: types('string'),
            minLength: maybe(small(3)),
            maxLength: maybe(small(3)),
            pattern: maybe(pattern),
          }),
        ),
        array: record({
          type: types('array'),
          prefixItems: maybe(fc.array(tie('schema'), { minLength: 1, maxLength: 2 })),
          items: said(tie('schema')),
          minItems: said(small(2)),
          maxItems: maybe(small(3)),
        }),
        object: record({
          type: types('object'),
          properties: maybe(fc.dictionary(name, tie('schema'), { maxKeys: 3, noNullPrototype: true })),
          required: maybe(fc.uniqueArray(name, { maxLength: 2 })),
          additionalProperties: said(tie('schema')),
          patternProperties: maybe(
            fc.dictionary(fc.constantFrom('^[ab]$', '^a', 'd+', '^(c|dd|e)$', ''), tie('schema'), {
              maxKeys: 2,
              noNullPrototype: true,
            }),
          ),
          propertyNames: fc.option(
            fc.constantFrom<unknown>(
              true,
              { enum: ['a', 'b', 'z', 1] },
              { const: 'a' },
              { pattern: '^[a-d]$' },
              {
                maxLength: 1,
              },
              { type: 'string', minLength: 2 },
            ),
            { nil: undefined, freq: 1 },
          ),
          // Of members whose names are open no more than one counts, so two are not always written (docs/constraints.md).
          minProperties: maybe(small(explicit ? 1 : 3)),
          maxProperties: maybe(small(3)),
          dependentRequired: fc.option(
            fc.dictionary(name, fc.uniqueArray(name, { maxLength: 2 }), { maxKeys: 1, noNullPrototype: true }),
            {
              nil: undefined,
              freq: 1,
            },
          ),
          dependentSchemas: fc.option(fc.dictionary(name, tie('object'), { maxKeys: 1, noNullPrototype: true }), {
            nil: undefined,
            freq: 1,
          }),
        }),
        combined: fc.oneof(
          fc.tuple(tie('schema'), tie('schema')).map((parts) => ({ allOf: parts })),
          fc.tuple(tie('object'), tie('object')).map((parts) => ({ allOf: parts })),
          fc.tuple(tie('array'), tie('array')).map((parts) => ({ allOf: parts })),
          fc.tuple(tie('schema'), tie('schema')).map((parts) => ({ anyOf: parts })),
          fc.tuple(tie('schema'), tie('schema')).map((parts) => ({ [keyword]: parts })),
          fc.tuple(tie('object'), tie('plain')).map(([own, part]) => ({ ...own, anyOf: [part, own] })),
          fc.tuple(tie('plain'), tie('plain')).map((parts) => ({ allOf: parts })),
        ),
        schema: fc.oneof(
          { maxDepth: 2, depthSize: 'small' },
          { weight: 3, arbitrary: tie('plain') },
          { weight: 3, arbitrary: tie('object') },
          { weight: 2, arbitrary: tie('array') },
          { weight: 3, arbitrary: tie('combined') },
        ),
      };
    },
  );
  return schema;
}

const scalars: readonly unknown[] = [null, true, false, -1, -0.5, 0, 0.5, 1, 1.5, 2, 10, 11];
const texts: readonly unknown[] = ['', 'a', 'b', 'ab', 'aab', 'abc', 'abcd', 'c"', 'é\n', 'bbc'];
const some: readonly unknown[] = [1, 'a', null, 1.5];
const names = ['a', 'b', 'c', 'dd', 'e'];

/** Objects whose members have these names, with each combination of values. */
const objects = (chosen: readonly string[], values: readonly unknown[]): readonly object[] =>
  chosen.reduce<readonly object[]>(
    (found, each) => found.flatMap((object) => values.map((value) => ({ ...object, [each]: value }))),
    [{}],
  );

/** Values that schemas over few names tell apart. */
export const values: readonly unknown[] = [
  ...scalars,
  ...texts,
  ...[
    [],
    [1],
    ['a'],
    [null],
    [1, 'a'],
    [1, 1],
    ['a', 1],
    [1.5, 2],
    [1, 'a', null],
    [1, 1, 1],
    ['a', 'a', 'a'],
    [1, 1, 1, 1],
  ],
  ...[[[]], [[1], {}], [{ a: 1 }], { a: [1] }, { a: {} }, { b: { a: 1 } }, { a: [], b: [] }],
  {},
  ...names.flatMap((each) => objects([each], some)),
  ...names.flatMap((first, index) => names.slice(index + 1).flatMap((second) => objects([first, second], [1, 'a']))),
  ...objects(['a', 'b', 'c'], [1, 'a']),
  ...objects(['b', 'c', 'dd'], [1]),
  ...objects(['a', 'b', 'dd'], [1]),
  ...objects(['a', 'b', 'c', 'dd'], [1]),
];

/** The JSON texts of a value, with the members of an object in each order. */
export function spellings(value: unknown): readonly string[] {
  if (typeof value !== 'object' || value === null || Array.isArray(value)) return [JSON.stringify(value)];
  return orders(Object.entries(value)).map((members) => JSON.stringify(Object.fromEntries(members)));
}

function orders<Item>(items: readonly Item[]): readonly (readonly Item[])[] {
  if (items.length < 2) return [items];
  return items.flatMap((item) => orders(items.filter((other) => other !== item)).map((others) => [item, ...others]));
}
