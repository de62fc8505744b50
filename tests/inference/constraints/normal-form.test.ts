import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import fc from 'fast-check';
import { ebnfGrammar } from '../../../src/inference/constraints/ebnf.ts';
import {
  checkGrammarSize,
  composeGrammar,
  emptyText,
  literal,
  printGbnf,
  repetition,
  sequence,
  type Expression,
  type Grammar,
} from '../../../src/inference/constraints/grammar.ts';
import { normalForm } from '../../../src/inference/constraints/normal-form.ts';
import { Work } from '../../../src/inference/constraints/work.ts';
import { ApiError } from '../../../src/platform/errors.ts';
import { follower } from './follower.ts';
import { matches } from './matcher.ts';
import { grammars, textsOf } from './random-grammar.ts';

const texts = ['', ...textsOf(4)];
const whole = (root: Expression): Grammar => ({ root: 'root', rules: new Map([['root', root]]) });
const normal = (grammar: Grammar): Grammar => normalForm(grammar, new Work('grammar'));
const said = (grammar: Grammar): string => JSON.stringify([...grammar.rules]);

/** Each repeated part of a grammar, and how often it is repeated. */
function repeated(expression: Expression): readonly Extract<Expression, { kind: 'repetition' }>[] {
  if (expression.kind === 'repetition') return [expression, ...repeated(expression.item)];
  if (expression.kind !== 'sequence' && expression.kind !== 'alternatives') return [];
  return expression.items.flatMap(repeated);
}

describe('the normal form', () => {
  it('has the same texts, and repeats nothing that can be empty', () => {
    fc.assert(
      fc.property(grammars, (grammar) => {
        const form = normal(grammar);
        for (const text of texts) assert.equal(matches(form, text), matches(grammar, text), `${said(grammar)} ${text}`);
        for (const expression of form.rules.values()) {
          for (const { item, max } of repeated(expression)) {
            assert.ok(
              max === 1 || !matches({ root: ' ', rules: new Map([...form.rules, [' ', item]]) }, ''),
              said(form),
            );
          }
        }
      }),
      { numRuns: 200 },
    );
  });

  const a = literal('a');
  const ab: Expression = { kind: 'alternatives', items: [a, literal('bb')] };
  const counts: readonly (readonly [Expression, number, number | undefined])[] = [
    [a, 0, 499],
    [a, 500, 500],
    [a, 501, 501],
    [a, 0, 501],
    [a, 3, 2600],
    [a, 999, 1001],
    [a, 1500, undefined],
    [a, 0, 1000],
    [literal('aa'), 600, 600],
    [{ kind: 'characters', set: [[97, 98]] }, 510, 1020],
    [ab, 2, 9],
    [sequence(a, repetition(literal('b'), 0, 1)), 700, 1200],
    [repetition(a, 0, 1), 600, 700],
    [repetition(a, 0, 3), 2, 9],
  ];
  for (const [item, min, max] of counts) {
    it(`${JSON.stringify(item)}, ${min} to ${max} times`, () => {
      const form = normal(whole(sequence(repetition(item, min, max), literal('!'))));
      for (const expression of form.rules.values())
        for (const each of repeated(expression)) assert.ok((each.max ?? each.min) <= 500);
      const isText = follower(form);
      const [shortest, longest] = [
        item.kind === 'repetition' ? 0 : 1,
        item.kind === 'repetition' ? (item.max ?? 1) : 1,
      ];
      const size = item.kind === 'literal' ? item.text.length : 1;
      for (const times of [
        0, 1, 2, 3, 9, 10, 499, 500, 501, 600, 601, 700, 999, 1000, 1001, 1020, 1021, 1200, 1201, 1499, 1500, 1800,
        1801, 2600, 2601,
      ]) {
        const isInside = isText(`${'a'.repeat(times * size)}!`);
        assert.equal(isInside, times >= min * shortest && times <= (max ?? Infinity) * longest, String(times));
      }
    });
  }

  it('of many texts shares what they begin with', () => {
    const words = ['', 'a', 'ab', 'abc', 'b', 'bc', ...Array.from({ length: 20 }, (_, i) => `x${i}`)];
    const items = words.flatMap((word): readonly Expression[] => [
      word === '' ? emptyText : literal(word),
      literal('y'),
    ]);
    const grammar = whole(
      sequence({ kind: 'alternatives', items: [...items, repetition(literal('z'), 2, 3)] }, literal('!')),
    );
    const form = normal(grammar);
    for (const text of [...words, 'y', 'zz', 'zzz', 'x', 'z', 'abcd', 'yy', 'x20', 'x1', 'x11'])
      assert.equal(matches(form, `${text}!`), matches(grammar, `${text}!`), text);
    const printed = printGbnf(form);
    assert.equal(printed.split('"x"').length, 2, printed);
  });
});

