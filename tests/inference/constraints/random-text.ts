import type { Expression, Grammar } from '../../../src/inference/constraints/grammar.ts';

/** Texts of a grammar, chosen at random; after some 200 choices the shortest way to the end is taken. */
export function randomTexts(grammar: Grammar, random: () => number): () => string {
  const costs = costsOf(grammar);
  const costOf = (expression: Expression): number => cost(expression, costs);
  let choicesLeft = 0;
  const pick = <Item>(items: readonly Item[]): Item => items[Math.floor(random() * items.length)]!;
  const write = (expression: Expression): string => {
    switch (expression.kind) {
      case 'literal':
        return expression.text;
      case 'characters': {
        const [first, last] = pick(expression.set);
        return String.fromCodePoint(first + Math.floor(random() * (Math.min(last - first, 40) + 1)));
      }
      case 'sequence':
        return expression.items.map(write).join('');
      case 'alternatives': {
        if (choicesLeft-- > 0) return write(pick(expression.items.filter((item) => costOf(item) < Infinity)));
        return write(expression.items.reduce((least, item) => (costOf(item) < costOf(least) ? item : least)));
      }
      case 'repetition': {
        const { item, min, max } = expression;
        const parts = Array.from({ length: min }, () => write(item));
        while (parts.length < (max ?? Infinity) && choicesLeft-- > 0 && random() < 0.6) parts.push(write(item));
        return parts.join('');
      }
      case 'rule':
        return write(grammar.rules.get(expression.name)!);
    }
  };
  return () => {
    choicesLeft = 200;
    return write({ kind: 'rule', name: grammar.root });
  };
}

/** How much must at least be written for each rule. */
function costsOf(grammar: Grammar): ReadonlyMap<string, number> {
  const costs = new Map<string, number>();
  for (let changed = true; changed;) {
    changed = false;
    for (const [name, expression] of grammar.rules) {
      const found = cost(expression, costs);
      if (found >= (costs.get(name) ?? Infinity)) continue;
      costs.set(name, found);
      changed = true;
    }
  }
  return costs;
}

function cost(expression: Expression, costs: ReadonlyMap<string, number>): number {
  switch (expression.kind) {
    case 'literal':
      return expression.text.length;
    case 'characters':
      return expression.set.length === 0 ? Infinity : 1;
    case 'sequence':
      return expression.items.reduce((sum, item) => sum + cost(item, costs), 0);
    case 'alternatives':
      return Math.min(...expression.items.map((item) => cost(item, costs)));
    case 'repetition':
      return expression.min === 0 ? 0 : expression.min * cost(expression.item, costs);
    case 'rule':
      return 1 + (costs.get(expression.name) ?? Infinity);
  }
}
