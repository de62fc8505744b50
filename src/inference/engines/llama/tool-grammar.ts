import {
  alternatives,
  checkGrammarSize,
  composeGrammar,
  emptyText,
  literal,
  optional,
  printGbnf,
  repetition,
  characters,
  sequence,
  type Expression,
  type Grammar,
} from '../../constraints/grammar.ts';
import { jsonSchemaGrammar } from '../../constraints/json-schema.ts';
import { jsonObjectGrammar } from '../../constraints/json-text.ts';
import { ApiError } from '../../../platform/errors.ts';
import type { EngineRequest, Tool } from '../../../generation/request.ts';
import { idSlot, type CallFormat } from '../../output-parsers/format.ts';
import { textUntil, writtenArguments } from './argument-grammar.ts';
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
export function* toolGrammar(request: ToolsRequest, format: CallFormat): Generator<void, string | undefined> {
  const { toolChoice: choice } = request;
  const isForced = forcesCalls(request);
  if (!isForced && format.mark === '') return undefined;
  const tools: OfferedTool[] = [];
  for (const tool of offeredTools(request)) {
    if (choice.type === 'function' && tool.name !== choice.name) continue;
    const offered = offeredTool(tool, request.tools.indexOf(tool), format, isForced);
    if (offered === undefined) return undefined;
    tools.push(offered);
    yield;
  }
  if (tools.length === 0) return undefined;
  const many = callsMaxOf(request) > 1;
  const grammar = composeGrammar((embed) => {
    const embedded = tools.map((tool) => ({ ...tool, parameters: embed(tool.parameters) }));
    if (isForced) return callsOf(embedded, format, many, '');
    return embed(textUntil(format.mark, callsOf(embedded, format, many, format.mark), true));
  });
  try {
    checkGrammarSize(grammar, 'tools');
  } catch (error) {
    if (isForced) throw error;
    return undefined;
  }
  return printGbnf(grammar);
}

interface OfferedTool<Parameters = Grammar> {
  readonly name: string;
  readonly parameters: Parameters;
  /** The whole call is a JSON object, although the format writes arguments otherwise: parsers read that in every format. */
  readonly isJson: boolean;
}

/** `undefined`: nothing can be enforced, and need not be. */
function offeredTool(tool: Tool, index: number, format: CallFormat, isForced: boolean): OfferedTool | undefined {
  const { name } = tool;
  const form = format.arguments;
  if (form.type === 'json') return { name, parameters: parametersOf(tool, index, isForced), isJson: false };
  const schema = hasParameters(tool.parameters) ? (tool.parameters as Readonly<Record<string, unknown>>) : {};
  let parameters: Grammar | undefined;
  try {
    parameters = writtenArguments(schema, form, `tools[${index}].function.parameters`, isForced);
  } catch (error) {
    if (isForced || !(error instanceof ApiError)) throw error;
  }
  if (parameters !== undefined) return { name, parameters, isJson: false };
  return isForced ? { name, parameters: parametersOf(tool, index, isForced), isJson: true } : undefined;
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
  tools: readonly OfferedTool<Expression>[],
  format: CallFormat,
  many: boolean,
  begun: string,
): Expression {
  const { open, openCall, closeCall, between, close, mark } = format;
  const opensGroup = open.trim() !== '';
  const call = (before: string, beforeObject: string, skipped: string) =>
    alternatives(
      ...tools.map(({ name, parameters, isJson }) => {
        const [head, tail] = isJson
          ? [`${beforeObject}{"name": ${JSON.stringify(name)}, "arguments": `, `}${closeCall}`]
          : [
              before +
                openCall +
                format.beforeName +
                (format.name === 'json' ? JSON.stringify(name) : name) +
                format.beforeArguments,
              format.afterArguments + closeCall,
            ];
        return sequence(...withIds(head.slice(skipped.length)), parameters, ...endOf(tail));
      }),
    );
  const next = between === undefined ? undefined : call(between, opensGroup ? between : between + mark, '');
  const more = many && next !== undefined ? repetition(next, 0, undefined) : emptyText;
  return sequence(call(open, opensGroup ? open : mark, begun), more, literal(close));
}

/** What follows the arguments. An id there is for the results of earlier calls: a model may leave it out. */
function endOf(text: string): readonly Expression[] {
  const end = text.indexOf('}', text.lastIndexOf(idSlot));
  if (!text.includes(idSlot) || end < 0) return withIds(text);
  return [optional(sequence(...withIds(text.slice(0, end)))), literal(text.slice(end))];
}

/** Ids are free where the format has them. */
const withIds = (text: string): readonly Expression[] =>
  text
    .split(idSlot)
    .flatMap((part, index) =>
      index === 0 ? [literal(part)] : [repetition(idCharacter, 1, idCharactersMax), literal(part)],
    );

const idCharacter = characters('a-z', 'A-Z', '0-9', '_', '-');
const idCharactersMax = 40;
