// Alone in its process: it counts the processor time of the process.
import assert from 'node:assert/strict';
import { after, before, describe, it } from 'node:test';
import { ebnfGrammar } from '../../../src/inference/constraints/ebnf.ts';
import { printGbnf, type Grammar } from '../../../src/inference/constraints/grammar.ts';
import { jsonSchemaGrammar } from '../../../src/inference/constraints/json-schema.ts';
import { regexGrammar } from '../../../src/inference/constraints/regex.ts';
import { ApiError } from '../../../src/platform/errors.ts';
import { openGrammarJudge, type GrammarJudge } from '../../support/grammar-judge.ts';
import { hostileCases, type Hostile } from './hostile.ts';

/** Of processor time: what users feel is 100 ms; a slow machine gets ten times that. The bound itself is on counted steps. */
const compileMsMax = 1_000;
const judgeMsMax = 5_000;

function compiled({ kind, value }: Hostile): Grammar | undefined {
  try {
    if (kind === 'schema') return jsonSchemaGrammar(value, 'field');
    return kind === 'regex' ? regexGrammar(String(value), 'field') : ebnfGrammar(String(value), 'field');
  } catch (error) {
    assert.ok(error instanceof ApiError, `not a refusal: ${String(error)}`);
    assert.equal(error.status, 400);
    assert.equal(error.param, 'field');
    return undefined;
  }
}

describe('hostile constraints (reliability 3.4)', () => {
  let judge: GrammarJudge;
  before(async () => (judge = await openGrammarJudge()));
  after(() => judge.dispose());

  for (const hostile of hostileCases) {
    it(`${hostile.kind}: ${hostile.name}`, async (context) => {
      const start = process.cpuUsage();
      const grammar = compiled(hostile);
      const compileMs = process.cpuUsage(start).user / 1000;
      assert.ok(compileMs < compileMsMax, `compiled in ${compileMs} ms`);
      if (grammar === undefined) return context.diagnostic(`refused in ${compileMs.toFixed(1)} ms`);
      const judgeStart = process.cpuUsage();
      const samples = [
        'a'.repeat(60),
        `"${'a'.repeat(60)}"`,
        `{"a0": "${'a'.repeat(60)}", "p1": 1}`,
        `[["${'a'.repeat(60)}"`,
      ];
      await judge.accepts(printGbnf(grammar), samples);
      const judgeMs = process.cpuUsage(judgeStart).user / 1000;
      assert.ok(judgeMs < judgeMsMax, `llama.cpp took ${judgeMs} ms`);
      context.diagnostic(`compiled in ${compileMs.toFixed(1)} ms, read by llama.cpp in ${judgeMs.toFixed(1)} ms`);
    });
  }
});
