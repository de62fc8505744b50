import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import fc from 'fast-check';
import { Check } from 'typebox/schema';
import { schemaAllows } from '../../../src/inference/constraints/allows.ts';
import type { Grammar } from '../../../src/inference/constraints/grammar.ts';
import { jsonSchemaGrammar } from '../../../src/inference/constraints/json-schema.ts';
import { ApiError } from '../../../src/platform/errors.ts';
import { mulberry32 } from '../../support/random.ts';
import { follower } from './follower.ts';
import { randomTexts } from './random-text.ts';
import { schemaArbitrary, spellings, values } from './schema-arbitrary.ts';

// An independent validator decides about values that few names and texts make. Each schema is asked about a quarter of them.

const quarter = (values: readonly unknown[], seed: number): readonly unknown[] =>
  values.filter((_, index) => index % 4 === Math.abs(seed) % 4);

const valid = (schema: unknown, value: unknown): boolean => Check(schema as never, value);

/** The grammar; `nothing`: the schema allows no value; undefined: what it asks for is refused. */
function written(schema: unknown): Grammar | 'nothing' | undefined {
  try {
    return jsonSchemaGrammar(schema, 'schema');
  } catch (error) {
    if (!(error instanceof ApiError)) throw error;
    if (/allows no value/.test(error.message)) return 'nothing';
    if (/cannot be prevented|names the schema leaves open|steps to compile|several forms of names/.test(error.message))
      return undefined;
    throw error;
  }
}

describe('an independent validator agrees', () => {
  it('about each value, with every schema', () => {
    // A value of a type that no part of a oneOf names fits several of them, but none of it is written.
    const schemas = schemaArbitrary(false, 'anyOf');
    let [tried, judged] = [0, 0];
    fc.assert(
      fc.property(schemas, fc.nat(), (schema, seed) => {
        tried++;
        for (const value of quarter(values, seed)) {
          const { allows } = schemaAllows(schema, value, 50_000);
          if (allows === undefined) return;
          assert.equal(allows, valid(schema, value), `${JSON.stringify(schema)} and ${JSON.stringify(value)}`);
        }
        judged++;
      }),
      { numRuns: 200 },
    );
    assert.ok(judged > tried * 0.7, `${judged} of ${tried} were judged`);
  });

  it('about each value that can be written, where a schema leaves nothing open', () => {
    let [tried, judged] = [0, 0];
    fc.assert(
      fc.property(schemaArbitrary(true), fc.nat(), (schema, seed) => {
        tried++;
        const grammar = written(schema);
        if (grammar === undefined) return;
        judged++;
        const isText = grammar === 'nothing' ? () => false : follower(grammar);
        for (const value of quarter(values, seed)) {
          const isWritten = spellings(value).some(isText);
          assert.equal(isWritten, valid(schema, value), `${JSON.stringify(schema)} and ${JSON.stringify(value)}`);
        }
      }),
      { numRuns: 200 },
    );
    assert.ok(judged > tried * 0.5, `${judged} of ${tried} were judged`);
  });

  it('that what is written is valid, with every schema', () => {
    let [tried, judged] = [0, 0];
    fc.assert(
      fc.property(schemaArbitrary(false), fc.integer(), (schema, seed) => {
        tried++;
        const grammar = written(schema);
        if (grammar === undefined || grammar === 'nothing') return;
        judged++;
        const write = randomTexts(grammar, mulberry32(seed));
        for (let times = 0; times < 8; times++) {
          const text = write();
          assert.ok(valid(schema, JSON.parse(text)), `${JSON.stringify(schema)} does not allow ${text}`);
        }
      }),
      { numRuns: 200 },
    );
    assert.ok(judged > tried * 0.5, `${judged} of ${tried} were judged`);
  });
});
