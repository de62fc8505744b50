import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import fc from 'fast-check';
import { UsageTally, type RawUsage } from '../../../src/inference/engines/usage-tally.ts';

const bounds = { choices: 1, choicesPerPrompt: 1, promptTokensMax: 1_000, completionTokensMax: 100 };

/** Reliability U10: what servers write where a count should be. */
const impossible: readonly unknown[] = [-1, -1e15, 0.5, NaN, Infinity, 1e15, '7', '', null, undefined, true, [7], {}];

describe('the tally of usage', () => {
  it('takes what is possible', () => {
    const tally = new UsageTally(bounds);
    for (let i = 0; i < 3; i++) tally.delta(0, i < 1);
    tally.reportTotal({ promptTokens: 7, cachedTokens: 2, completionTokens: 5, reasoningTokens: 3 });
    assert.deepEqual(tally.usage(), { promptTokens: 7, cachedTokens: 2, completionTokens: 5, reasoningTokens: 3 });
    assert.ok(tally.isReported);
  });

  it('counts deltas in place of every figure that cannot be true', () => {
    for (const value of impossible) {
      const tally = new UsageTally(bounds);
      for (let i = 0; i < 5; i++) tally.delta(0, i < 2);
      tally.reportTotal({ promptTokens: value, cachedTokens: value, completionTokens: value, reasoningTokens: value });
      assert.ok(!tally.isReported, `${String(value)} is no report`);
      assert.deepEqual(
        tally.usage(),
        { promptTokens: undefined, cachedTokens: 0, completionTokens: 5, reasoningTokens: 2 },
        String(value),
      );
    }
  });

  it('keeps parts inside their whole', () => {
    const tally = new UsageTally(bounds);
    tally.reportTotal({ promptTokens: 7, cachedTokens: 9, completionTokens: 5, reasoningTokens: 6 });
    assert.equal(tally.usage().cachedTokens, 7);
    assert.equal(tally.usage().reasoningTokens, 5);
  });

  it('lowers a count that is a little over the limit, and does not believe one that is far over it', () => {
    const little = new UsageTally(bounds);
    little.reportTotal({ promptTokens: 7, cachedTokens: 0, completionTokens: 101, reasoningTokens: 0 });
    assert.equal(little.usage().completionTokens, 100);
    assert.ok(little.isReported);
    const far = new UsageTally(bounds);
    far.delta(0, false);
    far.reportTotal({ promptTokens: 7, cachedTokens: 0, completionTokens: 10_000, reasoningTokens: 0 });
    assert.equal(far.usage().completionTokens, 1);
    assert.ok(!far.isReported);
  });

  it('never shrinks, and counts what comes after a report', () => {
    const tally = new UsageTally(bounds);
    const report = (completionTokens: number): void =>
      tally.reportChoice(0, { promptTokens: 7, cachedTokens: 0, completionTokens, reasoningTokens: undefined });
    tally.delta(0, false);
    report(4);
    report(2);
    assert.equal(tally.usage().completionTokens, 4);
    tally.delta(0, false);
    tally.delta(0, true);
    assert.equal(tally.usage().completionTokens, 6);
    assert.equal(tally.usage().reasoningTokens, 1);
    assert.ok(!tally.isReported);
    tally.reportTotal({ promptTokens: 7, cachedTokens: 0, completionTokens: 3, reasoningTokens: 0 });
    assert.equal(tally.usage().completionTokens, 4);
  });

  it('adds up choices and prompts', () => {
    const tally = new UsageTally({ ...bounds, choices: 4, choicesPerPrompt: 2 });
    for (let choice = 0; choice < 4; choice++) {
      const promptTokens = choice < 2 ? 7 : 9;
      assert.equal(tally.promptTokens, choice <= 2 && choice !== 3 ? undefined : 16);
      tally.reportChoice(choice, { promptTokens, cachedTokens: 3, completionTokens: 5, reasoningTokens: 0 });
    }
    assert.deepEqual(tally.usage(), { promptTokens: 16, cachedTokens: 6, completionTokens: 20, reasoningTokens: 0 });
    assert.ok(tally.isReported);
  });

  it('keeps its promises whatever happens', () => {
    const value = fc.oneof(fc.nat(200), fc.constantFrom(...impossible), fc.double(), fc.string());
    const raw = fc.record<RawUsage>({
      promptTokens: value,
      cachedTokens: value,
      completionTokens: value,
      reasoningTokens: value,
    });
    const step = fc.oneof(
      fc.record({ type: fc.constant('delta' as const), choice: fc.nat(2), isReasoning: fc.boolean() }),
      fc.record({ type: fc.constant('choice' as const), choice: fc.nat(2), raw }),
      fc.record({ type: fc.constant('total' as const), raw }),
    );
    fc.assert(
      fc.property(fc.array(step, { maxLength: 40 }), (steps) => {
        const tally = new UsageTally({ ...bounds, choices: 3, choicesPerPrompt: 3 });
        let before = 0;
        for (const one of steps) {
          if (one.type === 'delta') tally.delta(one.choice, one.isReasoning);
          else if (one.type === 'choice') tally.reportChoice(one.choice, one.raw);
          else tally.reportTotal(one.raw);
          const { promptTokens, cachedTokens, completionTokens, reasoningTokens } = tally.usage();
          for (const count of [promptTokens ?? 0, cachedTokens, completionTokens, reasoningTokens]) {
            assert.ok(Number.isSafeInteger(count) && count >= 0);
          }
          assert.ok((promptTokens ?? 0) <= 1_000 && cachedTokens <= (promptTokens ?? 0));
          assert.ok(completionTokens <= 300 && reasoningTokens <= completionTokens);
          if (one.type === 'delta') assert.ok(completionTokens >= before, 'a token takes none away');
          before = completionTokens;
        }
      }),
    );
  });
});
