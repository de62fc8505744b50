import assert from 'node:assert/strict';
import { describe, it, mock } from 'node:test';
import { ebnfGrammar } from '../../../src/inference/constraints/ebnf.ts';
import { printGbnf, type Grammar } from '../../../src/inference/constraints/grammar.ts';
import { jsonSchemaGrammar } from '../../../src/inference/constraints/json-schema.ts';
import { compileProgram } from '../../../src/inference/constraints/program.ts';
import { regexGrammar } from '../../../src/inference/constraints/regex.ts';
import { Work } from '../../../src/inference/constraints/work.ts';

// A grammar of the right texts can still be one that is slow to make or that an engine is slow with. What is counted here changes only on
// purpose: the rules, the characters of the printed grammar, the numbers of the program that follows an answer, and the steps of compiling.

type Counts = readonly [rules: number, printed: number, program: number, steps: number];

const text = { type: 'string' };
const integer = { type: 'integer' };
const person = {
  type: 'object',
  properties: {
    name: { ...text, maxLength: 40 },
    age: { ...integer, minimum: 0, maximum: 150 },
    tags: { type: 'array', items: text },
  },
  required: ['name', 'age'],
  additionalProperties: false,
};

const schemas: readonly (readonly [string, unknown, Counts])[] = [
  ['anything', {}, [9, 883, 856, 214]],
  [
    'a tool call of two members',
    { type: 'object', properties: { city: text, unit: { enum: ['c', 'f'] } }, required: ['city'] },
    [9, 539, 499, 236],
  ],
  ['a person', person, [14, 748, 834, 505]],
  [
    'a list of persons, twice',
    {
      type: 'object',
      properties: { a: { type: 'array', items: person }, b: { type: 'array', items: person } },
      required: ['a', 'b'],
    },
    [20, 968, 916, 727],
  ],
  ['an enum of 40', { enum: Array.from({ length: 40 }, (_, i) => `value-${i}`) }, [1, 355, 309, 445]],
  ['a date', { ...text, pattern: '^[0-9]{4}-(0[1-9]|1[0-2])-[0-9]{2}$' }, [2, 79, 52, 104]],
  [
    'a pattern with a length',
    { ...text, pattern: '^[a-z]+(-[a-z]+)*$', minLength: 3, maxLength: 12 },
    [32, 1063, 416, 302],
  ],
  ['one repetition with a length', { ...text, pattern: '^x[a-z]+-y$', minLength: 5, maxLength: 40 }, [2, 44, 233, 124]],
  ['four ends of different lengths', { ...text, pattern: '^(a|bb|ccc|dddd)x*$', maxLength: 30 }, [12, 243, 765, 244]],
  ['five of them', { ...text, pattern: '^(a|bb|ccc|dddd|eeeee)x*$', maxLength: 30 }, [41, 991, 460, 407]],
  ['a pattern that an automaton replaces', { ...text, pattern: '^(a{1,9}){1,9}$' }, [82, 2019, 1135, 12803]],
  ['a pattern anywhere in the text', { ...text, pattern: 'foo|bar' }, [3, 247, 139, 89]],
  ['two patterns', { allOf: [{ ...text, pattern: '^[a-z]+$' }, { pattern: 'x' }] }, [4, 102, 67, 280]],
  ['a long text', { ...text, minLength: 10, maxLength: 2_600 }, [5, 398, 4747, 84]],
  [
    '12 optional members',
    { type: 'object', properties: Object.fromEntries(Array.from({ length: 12 }, (_, i) => [`p${i}`, integer])) },
    [27, 1142, 857, 1568],
  ],
  ['members that are counted', { ...person, required: [], minProperties: 2, maxProperties: 2 }, [14, 753, 844, 529]],
  ['other members', { type: 'object', properties: { a: integer }, additionalProperties: integer }, [13, 569, 609, 257]],
  [
    'names of a pattern',
    { type: 'object', patternProperties: { '^x-': text }, additionalProperties: integer },
    [16, 952, 787, 431],
  ],
  [
    'names of a length',
    { type: 'object', propertyNames: { maxLength: 8 }, additionalProperties: integer },
    [15, 536, 602, 265],
  ],
  [
    'a tuple',
    { type: 'array', prefixItems: [integer, text, { type: 'boolean' }], items: text, minItems: 2, maxItems: 6 },
    [7, 590, 620, 217],
  ],
  ['a list of 3 to 50', { type: 'array', items: text, minItems: 3, maxItems: 50 }, [6, 458, 720, 135]],
  ['whole numbers of a range', { ...integer, minimum: -1_250, maximum: 37_999 }, [2, 157, 150, 212]],
  ['numbers of a range', { type: 'number', minimum: 0.25, exclusiveMaximum: 1_000 }, [2, 127, 368, 199]],
  [
    'one of two kinds',
    {
      oneOf: ['a', 'b'].map((kind) => ({
        type: 'object',
        properties: { kind: { const: kind }, n: integer },
        required: ['kind'],
      })),
    },
    [9, 340, 495, 352],
  ],
  ['parts of allOf', { allOf: [person, { properties: { age: { maximum: 99 } } }] }, [14, 721, 809, 592]],
  [
    'as many required members as are needed',
    { type: 'object', properties: { a: integer, b: text, c: text, d: text }, required: ['b', 'd'], minProperties: 2 },
    [13, 708, 649, 345],
  ],
  [
    'dependencies',
    {
      type: 'object',
      properties: { a: integer, b: text, c: text },
      dependentRequired: { a: ['b'] },
      dependentSchemas: { c: { required: ['a'] } },
    },
    [13, 743, 657, 565],
  ],
  [
    'references',
    {
      $defs: { p: person },
      type: 'object',
      properties: { a: { $ref: '#/$defs/p' }, b: { $ref: '#/$defs/p', description: 'x' } },
      unevaluatedProperties: integer,
    },
    [29, 1395, 1234, 1033],
  ],
  [
    'names that are listed',
    { type: 'object', propertyNames: { enum: ['de', 'en', 'fr'] }, additionalProperties: text, minProperties: 2 },
    [11, 625, 521, 336],
  ],
  [
    'values of an enum beside keywords',
    {
      enum: ['a', 'bb', 3, null, [1, { a: [true] }], { a: 1, b: { c: 'x' } }],
      type: ['string', 'object', 'array'],
      minLength: 2,
      properties: { a: integer },
      items: { type: ['integer', 'object'] },
      pattern: 'b',
    },
    [2, 342, 385, 218],
  ],
  [
    'the same values in two enums',
    { allOf: [{ enum: ['a', 1, { a: [1, 2] }, [1, 2]] }, { enum: [[1, 2], { a: [1, 2] }, 'b', 1] }] },
    [2, 210, 323, 150],
  ],
  ['whole numbers up to one of nines', { ...integer, minimum: 0, maximum: 10_000_599 }, [2, 69, 82, 153]],
  ['numbers up to one of nines', { type: 'number', minimum: 1.5, maximum: 599 }, [2, 266, 407, 347]],
  ['any names', { type: 'object', additionalProperties: integer }, [7, 529, 583, 178]],
  [
    'names of two patterns',
    { type: 'object', properties: { a1: {}, c: {} }, patternProperties: { '^a': integer, b$: text } },
    [29, 1818, 1424, 1431],
  ],
  ['the same part twice', { allOf: [person, person] }, [14, 748, 834, 517]],
];
const regexes: readonly (readonly [string, Counts])[] = [
  ['[a-z]+@[a-z]+\\.(com|org)', [1, 47, 51, 39]],
  ['(yes|no|maybe)', [1, 32, 32, 22]],
  ['(a?b?){33}', [67, 2013, 1575, 15982]],
  ['((ab?|c){2}-){3,30}d{600}', [4, 86, 1403, 10066]],
];
const grammars: readonly (readonly [string, Counts])[] = [
  ['root ::= expr\nexpr ::= term ("+" term)*\nterm ::= [0-9]+ | "(" expr ")"', [3, 71, 44, 182]],
  ['root ::= (x y)* z{0,1000} "!"\nx ::= "a"?\ny ::= "b"*\nz ::= "cc" | ""', [10, 157, 4088, 229]],
  [
    'root ::= a-b "x"{2,3} [a-z]+ | "(" root ")"\na-b ::= ("y" | "" c)+\nc ::= (d ";"){1,40}\nd ::= [0-9#]{1,400} # end',
    [5, 111, 2708, 307],
  ],
  ['list = item, { ",", item } ; item = "a" | 2 * "b" | [ "c" ], (* none *) "d" ;', [2, 59, 39, 186]],
];

function counts(compile: () => Grammar): Counts {
  const spend = mock.method(Work.prototype, 'spend');
  const grammar = compile();
  spend.mock.restore();
  const steps = spend.mock.calls.reduce((sum, { arguments: [count] }) => sum + count, 0);
  return [grammar.rules.size, printGbnf(grammar).length, compileProgram(grammar).length, Math.round(steps)];
}

describe('the size of a grammar', () => {
  for (const [name, schema, expected] of schemas)
    it(`of a schema: ${name}`, () =>
      assert.deepEqual(
        counts(() => jsonSchemaGrammar(schema, 'schema')),
        expected,
      ));
  for (const [pattern, expected] of regexes)
    it(`of /${pattern}/`, () =>
      assert.deepEqual(
        counts(() => regexGrammar(pattern, 'regex')),
        expected,
      ));
  for (const [source, expected] of grammars)
    it(`of ${JSON.stringify(source)}`, () =>
      assert.deepEqual(
        counts(() => ebnfGrammar(source, 'ebnf')),
        expected,
      ));
});
