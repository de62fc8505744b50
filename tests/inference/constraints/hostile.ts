/** Schemas, patterns and grammars that were made to be slow. Each is refused, or becomes a grammar that runs quickly. */
export interface Hostile {
  readonly name: string;
  readonly kind: 'schema' | 'regex' | 'ebnf';
  readonly value: unknown;
}

const times = <Item>(count: number, make: (index: number) => Item): Item[] =>
  Array.from({ length: count }, (_, i) => make(i));
const record = (entries: readonly (readonly [string, unknown])[]): unknown => Object.fromEntries(entries);

const doubling = (levels: number): unknown => ({
  $ref: '#/$defs/d0',
  $defs: record(
    times(levels, (i) => [
      `d${i}`,
      i === levels - 1
        ? { type: 'string' }
        : { type: 'object', properties: { a: { $ref: `#/$defs/d${i + 1}` }, b: { $ref: `#/$defs/d${i + 1}` } } },
    ]),
  ),
});

const schemas: readonly (readonly [string, unknown])[] = [
  ['references that double', doubling(30)],
  ['references that double, within the bound', doubling(9)],
  [
    'a chain of 2,000 references',
    { $ref: '#/$defs/d0', $defs: record(times(2000, (i) => [`d${i}`, { $ref: `#/$defs/d${i + 1}` }])) },
  ],
  [
    'anyOf times anyOf',
    { allOf: times(12, () => ({ anyOf: times(20, (i) => ({ type: 'object', required: [`a${i}`] })) })) },
  ],
  [
    'allOf of 400 objects',
    {
      allOf: times(400, (i) => ({
        type: 'object',
        properties: { [`p${i}`]: { type: 'string' } },
        required: [`p${i}`],
      })),
    },
  ],
  [
    'allOf of 300 objects with the same 30 members',
    { allOf: times(300, () => ({ properties: record(times(10, (i) => [`p${i}`, { type: 'integer' }])) })) },
  ],
  ['8,000 values of an enum', { enum: times(8000, (i) => `v${i}`) }],
  [
    'an enum filtered by a pattern',
    { enum: times(4000, (i) => `v${i}`), pattern: '^(v|w)[0-9]{1,9}$', type: 'string' },
  ],
  ['patterns that must all match', { allOf: times(30, (i) => ({ type: 'string', pattern: `a.{${i}}b` })) }],
  ['a pattern whose automaton is exponential', { type: 'string', pattern: '(a|b)*a(a|b){200}', maxLength: 1000 }],
  ['a count in a count', { type: 'string', pattern: '^([a-z]{1,100}){1,100}$' }],
  ['parts that can be left out', { type: 'string', pattern: `^${'a?'.repeat(1000)}$` }],
  ['100,000 characters', { type: 'string', maxLength: 100_000 }],
  ['2^31 characters', { type: 'string', minLength: 1, maxLength: 2_147_483_647 }],
  [
    'a million items of a million',
    {
      type: 'array',
      maxItems: 1_000_000,
      items: { type: 'array', items: { type: 'string', maxLength: 1_000_000 }, maxItems: 1_000_000 },
    },
  ],
  [
    '30 levels of 1,000 items',
    times(30, (i) => i).reduce<unknown>((items) => ({ type: 'array', items, maxItems: 1000 }), { type: 'string' }),
  ],
  ['2,000 optional members', { type: 'object', properties: record(times(2000, (i) => [`p${i}`, {}])) }],
  [
    '500 members, at least 100 and at most 200',
    { type: 'object', properties: record(times(500, (i) => [`p${i}`, {}])), minProperties: 100, maxProperties: 200 },
  ],
  [
    '5 patterns of names',
    {
      type: 'object',
      patternProperties: record(times(5, (i) => [`a.{${i * 3}}b`, { type: 'integer' }])),
      additionalProperties: { type: 'string' },
    },
  ],
  [
    'Unicode properties',
    {
      type: 'object',
      properties: record(times(60, (i) => [`p${i}`, { type: 'string', pattern: '\\p{L}\\p{N}\\p{Lu}' }])),
    },
  ],
  [
    'oneOf of 500',
    { oneOf: times(500, (i) => ({ type: 'object', properties: { kind: { const: `k${i}` } }, required: ['kind'] })) },
  ],
  [
    'names of prototypes',
    {
      type: 'object',
      properties: record([
        ['__proto__', { type: 'integer' }],
        ['constructor', { type: 'string' }],
        ['toString', {}],
      ]),
      required: ['__proto__', 'hasOwnProperty'],
      additionalProperties: false,
    },
  ],
  [
    'names with quotes and halves of characters',
    {
      type: 'object',
      properties: record([
        ['"\\\u0000\n', { const: '\ud800"' }],
        ['\ud800', {}],
        ['😀', {}],
      ]),
      additionalProperties: { type: 'integer' },
    },
  ],
  ['60 levels', times(30, (i) => i).reduce<unknown>((inner) => ({ properties: { a: inner } }), {})],
  [
    'numbers at their ends',
    {
      anyOf: [
        { type: 'number', minimum: -1.7976931348623157e308, maximum: 5e-324 },
        { type: 'integer', minimum: -9007199254740991, maximum: 9007199254740991 },
        { type: 'number', exclusiveMinimum: 1e-300, maximum: 1e300 },
      ],
    },
  ],
  ['dependencies', { type: 'object', dependentRequired: record(times(20, (i) => [`a${i}`, [`b${i}`]])) }],
];

