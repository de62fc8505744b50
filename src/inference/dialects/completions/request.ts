import { ApiError } from '../../../platform/errors.ts';
import type { Constraint, FieldPaths, GenerationRequest, Prompt, TokenControls } from '../../../generation/request.ts';
import { decodeLogitBias, decodeResponseFormat, decodeSampling, decodeStop, decodeTier } from '../common-fields.ts';
import { bodyCheck, checkFreeForm } from '../validate.ts';
import { completionRequestSchema, promptsMax } from './schema.ts';
import type { CompletionRequestBody } from './schema.ts';

const check = bodyCheck(completionRequestSchema, ['model', 'prompt']);

/** A request with the fields that only text completions have. */
export interface CompletionRequest extends GenerationRequest {
  readonly tokens: TokenControls;
}

/** Decodes the body of `POST /v1/completions` (specification §4.3, contracts §1.1). */
export function decodeCompletionRequest(json: unknown): CompletionRequest {
  const body = check(json);
  refuseUnsupported(body);
  const prompt = decodePrompt(body.prompt);
  const choices = body.n ?? 1;
  if (prompt.prompts.length > promptsMax) {
    throw new ApiError('schema_validation_failed', `'prompt' must hold at most ${promptsMax} prompts.`, {
      param: 'prompt',
    });
  }
  if (prompt.prompts.length * choices > promptsMax) {
    throw new ApiError('unsupported_value', `'n' times the number of prompts must be at most ${promptsMax}.`, {
      param: 'n',
    });
  }
  const form = decodeForm(body);
  return {
    model: body.model,
    stream: body.stream ?? false,
    prompt,
    choices,
    maxTokens: decodeMaxTokens(body),
    sampling: decodeSampling(body),
    stop: decodeStop(body.stop),
    tools: [],
    toolChoice: undefined,
    parallelToolCalls: undefined,
    constraint: form?.constraint,
    effort: undefined,
    tier: decodeTier(body.service_tier),
    preserveThinking: false,
    logprobs: body.logprobs ?? undefined,
    logitBias: decodeLogitBias(body.logit_bias),
    tokens: decodeTokens(body),
    at: pathsOf(form, Array.isArray(body.prompt) && typeof body.prompt[0] === 'number'),
  };
}

/** Refuses known fields that change the meaning of the answer and cannot be honored (contracts §1.0). */
function refuseUnsupported({ suffix, best_of, structured_outputs }: CompletionRequestBody): void {
  const refused = (param: string, message: string): ApiError =>
    new ApiError('unsupported_parameter', message, { param });
  if (suffix !== undefined && suffix !== null && suffix !== '')
    throw refused('suffix', "'suffix' is not supported: this endpoint cannot insert text.");
  if ((best_of ?? 1) > 1)
    throw refused('best_of', "'best_of' above 1 is not supported: ask for 'n' answers and choose.");
  if (structured_outputs?.structural_tag !== undefined && structured_outputs.structural_tag !== null)
    throw refused('structured_outputs.structural_tag', "'structural_tag' is not supported: write a grammar.");
}

type ReadyPrompt = Exclude<Prompt, { readonly type: 'messages' }>;

function decodePrompt(prompt: CompletionRequestBody['prompt']): ReadyPrompt {
  if (typeof prompt === 'string') return { type: 'texts', prompts: [prompt.toWellFormed()] };
  const [first] = prompt;
  if (typeof first === 'string')
    return { type: 'texts', prompts: (prompt as readonly string[]).map((text) => text.toWellFormed()) };
  const isSingle = typeof first === 'number';
  const prompts = isSingle ? [prompt as readonly number[]] : (prompt as readonly (readonly number[])[]);
  for (const [index, ids] of prompts.entries()) {
    const at = ids.findIndex((id) => id < 0);
    if (at >= 0) {
      throw new ApiError('unsupported_value', 'A token id cannot be negative.', {
        param: tokenIdAt(isSingle)(index, at),
      });
    }
  }
  return { type: 'token-ids', prompts };
}

const tokenIdAt =
  (isSingle: boolean) =>
  (prompt: number, index: number): string =>
    isSingle ? `prompt[${index}]` : `prompt[${prompt}][${index}]`;

/** 0 only scores the prompt, which makes sense only if the prompt is echoed. */
function decodeMaxTokens({ max_tokens, echo, min_tokens }: CompletionRequestBody): number | undefined {
  if (max_tokens === 0 && echo !== true) {
    throw new ApiError('schema_validation_failed', "'max_tokens' must be at least 1, or 0 with 'echo'.", {
      param: 'max_tokens',
    });
  }
  if (typeof max_tokens === 'number' && (min_tokens ?? 0) > max_tokens) {
    throw new ApiError('schema_validation_failed', "'min_tokens' must be at most 'max_tokens'.", {
      param: 'min_tokens',
    });
  }
  return max_tokens ?? undefined;
}

