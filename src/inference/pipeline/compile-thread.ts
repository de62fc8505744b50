/** A thread that compiles constraints one after the other. Anything it throws other than a refusal ends only this thread. */
import '../../platform/stack-traces.ts';

import { parentPort } from 'node:worker_threads';
import { ebnfGrammar } from '../constraints/ebnf.ts';
import { printGbnf } from '../constraints/grammar.ts';
import type { Grammar } from '../constraints/grammar.ts';
import { jsonSchemaGrammar } from '../constraints/json-schema.ts';
import { jsonObjectGrammar } from '../constraints/json-text.ts';
import { compileProgram } from '../constraints/program.ts';
import { regexGrammar } from '../constraints/regex.ts';
import { ApiError } from '../../platform/errors.ts';
import type { ErrorCode } from '../../platform/errors.ts';
import type { Constraint } from '../../generation/request.ts';

/** The result of compiling a constraint. */
export interface Compiled {
  readonly gbnf: string;
  readonly program: Int32Array;
}

export type CompileReply =
  Compiled | { readonly code: ErrorCode; readonly message: string; readonly param: string | undefined };

const port = parentPort!;
/** A constraint, and the field that holds it. */
export interface CompileOrder {
  readonly source: Constraint;
  readonly at: string;
}

port.on('message', (order: CompileOrder) => {
  const answer = reply(order);
  port.postMessage(answer, 'program' in answer ? [answer.program.buffer as ArrayBuffer] : []);
});

function reply(order: CompileOrder): CompileReply {
  try {
    const grammar = grammarOf(order);
    return { gbnf: printGbnf(grammar), program: compileProgram(grammar) };
  } catch (error) {
    if (!(error instanceof ApiError)) throw error;
    const { code, message, param } = error;
    return { code, message, param };
  }
}

function grammarOf({ source, at }: CompileOrder): Grammar {
  switch (source.type) {
    case 'json-object':
      return jsonObjectGrammar();
    case 'json-schema':
      return jsonSchemaGrammar(source.schema, at);
    case 'regex':
      return regexGrammar(source.pattern, at);
    case 'grammar':
      return ebnfGrammar(source.text, at);
  }
}
