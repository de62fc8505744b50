import assert from 'node:assert/strict';
import type { OddAnswer } from '../support/odd-servers/odd-answer.ts';
import type { Given } from './answer-families.ts';

/** Holds what a client was given against what an odd server meant. `promptTokens`: what is charged for a prompt that it does not count. */
export function checkGiven(
  { meanings, counted, habits }: OddAnswer,
  { choices, usage }: Given,
  what: string,
  promptTokens: number,
): void {
  const wanted = meanings.map(({ reasoning, text, calls, finish }) => ({
    reasoning,
    text,
    calls: calls.map(({ name, arguments: own }) => [name, JSON.parse(own === '' ? '{}' : own) as unknown]),
    finish: finish === 'stop' && calls.length > 0 ? 'tool-calls' : finish,
  }));
  const given = choices.map(({ reasoning, text, calls, finish }) => ({
    reasoning,
    text,
    calls: calls.map(({ name, arguments: own }) => [name, JSON.parse(own) as unknown]),
    finish,
  }));
  assert.deepEqual(given, wanted, what);
  for (const [index, { calls }] of choices.entries()) {
    const ids = calls.map(({ id }) => id);
    assert.equal(new Set(ids).size, ids.length, `${what}: ids are distinct`);
    if (habits.calls !== 'plain') continue;
    assert.deepEqual(
      ids,
      meanings[index]!.calls.map(({ id }) => id),
      what,
    );
  }
  const { reasoning, isMarked: _, prompt = promptTokens, ...figures } = counted;
  assert.deepEqual(usage, { ...figures, prompt, reasoning: reasoning ?? usage.reasoning }, `${what}: the counts`);
  // What one of them reports in each chunk is not divided like its text.
  const isDivided = !habits.usageAt.startsWith('each');
  const thought = isDivided && meanings.some((meaning) => meaning.reasoning !== '');
  assert.ok(usage.reasoning <= usage.completion && (!thought || usage.reasoning > 0), `${what}: tokens of reasoning`);
}
