import fc from 'fast-check';
import type { Expression, Grammar } from '../../../src/inference/constraints/grammar.ts';

/** Texts of a, b and c, up to a length. */
export function textsOf(length: number): readonly string[] {
  const shorter = length === 1 ? [''] : textsOf(length - 1);
  return [...new Set([...shorter, ...shorter.flatMap((text) => ['a', 'b', 'c'].map((last) => text + last))])];
}

/** Grammars of few rules over a, b and c; rules name later ones only, or themselves at their end. */
export const grammars: fc.Arbitrary<Grammar> = fc
  .tuple(expressions(['x', 'y']), expressions(['y']), expressions([]))
  .map(([root, x, y]) => {
    const again: Expression = {
      kind: 'sequence',
      items: [
        { kind: 'literal', text: 'c' },
        { kind: 'rule', name: 'y' },
      ],
    };
    return {
      root: 'root',
      rules: new Map<string, Expression>([
        ['root', root],
        ['x', x],
        ['y', { kind: 'alternatives', items: [y, again] }],
      ]),
    };
  });

function expressions(names: readonly string[]): fc.Arbitrary<Expression> {
  return fc.letrec<{ any: Expression }>((tie) => ({
    any: fc.oneof(
      { maxDepth: 3, depthSize: 'small' },
      fc.constantFrom('a', 'b', 'ab', 'ca', 'abc').map((text): Expression => ({ kind: 'literal', text })),
      fc.constantFrom<Expression>(
        { kind: 'characters', set: [[97, 98]] },
        { kind: 'characters', set: [[99, 99]] },
        ...names.map((name): Expression => ({ kind: 'rule', name })),
      ),
      fc.array(tie('any'), { maxLength: 3 }).map((items): Expression => ({ kind: 'sequence', items })),
      fc
        .array(tie('any'), { minLength: 1, maxLength: 6 })
        .map((items): Expression => ({ kind: 'alternatives', items })),
      fc.tuple(tie('any'), fc.nat(2), fc.option(fc.nat(2), { nil: undefined })).map(([item, min, more]): Expression => {
        return { kind: 'repetition', item, min, max: more === undefined ? undefined : Math.max(min + more, 1) };
      }),
    ),
  })).any;
}
