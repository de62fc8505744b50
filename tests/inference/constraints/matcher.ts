import type { Expression, Grammar } from '../../../src/inference/constraints/grammar.ts';

/** Whether a whole text matches a grammar: the ends of every rule from every place, without regard to speed. */
export function matches(grammar: Grammar, text: string): boolean {
  const characters = [...text];
  const known = new Map<string, ReadonlySet<number>>();
  const ends = (expression: Expression, start: number): ReadonlySet<number> => {
    switch (expression.kind) {
      case 'literal': {
        const wanted = [...expression.text];
        return new Set(wanted.every((each, i) => characters[start + i] === each) ? [start + wanted.length] : []);
      }
      case 'characters': {
        const point = characters[start]?.codePointAt(0) ?? -1;
        return new Set(expression.set.some(([first, last]) => first <= point && point <= last) ? [start + 1] : []);
      }
      case 'sequence':
        return expression.items.reduce<ReadonlySet<number>>(
          (places, item) => new Set([...places].flatMap((place) => [...ends(item, place)])),
          new Set([start]),
        );
      case 'alternatives':
        return new Set(expression.items.flatMap((item) => [...ends(item, start)]));
      case 'repetition': {
        const all = new Set<number>();
        let places: ReadonlySet<number> = new Set([start]);
        const most = expression.max ?? Math.max(expression.min, characters.length) + 1;
        for (let times = 0; times <= most && places.size > 0; times++) {
          if (times >= expression.min) {
            const before = all.size;
            for (const place of places) all.add(place);
            if (times > expression.min && all.size === before) break;
          }
          places = new Set([...places].flatMap((place) => [...ends(expression.item, place)]));
        }
        return all;
      }
      case 'rule': {
        const key = `${expression.name} ${start}`;
        const before = known.get(key);
        if (before !== undefined) return before;
        const body = grammar.rules.get(expression.name);
        if (body === undefined) throw new Error(`no rule ${expression.name}`);
        const found = ends(body, start);
        known.set(key, found);
        return found;
      }
    }
  };
  return ends({ kind: 'rule', name: grammar.root }, 0).has(characters.length);
}
