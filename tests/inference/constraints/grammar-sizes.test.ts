import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { ebnfGrammar } from '../../../src/inference/constraints/ebnf.ts';
import { printGbnf, type Grammar } from '../../../src/inference/constraints/grammar.ts';
import { jsonSchemaGrammar } from '../../../src/inference/constraints/json-schema.ts';
import { compileProgram } from '../../../src/inference/constraints/program.ts';
import { regexGrammar } from '../../../src/inference/constraints/regex.ts';

// A grammar of the right texts can still be one that an engine is slow with. What is counted here changes only on purpose: the rules, the
// characters of the printed grammar, and the numbers of the program that follows an answer.

type Counts = readonly [rules: number, printed: number, program: number];

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
  ['anything', {}, [9, 883, 856]],
  [
    'a tool call of two members',
    { type: 'object', properties: { city: text, unit: { enum: ['c', 'f'] } }, required: ['city'] },
    [9, 539, 499],
  ],
  ['a person', person, [14, 748, 834]],
  [
    'a list of persons, twice',
    {
      type: 'object',
      properties: { a: { type: 'array', items: person }, b: { type: 'array', items: person } },
      required: ['a', 'b'],
    },
    [20, 968, 916],
  ],
  ['an enum of 40', { enum: Array.from({ length: 40 }, (_, i) => `value-${i}`) }, [1, 355, 309]],
  ['a date', { ...text, pattern: '^[0-9]{4}-(0[1-9]|1[0-2])-[0-9]{2}$' }, [2, 79, 52]],
  ['a pattern with a length', { ...text, pattern: '^[a-z]+(-[a-z]+)*$', minLength: 3, maxLength: 12 }, [32, 1063, 416]],
  ['a pattern that an automaton replaces', { ...text, pattern: '^(a{1,9}){1,9}$' }, [82, 2019, 1135]],
  ['a pattern anywhere in the text', { ...text, pattern: 'foo|bar' }, [3, 247, 139]],
  ['two patterns', { allOf: [{ ...text, pattern: '^[a-z]+$' }, { pattern: 'x' }] }, [4, 102, 67]],
  ['a long text', { ...text, minLength: 10, maxLength: 2_600 }, [5, 398, 4747]],
  [
    '12 optional members',
    { type: 'object', properties: Object.fromEntries(Array.from({ length: 12 }, (_, i) => [`p${i}`, integer])) },
    [27, 1142, 857],
  ],
  ['members that are counted', { ...person, required: [], minProperties: 2, maxProperties: 2 }, [14, 753, 844]],
  ['other members', { type: 'object', properties: { a: integer }, additionalProperties: integer }, [13, 569, 609]],
  [
    'names of a pattern',
    { type: 'object', patternProperties: { '^x-': text }, additionalProperties: integer },
    [16, 952, 787],
  ],
  [
    'names of a length',
    { type: 'object', propertyNames: { maxLength: 8 }, additionalProperties: integer },
    [15, 536, 602],
  ],
  [
    'a tuple',
    { type: 'array', prefixItems: [integer, text, { type: 'boolean' }], items: text, minItems: 2, maxItems: 6 },
    [7, 590, 620],
  ],
  ['a list of 3 to 50', { type: 'array', items: text, minItems: 3, maxItems: 50 }, [6, 458, 720]],
  ['whole numbers of a range', { ...integer, minimum: -1_250, maximum: 37_999 }, [2, 157, 150]],
  ['numbers of a range', { type: 'number', minimum: 0.25, exclusiveMaximum: 1_000 }, [2, 127, 368]],
  [
    'one of two kinds',
    {
      oneOf: ['a', 'b'].map((kind) => ({
        type: 'object',
        properties: { kind: { const: kind }, n: integer },
        required: ['kind'],
      })),
    },
    [9, 340, 495],
  ],
  ['parts of allOf', { allOf: [person, { properties: { age: { maximum: 99 } } }] }, [14, 721, 809]],
];
const regexes: readonly (readonly [string, Counts])[] = [
  ['[a-z]+@[a-z]+\\.(com|org)', [1, 47, 51]],
  ['(yes|no|maybe)', [1, 32, 32]],
  ['(a?b?){33}', [67, 2013, 1575]],
  ['((ab?|c){2}-){3,30}d{600}', [4, 86, 1403]],
];
const grammars: readonly (readonly [string, Counts])[] = [
  ['root ::= expr\nexpr ::= term ("+" term)*\nterm ::= [0-9]+ | "(" expr ")"', [3, 71, 44]],
  ['root ::= (x y)* z{0,1000} "!"\nx ::= "a"?\ny ::= "b"*\nz ::= "cc" | ""', [10, 157, 4088]],
];

const counts = (grammar: Grammar): Counts => [
  grammar.rules.size,
  printGbnf(grammar).length,
  compileProgram(grammar).length,
];

describe('the size of a grammar', () => {
  for (const [name, schema, expected] of schemas)
    it(`of a schema: ${name}`, () => assert.deepEqual(counts(jsonSchemaGrammar(schema, 'schema')), expected));
  for (const [pattern, expected] of regexes)
    it(`of /${pattern}/`, () => assert.deepEqual(counts(regexGrammar(pattern, 'regex')), expected));
  for (const [source, expected] of grammars)
    it(`of ${JSON.stringify(source)}`, () => assert.deepEqual(counts(ebnfGrammar(source, 'ebnf')), expected));
});
