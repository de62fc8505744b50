import { codePoints, complement, onePoint } from '../../constraints/code-points.ts';
import {
  alternatives,
  checkGrammarSize,
  composeGrammar,
  emptyText,
  literal,
  printGbnf,
  repetition,
  rule,
  sequence,
  type Expression,
  type Grammar,
} from '../../constraints/grammar.ts';
import { jsonSchemaGrammar } from '../../constraints/json-schema.ts';
import { jsonObjectGrammar } from '../../constraints/json-text.ts';
import { ApiError } from '../../../platform/errors.ts';
import type { EngineRequest, Tool } from '../../../generation/request.ts';
import type { CallFormat, CallSpelling } from '../../output-parsers/format.ts';
import { offeredTools } from './prompt.ts';

export type ToolsRequest = Pick<EngineRequest, 'tools' | 'toolChoice' | 'parallelToolCalls'>;

/** Returns whether the answer must be calls. */
export function forcesCalls({ toolChoice }: Pick<ToolsRequest, 'toolChoice'>): boolean {
  return toolChoice.type === 'required' || toolChoice.type === 'function';
}

/** Returns how many calls an answer may have. */
export function callsMaxOf({ toolChoice, parallelToolCalls }: ToolsRequest): number {
  return parallelToolCalls && toolChoice.type !== 'function' ? Infinity : 1;
}

/**
 * Builds the grammar of an answer to a request with tools, from the end of reasoning on, in pieces of some milliseconds. Forced calls
 * (`required`, a named function) are the whole answer, and their arguments match the schemas. With `auto` text is free, and a call that the
 * model begins is held to the tools from its mark on: llama.cpp first tries the token that the model wants, so such a grammar costs next to
 * nothing where text is free. `undefined`: there is nothing to enforce, because no tools are offered, or because the format has no mark
 * that distinguishes a call from text.
 */
export function* toolGrammar(request: ToolsRequest, { spelling }: CallFormat): Generator<void, string | undefined> {
  const { toolChoice: choice } = request;
  const isForced = forcesCalls(request);
  const { trigger } = spelling;
  if (!isForced && trigger === undefined) return undefined;
  const tools: OfferedTool[] = [];
  for (const tool of offeredTools(request)) {
    if (choice.type === 'function' && tool.name !== choice.name) continue;
    tools.push({ name: tool.name, parameters: parametersOf(tool, request.tools.indexOf(tool), isForced) });
    yield;
  }
  if (tools.length === 0) return undefined;
  const many = callsMaxOf(request) > 1;
  const grammar = composeGrammar((embed) => {
    const embedded = tools.map(({ name, parameters }) => ({ name, parameters: embed(parameters) }));
    if (isForced || trigger === undefined) return callsOf(embedded, spelling, many, '');
    return embed(textUntil(trigger, callsOf(embedded, spelling, many, trigger)));
  });
  try {
    checkGrammarSize(grammar, 'tools');
  } catch (error) {
    if (isForced) throw error;
    return undefined;
  }
  return printGbnf(grammar);
}

interface OfferedTool {
  readonly name: string;
  readonly parameters: Grammar;
}

/** Returns the grammar of a tool's arguments. Unenforceable schemas are refused when calls are forced; otherwise any object is accepted. */
function parametersOf({ parameters }: Tool, index: number, isForced: boolean): Grammar {
  if (!hasParameters(parameters)) return { root: 'root', rules: new Map([['root', literal('{}')]]) };
  try {
    return jsonSchemaGrammar(parameters, `tools[${index}].function.parameters`);
  } catch (error) {
    if (isForced || !(error instanceof ApiError)) throw error;
    return jsonObjectGrammar();
  }
}

/** Returns whether a schema has parameters: `{"type":"object"}` alone is an object without properties (contracts decision 12). */
function hasParameters(schema: unknown): boolean {
  return typeof schema === 'object' && schema !== null && Object.keys(schema).some((key) => key !== 'type');
}

/** Returns the grammar of an answer's calls; `begun` is the part of them already written. */
function callsOf(
  tools: readonly { readonly name: string; readonly parameters: Expression }[],
  { open, close, beforeName, name, beforeArguments, afterArguments, between }: CallSpelling,
  many: boolean,
  begun: string,
): Expression {
  const call = (before: string) =>
    alternatives(
      ...tools.map((tool) => {
        const written = name === 'json' ? JSON.stringify(tool.name) : tool.name;
        const head = literal(before + written + beforeArguments);
        return sequence(head, tool.parameters, literal(afterArguments));
      }),
    );
  const more = many && between !== undefined ? repetition(call(between + beforeName), 0, undefined) : emptyText;
  return sequence(call((open + beforeName).slice(begun.length)), more, literal(close));
}

/**
 * Returns a grammar for text that may end anywhere, except that `rest` follows a mark in it: one rule for each length of the mark's
 * beginning at the end of the text so far, like the states of a string search.
 */
function textUntil(mark: string, rest: Expression): Grammar {
  const points = [...mark];
  const state = (matched: number) => (matched === 0 ? 'root' : `mark-${matched}`);
  const rules = new Map<string, Expression>();
  for (let matched = 0; matched < points.length; matched++) {
    const edges = [...new Set(points)].flatMap((point) => {
      const next = longestBeginning(points, [...points.slice(0, matched), point]);
      return next === 0 ? [] : [{ point, next }];
    });
    const astray = complement(codePoints(edges.map(({ point }) => onePoint(point))));
    rules.set(
      state(matched),
      alternatives(
        sequence({ kind: 'characters', set: astray }, rule('root')),
        ...edges.map(({ point, next }) => sequence(literal(point), next === points.length ? rest : rule(state(next)))),
        emptyText,
      ),
    );
  }
  return { root: 'root', rules };
}

/** Returns how much of the mark's beginning is at the end of a text. */
function longestBeginning(mark: readonly string[], text: readonly string[]): number {
  for (let length = Math.min(mark.length, text.length); length > 0; length--) {
    if (mark.slice(0, length).join('') === text.slice(text.length - length).join('')) return length;
  }
  return 0;
}
