import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import fc from 'fast-check';
import { UsageTally, type RawUsage } from '../../../src/inference/engines/usage-tally.ts';

const bounds = { choices: 1, choicesPerPrompt: 1, promptTokensMax: 1_000, completionTokensMax: 100 };

/** Reliability U10: what servers write where a count should be. */
const impossible: readonly unknown[] = [-1, -1e15, 0.5, NaN, Infinity, 1e15, '7', '', null, undefined, true, [7], {}];

/** A word in a delta of its own. */
function token(tally: UsageTally, choice = 0, isReasoning = false): void {
  tally.said(choice, isReasoning ? 'reasoning' : 'text', ' word');
  tally.delta(choice);
}

describe('the tally of usage', () => {
  it('takes what is possible', () => {
    const tally = new UsageTally(bounds);
    for (let i = 0; i < 3; i++) token(tally, 0, i < 1);
    tally.reportTotal({ promptTokens: 7, cachedTokens: 2, completionTokens: 5, reasoningTokens: 3 });
    assert.deepEqual(tally.usage(), { promptTokens: 7, cachedTokens: 2, completionTokens: 5, reasoningTokens: 3 });
    assert.ok(tally.isReported);
  });

  it('counts deltas in place of every figure that cannot be true', () => {
    for (const value of impossible) {
      const tally = new UsageTally(bounds);
      for (let i = 0; i < 5; i++) token(tally, 0, i < 2);
      tally.reportTotal({ promptTokens: value, cachedTokens: value, completionTokens: value, reasoningTokens: value });
      assert.ok(!tally.isReported, `${String(value)} is no report`);
      assert.deepEqual(
        tally.usage(),
        { promptTokens: undefined, cachedTokens: 0, completionTokens: 5, reasoningTokens: 2 },
        String(value),
      );
    }
  });

  it('does not believe a part that is larger than its whole', () => {
    const tally = new UsageTally(bounds);
    tally.reportTotal({ promptTokens: 7, cachedTokens: 9, completionTokens: 5, reasoningTokens: 6 });
    assert.deepEqual(tally.usage(), { promptTokens: 7, cachedTokens: 0, completionTokens: 5, reasoningTokens: 0 });
    assert.ok(tally.isDoubted);
  });

  it('does not believe fewer tokens than there must be, until a later report corrects them', () => {
    const tally = new UsageTally(bounds);
    const none = { promptTokens: 0, cachedTokens: 0, completionTokens: 0, reasoningTokens: 0 };
    tally.reportChoice(0, { ...none, promptTokens: 7 });
    assert.ok(tally.isReported, 'nothing was said');
    token(tally);
    tally.reportTotal(none);
    assert.deepEqual([tally.isReported, tally.isDoubted, tally.usage().completionTokens], [false, true, 1]);
    tally.reportTotal({ ...none, promptTokens: 7, completionTokens: 2 });
    assert.deepEqual([tally.isReported, tally.isDoubted, tally.usage().completionTokens], [true, false, 2]);
    // 3,000 characters are more than two tokens can have.
    const long = new UsageTally(bounds);
    long.said(0, 'text', 'x'.repeat(3_000));
    long.reportTotal({ ...none, promptTokens: 7, completionTokens: 2 });
    assert.ok(!long.isReported);
  });

  it('puts reasoning into the completion where the total shows that it is beside it', () => {
    const about = (reasons: boolean, reasoningTokens: unknown, totalTokens: number): unknown => {
      const tally = new UsageTally({ ...bounds, reasons });
      tally.reportTotal({ promptTokens: 10, cachedTokens: 0, completionTokens: 5, reasoningTokens, totalTokens });
      const { completionTokens, reasoningTokens: reasoning } = tally.usage();
      return [completionTokens, reasoning];
    };
    assert.deepEqual(about(false, 50, 65), [55, 50]);
    assert.deepEqual(about(false, 3, 15), [5, 3], 'inside it');
    assert.deepEqual(about(false, 3, 18), [8, 3]);
    assert.deepEqual(about(false, 3, 40), [5, 3], 'the total is something else');
    assert.deepEqual(about(true, undefined, 65), [55, 50], 'a model that reasons, on a server that does not name it');
    assert.deepEqual(about(false, undefined, 65), [5, 0]);
    assert.deepEqual(about(true, undefined, 10_000), [5, 0], 'more than the request allows');
  });

  it('estimates by length, in deltas of any size, with the tokens of a delta where they are known', () => {
    const words = Array.from({ length: 40 }, (_, index) => ` word${index}`);
    for (const size of [1, 7, words.length]) {
      const tally = new UsageTally(bounds);
      for (let at = 0; at < words.length; at += size) {
        tally.said(0, 'text', words.slice(at, at + size).join(''));
        tally.delta(0);
      }
      assert.equal(tally.usage().completionTokens, 80, `${size} words in a delta`);
    }
    const known = new UsageTally(bounds);
    known.said(0, 'text', 'one two three');
    known.delta(0, 5);
    known.said(0, 'text', ' four');
    assert.equal(known.usage().completionTokens, 6);
    known.delta(0, 1);
    assert.equal(known.usage().completionTokens, 6);
    const streaming = new UsageTally({ ...bounds, hasTokenPerDelta: true });
    for (const piece of ['internationalization', ' of', ' text', '']) {
      streaming.said(0, 'text', piece);
      streaming.delta(0);
    }
    assert.equal(streaming.usage().completionTokens, 4);
    streaming.said(0, 'text', ' word'.repeat(30));
    streaming.delta(0);
    assert.equal(streaming.usage().completionTokens, 34, 'a bundle is no token');
  });

  it('estimates text, reasoning and calls each by itself, in whatever order their pieces come', () => {
    const said = [
      ['reasoning', 'hm'],
      ['text', 'Hello'],
      ['tool-call', 'get'],
      ['tool-arguments', 'x'],
    ] as const;
    const orders = [
      said,
      said.toReversed(),
      [...said.slice(1), said[0]!],
      said.flatMap(([part, text]) =>
        (part === 'tool-call' ? [text] : [...text]).map((piece) => [part, piece] as const),
      ),
    ];
    for (const order of orders) {
      const tally = new UsageTally(bounds);
      for (const [part, text] of order) tally.said(0, part, text);
      assert.equal(tally.usage().completionTokens, 4, JSON.stringify(order));
    }
    const mixed = new UsageTally(bounds);
    const pieces = [
      ['text', 'He'],
      ['reasoning', 'h'],
      ['text', 'llo'],
      ['reasoning', 'm'],
    ] as const;
    for (const [part, text] of pieces) mixed.said(0, part, text);
    assert.equal(mixed.usage().completionTokens, 2);
  });

  it('counts what was held back with the report or the known tokens that came after it, and never for nothing', () => {
    const figures = { promptTokens: 7, cachedTokens: 0, completionTokens: 5, reasoningTokens: 0 };
    const about = (before: (tally: UsageTally) => void): unknown => {
      const tally = new UsageTally(bounds);
      before(tally);
      tally.releases(0);
      tally.said(0, 'text', ' held back');
      return [tally.usage().completionTokens, tally.isReported];
    };
    const held = (tally: UsageTally): void => tally.delta(0);
    assert.deepEqual(
      about((tally) => (held(tally), tally.reportTotal(figures))),
      [5, true],
    );
    assert.deepEqual(
      about((tally) => (held(tally), tally.reportChoice(0, figures))),
      [5, true],
    );
    assert.deepEqual(
      about((tally) => (tally.reportTotal(figures), held(tally))),
      [7, false],
    );
    assert.deepEqual(
      about((tally) => (held(tally), tally.reportTotal({ ...figures, completionTokens: 0 }))),
      [2, false],
    );
    assert.deepEqual(
      about((tally) => tally.delta(0, 3)),
      [3, false],
      'its tokens are known',
    );
  });

  it('lowers a count that is a little over the limit, and does not believe one that is far over it', () => {
    const little = new UsageTally(bounds);
    little.reportTotal({ promptTokens: 7, cachedTokens: 0, completionTokens: 101, reasoningTokens: 0 });
    assert.equal(little.usage().completionTokens, 100);
    assert.ok(little.isReported);
    const far = new UsageTally(bounds);
    token(far);
    far.reportTotal({ promptTokens: 7, cachedTokens: 0, completionTokens: 10_000, reasoningTokens: 0 });
    assert.equal(far.usage().completionTokens, 1);
    assert.ok(!far.isReported);
  });

  it('never shrinks, and counts what comes after a report', () => {
    const tally = new UsageTally(bounds);
    const report = (completionTokens: number): void =>
      tally.reportChoice(0, { promptTokens: 7, cachedTokens: 0, completionTokens, reasoningTokens: undefined });
    token(tally);
    report(4);
    report(2);
    assert.equal(tally.usage().completionTokens, 4);
    token(tally);
    token(tally, 0, true);
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
          if (one.type === 'delta') token(tally, one.choice, one.isReasoning);
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
