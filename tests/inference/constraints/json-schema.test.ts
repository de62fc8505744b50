import assert from 'node:assert/strict';
import { after, before, describe, it } from 'node:test';
import {
  composeGrammar,
  literal,
  printGbnf,
  rule,
  sequence,
  type Grammar,
} from '../../../src/inference/constraints/grammar.ts';
import { jsonSchemaGrammar } from '../../../src/inference/constraints/json-schema.ts';
import { jsonObjectGrammar } from '../../../src/inference/constraints/json-text.ts';
import { openGrammarJudge, type GrammarJudge } from '../../support/grammar-judge.ts';
import { schemaRows } from './schema-rows.ts';

const integer = { type: 'integer' };
const object = (properties: Readonly<Record<string, unknown>>, required: readonly string[] = []) => ({
  type: 'object',
  properties,
  required,
});

describe('JSON Schema as a grammar', () => {
  let judge: GrammarJudge;
  before(async () => (judge = await openGrammarJudge()));
  after(() => judge.dispose());

  for (const { name, schema, accepted, rejected } of schemaRows) {
    it(`${name}`, async () => {
      const grammar = jsonSchemaGrammar(schema, 'schema');
      const all = [...accepted, ...rejected];
      const answers = await judge.accepts(printGbnf(grammar), all);
      assert.deepEqual(
        all.filter((_, index) => answers[index]),
        accepted,
      );
    });
  }

  it('§4.2.3(1) json_object: any object, and nothing else', async () => {
    const gbnf = printGbnf(jsonObjectGrammar());
    const all = ['{}', '{"a":{"b":[1]}}', '{\n  "a": 1\n}', '[]', '1', '{} ', '```json\n{}'];
    assert.deepEqual(await judge.accepts(gbnf, all), [true, true, true, false, false, false, false]);
  });

  it('grammars are put into larger ones; rules of JSON are there once', async () => {
    const first = jsonSchemaGrammar(object({ a: { type: 'string' }, b: {} }, ['a']), 'schema');
    const second = jsonSchemaGrammar(object({ c: integer, d: {} }, ['c']), 'schema');
    const whole = composeGrammar((embed) =>
      sequence(
        literal('<call>'),
        embed(first),
        literal('|'),
        embed(second),
        embed(jsonObjectGrammar()),
        literal('</call>'),
      ),
    );
    assert.equal([...whole.rules.keys()].filter((name) => name.startsWith('json-string')).length, 1);
    const all = [
      '<call>{"a":"x"}|{"c":1}{}</call>',
      '<call>{"c":1}|{"c":1}{}</call>',
      '<call>{"a":"x"}|{"c":1}</call>',
    ];
    assert.deepEqual(await judge.accepts(printGbnf(whole), all), [true, false, false]);
  });

  it('different rules of one name stay apart, also where the name that one would get is taken', async () => {
    const grammarOf = (text: string): Grammar => ({
      root: 'root',
      rules: new Map([
        ['root', sequence(rule('word'), rule('word-2'), rule('part-2'))],
        ['word', literal(text)],
        ['word-2', literal('-')],
        ['part-2', literal(`${text};`)],
      ]),
    });
    const texts = ['a', 'b', 'c', 'a', 'd'];
    const whole = composeGrammar((embed) => sequence(...texts.map((text) => embed(grammarOf(text)))));
    assert.deepEqual(await judge.accepts(printGbnf(whole), ['a-a;b-b;c-c;a-a;d-d;', 'a-a;b-b;c-c;a-a;a-a;', 'a-a;']), [
      true,
      false,
      false,
    ]);
  });
});