const decodeTokens = (body: CompletionRequestBody): TokenControls => ({
  echo: body.echo ?? false,
  returnsIds: body.return_token_ids ?? false,
  namesIds: body.return_tokens_as_token_ids ?? false,
  stopIds: body.stop_token_ids ?? [],
  ignoresEnd: body.ignore_eos ?? false,
  tokensMin: body.min_tokens ?? 0,
  skipsSpecial: body.skip_special_tokens ?? true,
  includesStop: body.include_stop_str_in_output ?? body.no_stop_trim ?? false,
  addsSpecial: body.add_special_tokens ?? true,
});

/** A constraint, and the fields that contain it. */
interface Form {
  readonly constraint: Constraint;
  /** The field that names the kind, the one that holds its text, and their common parent. */
  readonly at: Pick<FieldPaths, 'constraintType' | 'constraintText' | 'constraint'>;
}

/** Returns the one field that constrains the answer's form, if any (contracts §1.1). */
function decodeForm(body: CompletionRequestBody): Form | undefined {
  const forms = [...formsOf(body)];
  const [first, second] = forms;
  if (first !== undefined && second !== undefined) {
    throw new ApiError(
      'unsupported_parameter',
      `An answer can have one form: '${first.at.constraint}' or '${second.at.constraint}'.`,
      { param: second.at.constraint },
    );
  }
  return first;
}

function* formsOf({ ebnf, regex, json_schema, ...body }: CompletionRequestBody): Generator<Form> {
  if (isThere(ebnf)) yield formAt('ebnf', { type: 'grammar', text: ebnf.toWellFormed() });
  if (isThere(regex)) yield formAt('regex', { type: 'regex', pattern: regex.toWellFormed() });
  if (isThere(json_schema)) yield formAt('json_schema', schemaOf(parsed(json_schema, 'json_schema'), 'json_schema'));
  const format = decodeResponseFormat(body.response_format);
  if (format !== undefined) {
    const at = { constraintType: 'response_format.type', constraintText: format.textAt, constraint: 'response_format' };
    yield { constraint: format.constraint, at };
  }
  if (!isThere(body.structured_outputs)) return;
  const { json, json_object, regex: pattern, choice, grammar } = body.structured_outputs;
  if (isThere(json)) {
    const at = 'structured_outputs.json';
    yield formAt(at, schemaOf(typeof json === 'string' ? parsed(json, at) : json, at));
  }
  if (json_object === true) yield formAt('structured_outputs.json_object', { type: 'json-object' });
  if (isThere(pattern)) yield formAt('structured_outputs.regex', { type: 'regex', pattern: pattern.toWellFormed() });
  if (isThere(choice)) yield formAt('structured_outputs.choice', { type: 'grammar', text: oneOf(choice) });
  if (isThere(grammar)) yield formAt('structured_outputs.grammar', { type: 'grammar', text: grammar.toWellFormed() });
}

const isThere = <Value>(value: Value | undefined | null): value is Value => value !== undefined && value !== null;

const formAt = (at: string, constraint: Constraint): Form => ({
  constraint,
  at: { constraintType: at, constraintText: at, constraint: at },
});

function schemaOf(schema: unknown, at: string): Constraint {
  checkFreeForm(schema, at);
  return { type: 'json-schema', schema, name: undefined };
}

/** Parses a JSON Schema given as text, as SGLang accepts it. An invalid one is treated like an invalid grammar (contracts decision 13). */
function parsed(text: string, param: string): unknown {
  let schema: unknown;
  try {
    schema = JSON.parse(text);
  } catch {
    throw new ApiError('unsupported_value', `'${param}' is not JSON.`, { param });
  }
  if (typeof schema === 'boolean' || (typeof schema === 'object' && schema !== null && !Array.isArray(schema)))
    return schema;
  throw new ApiError('unsupported_value', `'${param}' must be a JSON Schema: an object, true or false.`, { param });
}

/** Returns a grammar that accepts exactly these texts. */
const oneOf = (texts: readonly string[]): string =>
  `root ::= ${texts.map((text) => `"${escaped(text.toWellFormed())}"`).join(' | ')}`;

const escaped = (text: string): string =>
  text.replace(/["\\\u0000-\u001f\u007f]/g, (character) =>
    character === '"' || character === '\\'
      ? `\\${character}`
      : `\\x${character.charCodeAt(0).toString(16).padStart(2, '0').toUpperCase()}`,
  );

/** This API has no tools, so no error names these fields. */
const toolPaths = {
  toolChoice: 'tool_choice',
  toolChoiceName: 'tool_choice',
  tool: (index: number, part: string): string => `tools[${index}].${part}`,
  toolCallId: (): string => 'prompt',
};

const pathsOf = (form: Form | undefined, isSingleListOfIds: boolean): FieldPaths => ({
  ...toolPaths,
  ...(form?.at ?? formAt('response_format', { type: 'json-object' }).at),
  prompt: 'prompt',
  tokenId: tokenIdAt(isSingleListOfIds),
});
