/** A thread that compiles constraints one after the other. Anything it throws, other than a refusal, ends only this thread. */
import '../../platform/stack-traces.ts';

import { ebnfGrammar } from '../constraints/ebnf.ts';
import { printGbnf } from '../constraints/grammar.ts';
import type { Grammar } from '../constraints/grammar.ts';
import { jsonSchemaGrammar } from '../constraints/json-schema.ts';
import { jsonObjectGrammar } from '../constraints/json-text.ts';
import { compileProgram } from '../constraints/program.ts';
import { regexGrammar } from '../constraints/regex.ts';
import { ApiError } from '../../platform/errors.ts';
import { Transferred } from '../../platform/rpc/rpc.ts';
import { serveParent } from '../../platform/rpc/thread.ts';
import type { Constraint } from '../../generation/request.ts';

/** The result of compiling a constraint. */
export interface Compiled {
  readonly gbnf: string;
  readonly program: Int32Array;
}

export type CompileCalls = { readonly compile: (order: CompileOrder) => Compiled };

/** A constraint, and the field that holds it. */
export interface CompileOrder {
  readonly source: Constraint;
  readonly at: string;
}

serveParent<CompileCalls>({
  handlers: {
    compile: (order) => {
      const grammar = grammarOf(order);
      const program = compileProgram(grammar);
      return new Transferred({ gbnf: printGbnf(grammar), program }, [program.buffer as ArrayBuffer]);
    },
  },
  isAnswer: (error) => error instanceof ApiError,
});

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
