import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { jsonSchemaGrammar } from '../../../src/inference/constraints/json-schema.ts';
import { follower } from './follower.ts';
import { schemaRows } from './schema-rows.ts';

describe('the texts of a JSON Schema', () => {
  for (const { name, schema, accepted, rejected } of schemaRows) {
    it(`${name}`, () => {
      const isWritten = follower(jsonSchemaGrammar(schema, 'schema'));
      for (const text of accepted) assert.ok(isWritten(text), text);
      for (const text of rejected) assert.ok(!isWritten(text), text);
    });
  }
});
