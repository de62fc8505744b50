import { Acceptor } from '../../../src/inference/constraints/acceptor.ts';
import type { Expression, Grammar } from '../../../src/inference/constraints/grammar.ts';
import { compileProgram } from '../../../src/inference/constraints/program.ts';

/** Whether a whole text matches the grammar, by the program that follows answers: for many texts, and long ones. */
export function follower(grammar: Grammar): (text: string) => boolean {
  const program = compileProgram(grammar);
  return (text) => {
    const acceptor = new Acceptor(program);
    return acceptor.push(text) === 'inside' && acceptor.isComplete;
  };
}

/** The same for an expression without rules. */
export const expressionFollower = (expression: Expression): ((text: string) => boolean) =>
  follower({ root: 'root', rules: new Map([['root', expression]]) });
