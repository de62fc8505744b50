import { ebnfGrammar } from '../../src/inference/constraints/ebnf.ts';
import type { Expression, Grammar } from '../../src/inference/constraints/grammar.ts';

type Body = Readonly<Record<string, unknown>>;

/** The deltas of an answer, each of them one token. */
export type Reply = readonly Readonly<Record<string, unknown>>[];

/** An answer that is as short as what a request to a server binds it to lets it be; `undefined`: it binds it to nothing. */
export function boundOutput({ tool_choice: choice, tools, response_format: format, ...body }: Body): Reply | undefined {
  if (choice === 'required' || typeof choice === 'object') {
    const [{ function: tool }] = tools as readonly [{ readonly function: { readonly name: string } }];
    return [{ tool_calls: [{ index: 0, id: 'call_1', function: { name: tool.name, arguments: '{}' } }] }];
  }
  const grammar = body['guided_grammar'] ?? body['grammar'] ?? body['ebnf'];
  if (typeof grammar === 'string') return [{ content: shortestText(ebnfGrammar(grammar, 'grammar')) }];
  return format === undefined ? undefined : [{ content: '{}' }];
}

/** The shortest texts of all rules, found from those that need no other. */
function shortestText({ root, rules }: Grammar): string {
  const known = new Map<string, string>();
  const of = (expression: Expression): string | undefined => {
    switch (expression.kind) {
      case 'literal':
        return expression.text;
      case 'characters':
        return String.fromCodePoint(expression.set[0]?.[0] ?? 0);
      case 'sequence':
        return expression.items.reduce<string | undefined>((text, item) => {
          const more = of(item);
          return text === undefined || more === undefined ? undefined : text + more;
        }, '');
      case 'alternatives':
        return expression.items
          .map(of)
          .filter((text) => text !== undefined)
          .sort((a, b) => a.length - b.length)[0];
      case 'repetition':
        return expression.min === 0 ? '' : of(expression.item)?.repeat(expression.min);
      case 'rule':
        return known.get(expression.name);
    }
  };
  for (let before = -1; before < known.size;) {
    before = known.size;
    for (const [name, expression] of rules) {
      const text = of(expression);
      if (text !== undefined && !known.has(name)) known.set(name, text);
    }
  }
  return known.get(root) ?? '';
}