const patterns: readonly (readonly [string, string])[] = [
  ['nested quantifiers', '(((a+)+)+)+$'],
  ['empty repetitions', '((a?){1,100}){1,100}'],
  ['left out', 'a?'.repeat(2000)],
  ['many alternatives', times(800, (i) => `k${i}`).join('|')],
  ['classes', '[\\p{L}\\p{N}]{1,2000}'],
  ['words in any order', '(a|aa|aaa|aaaa){1,90}'.repeat(40)],
  ['dots', '.{0,200}x.{0,200}y.{0,200}'],
  ['100,000', '[a-z]{1,100000}'],
  ['groups', `${'('.repeat(99)}a${')'.repeat(99)}`],
  ['anchored variants', '(^|a|$)'.repeat(500)],
  ['anchored alternatives', '(^a|b$|c|)'.repeat(2)],
];

const grammars: readonly (readonly [string, string])[] = [
  ['empty repetitions of rules', 'root ::= y{0,300} "b"\ny ::= x{0,300}\nx ::= "a"?'],
  ['1,000 rules', `root ::= r0\n${times(998, (i) => `r${i} ::= "a"? r${i + 1}`).join('\n')}\nr998 ::= "b"`],
  ['990 optional rules', `root ::= r0\n${times(990, (i) => `r${i} ::= r${i + 1} | ""`).join('\n')}\nr990 ::= "a"`],
  [
    'rules that double',
    `root ::= r0 "!"\n${times(40, (i) => `r${i} ::= r${i + 1} r${i + 1}`).join('\n')}\nr40 ::= "a"?`,
  ],
  ['10,000 literals', `root ::= ${times(6000, (i) => `"k${i}"`).join(' | ')}`],
  ['one count of 9 digits', 'root ::= "ab"{1,999999999}'],
  ['ambiguous', 'root ::= s\ns ::= "a" | "a" s | "a" s s'],
  ['quotes', '"'.repeat(60_000)],
  ['brackets', '['.repeat(60_000)],
  ['comments', '/*'.repeat(30_000)],
  ['slashes', 'a'.repeat(60_000)],
  ['words', 'a '.repeat(30_000)],
];

export const hostileCases: readonly Hostile[] = [
  ...schemas.map(([name, value]) => ({ name, kind: 'schema', value }) as const),
  ...patterns.map(([name, value]) => ({ name, kind: 'regex', value }) as const),
  ...grammars.map(([name, value]) => ({ name, kind: 'ebnf', value }) as const),
];
