import { ApiError } from '../../platform/errors.ts';
import { subsetAutomaton, type Automaton } from './automaton.ts';
import type { Expression } from './grammar.ts';
import { lengthsOf } from './string-length.ts';
import type { Work } from './work.ts';

/** The expression itself, or the automaton that replaces it. */
export type RegexForm =
  | { readonly type: 'expression'; readonly expression: Expression }
  | { readonly type: 'automaton'; readonly automaton: Automaton };

/** Bound on the positions of an expression that a text can be at simultaneously: each costs the engine time for every token. */
const placesMax = 64;
/** The same bound if nothing is nested and little is optional: such positions are cheap. */
const flatPlacesMax = 400;
const statesMax = 1_500;

/**
 * An ambiguous expression such as `(a{1,20}){1,20}` puts an engine at many positions at once, which takes seconds per token. Such an
 * expression is replaced by its automaton, which is in only one state at a time; if that would be too large, it is refused with
 * `unsupported_value` 400 (contracts decision 13).
 */
export function regexForm(expression: Expression, work: Work): RegexForm {
  const places = placesIn(expression);
  const asItIs = { type: 'expression', expression } as const;
  if (places <= placesMax || hasOneOpenPart(expression)) return asItIs;
  if (places <= flatPlacesMax && isFlat(expression)) return asItIs;
  const { automaton, width } = subsetAutomaton(expression, work);
  if (width <= placesMax) return asItIs;
  if (automaton.length <= statesMax) return { type: 'automaton', automaton };
  throw new ApiError('unsupported_value', `'${work.at}' has a pattern that can be read in too many ways.`, {
    param: work.at,
  });
}

function placesIn(expression: Expression): number {
  switch (expression.kind) {
    case 'literal':
      return expression.text.length;
    case 'characters':
      return 1;
    case 'sequence':
    case 'alternatives':
      return expression.items.reduce((sum, item) => sum + placesIn(item), 0);
    case 'repetition':
      return placesIn(expression.item) * (expression.max ?? expression.min + 1);
    case 'rule':
      throw new Error('a pattern has no rules');
  }
}

const isSingle = (expression: Expression): boolean => {
  const { min, max } = lengthsOf(expression);
  return min === 1 && max === 1;
};

/** As in `^id-[0-9]{1,100000}$`: the length of the text determines the position. */
function hasOneOpenPart(expression: Expression): boolean {
  const items = expression.kind === 'sequence' ? expression.items : [expression];
  const open = items.filter((item) => {
    const { min, max } = lengthsOf(item);
    return min !== max;
  });
  return open.length === 0 || (open.length === 1 && open[0]?.kind === 'repetition' && isSingle(open[0].item));
}

function isFlat(expression: Expression): boolean {
  const items = expression.kind === 'sequence' ? expression.items : [expression];
  let leftOut = 0;
  for (const item of items) {
    const isPlain = item.kind === 'literal' || item.kind === 'characters';
    if (!isPlain && !(item.kind === 'repetition' && isSingle(item.item))) return false;
    leftOut = lengthsOf(item).min === 0 ? leftOut + 1 : 0;
    if (leftOut > 8) return false;
  }
  return true;
}
