import { repetition, sequence, type Expression } from './grammar.ts';

interface Lengths {
  readonly min: number;
  /** Infinity when unbounded. */
  readonly max: number;
}

/**
 * Returns the texts of the expression within the bounds, if that is easy to express: all texts are within them, or one part repeats a
 * single character and the others have a fixed length, as in `^[a-z]+$`. Otherwise returns `undefined`, and an automaton has to count.
 */
export function withLength(expression: Expression, min: number, max: number | undefined): Expression | undefined {
  const wanted = { min, max: max ?? Infinity };
  const all = lengthsOf(expression);
  if (all.min >= wanted.min && all.max <= wanted.max) return expression;
  const items = expression.kind === 'sequence' ? expression.items : [expression];
  const open = items.filter((item) => lengthsOf(item).min !== lengthsOf(item).max);
  const [only] = open;
  if (open.length !== 1 || only?.kind !== 'repetition') return undefined;
  const step = lengthsOf(only.item);
  if (step.min !== 1 || step.max !== 1) return undefined;
  const fixed = items.reduce((sum, item) => (item === only ? sum : sum + lengthsOf(item).min), 0);
  const low = Math.max(only.min, wanted.min - fixed);
  const high = Math.min(only.max ?? Infinity, wanted.max - fixed);
  if (low > high) return undefined;
  const bounded = repetition(only.item, low, high === Infinity ? undefined : high);
  return sequence(...items.map((item) => (item === only ? bounded : item)));
}

/** Returns the lengths of the texts, in characters. */
export function lengthsOf(expression: Expression): Lengths {
  switch (expression.kind) {
    case 'literal': {
      const length = [...expression.text].length;
      return { min: length, max: length };
    }
    case 'characters':
      return { min: 1, max: 1 };
    case 'sequence':
      return expression.items
        .map(lengthsOf)
        .reduce((sum, { min, max }) => ({ min: sum.min + min, max: sum.max + max }), {
          min: 0,
          max: 0,
        });
    case 'alternatives':
      return expression.items
        .map(lengthsOf)
        .reduce((all, { min, max }) => ({ min: Math.min(all.min, min), max: Math.max(all.max, max) }), {
          min: Infinity,
          max: 0,
        });
    case 'repetition': {
      const { min, max } = lengthsOf(expression.item);
      const times = expression.max ?? Infinity;
      return { min: min * expression.min, max: max === 0 ? 0 : max * times };
    }
    case 'rule':
      throw new Error('the length of a rule is not known');
  }
}
