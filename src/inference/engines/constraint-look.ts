import { alternatives, literal, printGbnf, type Grammar } from '../constraints/grammar.ts';
import { jsonObjectGrammar } from '../constraints/json-text.ts';
import { compileProgram } from '../constraints/program.ts';
import type { Constraint, EngineConstraint, EngineRequest } from '../../generation/request.ts';
import { smallRequest } from './small-request.ts';

/** Words that no model writes by itself. */
const words = ['qzjx', 'jxqz'];

const grammarOf = (texts: readonly string[]): Grammar => ({
  root: 'root',
  rules: new Map([['root', alternatives(...texts.map(literal))]]),
});

function constraintOf(type: Constraint['type']): EngineConstraint {
  const made = (source: Constraint, grammar: Grammar): EngineConstraint => ({
    source,
    gbnf: printGbnf(grammar),
    program: compileProgram(grammar),
  });
  switch (type) {
    case 'json-object':
      return made({ type }, jsonObjectGrammar());
    case 'json-schema':
      return made(
        { type, schema: { enum: words }, name: 'look' },
        grammarOf(words.map((word) => JSON.stringify(word))),
      );
    case 'regex':
      return made({ type, pattern: words.join('|') }, grammarOf(words));
    case 'grammar':
      return made({ type, text: printGbnf(grammarOf(words)) }, grammarOf(words));
  }
}

/** Returns a request of few tokens whose answer shows whether its server keeps this kind of constraint. */
export function lookRequest({
  type,
  isChat,
}: {
  readonly type: Constraint['type'];
  readonly isChat: boolean;
}): EngineRequest {
  return {
    ...smallRequest({ isChat, text: isChat ? 'Name a colour.' : 'The sky is' }),
    maxTokens: 24,
    constraint: constraintOf(type),
    cacheScope: 'constraints',
    retain: true,
  };
}
