import assert from 'node:assert/strict';
import { test } from 'node:test';
import { jsonSchemaGrammar } from '../../../../src/inference/constraints/json-schema.ts';
import { jsonObjectGrammar } from '../../../../src/inference/constraints/json-text.ts';
import { printGbnf } from '../../../../src/inference/constraints/grammar.ts';
import { regexGrammar } from '../../../../src/inference/constraints/regex.ts';
import { chat, collect, never, openSampling, startEngine, tinyModel } from './support.ts';

// §4.2.3: what random weights write under a schema is JSON that fits it, every time; a cut answer says so.

const isObject = (value: unknown): value is Record<string, unknown> =>
  typeof value === 'object' && value !== null && !Array.isArray(value);
const string = { type: 'string', maxLength: 6 };

const schemas: readonly (readonly [string, unknown, (value: unknown) => boolean])[] = [
  ['boolean', { type: 'boolean' }, (value) => typeof value === 'boolean'],
  [
    'integer in bounds',
    { type: 'integer', minimum: -3, maximum: 250 },
    (value) => Number.isInteger(value) && Number(value) >= -3 && Number(value) <= 250,
  ],
  ['enum', { enum: ['red', 'green', 3, null] }, (value) => ['red', 'green', 3, null].includes(value as string)],
  [
    'string of a length',
    { type: 'string', minLength: 2, maxLength: 5 },
    (value) => typeof value === 'string' && [...value].length >= 2 && [...value].length <= 5,
  ],
  ['pattern', { type: 'string', pattern: '^[a-f]{2}-\\d{1,3}$' }, (value) => /^[a-f]{2}-\d{1,3}$/.test(String(value))],
  [
    'array',
    { type: 'array', items: { type: 'boolean' }, minItems: 1, maxItems: 4 },
    (value) =>
      Array.isArray(value) &&
      value.length >= 1 &&
      value.length <= 4 &&
      value.every((item) => typeof item === 'boolean'),
  ],
  [
    'object with optional properties',
    { type: 'object', properties: { name: string, large: { type: 'boolean' }, tag: string }, required: ['name'] },
    (value) =>
      isObject(value) &&
      typeof value['name'] === 'string' &&
      Object.keys(value).every((key) => ['name', 'large', 'tag'].includes(key)),
  ],
  [
    'nested with references',
    {
      type: 'object',
      $defs: {
        point: {
          type: 'object',
          properties: { x: { type: 'integer', minimum: 0, maximum: 99 }, y: { type: 'null' } },
          required: ['x', 'y'],
        },
      },
      properties: { from: { $ref: '#/$defs/point' }, to: { $ref: '#/$defs/point' } },
      required: ['from', 'to'],
    },
    (value) =>
      isObject(value) &&
      isObject(value['from']) &&
      Number.isInteger(value['from']['x']) &&
      isObject(value['to']) &&
      value['to']['y'] === null,
  ],
  [
    'any of two',
    {
      anyOf: [
        { type: 'object', properties: { a: { const: 1 } }, required: ['a'] },
        { type: 'array', items: { const: 'b' }, maxItems: 2 },
      ],
    },
    (value) => (isObject(value) && value['a'] === 1) || (Array.isArray(value) && value.every((item) => item === 'b')),
  ],
];

test('random weights keep to every schema of a table', async (context) => {
  const { engine } = await startEngine(context, tinyModel(context), { slots: 4, contextLength: 1024 });
  await Promise.all(
    schemas.flatMap(([what, schema, fits]) =>
      [1, 2, 3].map(async (seed) => {
        const source = { type: 'json-schema', schema, name: undefined } as const;
        const gbnf = printGbnf(jsonSchemaGrammar(schema, 'response_format.json_schema.schema'));
        const sampling = { ...openSampling, seed, temperature: seed === 3 ? 0 : 1 };
        const { text, finish } = await collect(
          engine,
          chat('Hi', { constraint: { source, gbnf }, maxTokens: 900, sampling }),
          never,
        );
        if (finish?.reason === 'length') return assert.equal(finish.cause, 'repetition', `${what}: ${text}`);
        const value: unknown = JSON.parse(text);
        assert.ok(fits(value), `${what}: ${text}`);
      }),
    ),
  );
});

test('json_object is an object, and a regex is matched from end to end', async (context) => {
  const { engine } = await startEngine(context, tinyModel(context), { slots: 2, contextLength: 1024 });
  const ask = async (gbnf: string, seed: number) =>
    collect(
      engine,
      chat('Hi', {
        constraint: { source: { type: 'regex', pattern: '' }, gbnf },
        maxTokens: 700,
        sampling: { ...openSampling, seed },
      }),
      never,
    );
  for (const seed of [1, 2, 3, 4]) {
    const object = await ask(printGbnf(jsonObjectGrammar()), seed);
    if (object.finish?.reason === 'stop') assert.ok(isObject(JSON.parse(object.text)), object.text);
    const date = await ask(printGbnf(regexGrammar('\\d{4}-(0[1-9]|1[0-2])|[a-z]+@x\\.org', 'regex')), seed);
    if (date.finish?.reason === 'stop') assert.match(date.text, /^(?:\d{4}-(0[1-9]|1[0-2])|[a-z]+@x\.org)$/);
    else assert.equal(date.finish?.reason, 'length');
  }
});