describe('a printed grammar', () => {
  it('is read back as the grammar that it was', () => {
    let read = 0;
    fc.assert(
      fc.property(grammars, (grammar) => {
        const form = normal(grammar);
        let back;
        try {
          back = ebnfGrammar(printGbnf(form), 'ebnf');
        } catch (error) {
          if (!(error instanceof ApiError)) throw error;
          return;
        }
        read++;
        for (const text of texts)
          assert.equal(matches(back, text), matches(grammar, text), `${printGbnf(form)} ${text}`);
      }),
      { numRuns: 200 },
    );
    assert.ok(read > 100, String(read));
  });

  it('of several has the texts of each, one after the other', () => {
    fc.assert(
      fc.property(grammars, grammars, (left, right) => {
        const both = composeGrammar((embed) =>
          sequence(embed(left), literal('|'), embed(right), literal('|'), embed(left)),
        );
        const [first = [], second = []] = [left, right].map((each) =>
          [...texts.slice(0, 12), 'cc'].map((text) => [text, matches(each, text)] as const),
        );
        for (const [text, isLeft] of first) {
          for (const [other, isRight] of second)
            assert.equal(
              matches(both, `${text}|${other}|${text}`),
              isLeft && isRight,
              `${said(left)} ${said(right)} ${text} ${other}`,
            );
        }
      }),
      { numRuns: 60 },
    );
  });

  const elements: readonly (readonly [Expression, number])[] = [
    [literal('😀ab'), 3],
    [
      {
        kind: 'characters',
        set: [
          [1, 2],
          [4, 5],
        ],
      },
      2,
    ],
    [sequence(literal('ab'), { kind: 'rule', name: 'root' }), 4],
    [{ kind: 'alternatives', items: [literal('ab'), literal('c')] }, 4],
    [
      repetition(
        {
          kind: 'characters',
          set: [
            [1, 2],
            [4, 5],
          ],
        },
        2,
        7,
      ),
      14,
    ],
    [repetition(literal('ab'), 2, 7), 16],
    [repetition(literal('ab'), 2, undefined), 8],
    [repetition(literal('ab'), 0, 1), 4],
  ];
  it('has a size, in the elements that an engine makes of it', () => {
    const isRefused = (items: readonly Expression[], rules = new Map<string, Expression>()): boolean => {
      try {
        checkGrammarSize({ root: 'root', rules: new Map([['root', { kind: 'sequence', items }], ...rules]) }, 'x');
        return false;
      } catch (error) {
        assert.ok(error instanceof ApiError && error.code === 'unsupported_value' && error.param === 'x');
        return true;
      }
    };
    // A rule and its sequence are one each.
    const filled = (size: number): Expression => literal('a'.repeat(100_000 - 2 - size));
    for (const [expression, size] of elements) {
      assert.ok(!isRefused([expression, filled(size)]), JSON.stringify(expression));
      assert.ok(isRefused([expression, filled(size - 1)]), JSON.stringify(expression));
    }
    const rules = (count: number) => new Map(Array.from({ length: count }, (_, i) => [`r${i}`, literal('a')] as const));
    assert.ok(!isRefused([], rules(4_999)));
    assert.ok(isRefused([], rules(5_000)));
  });
});
