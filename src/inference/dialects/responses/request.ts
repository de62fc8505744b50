import { ApiError } from '../../../platform/errors.ts';
import { efforts } from '../../../generation/request.ts';
import type {
  Constraint,
  FieldPaths,
  GenerationRequest,
  Message,
  Tool,
  ToolChoice,
} from '../../../generation/request.ts';
import { decodeSampling, decodeTier, decodeStop, present } from '../common-fields.ts';
import type { DecodeContext, Decoded } from '../dialect.ts';
import { bodyCheck, checkFreeForm, shapeCheck } from '../validate.ts';
import type { Asked } from './asked.ts';
import { decodeInput } from './input.ts';
import { allowedToolsSchema, functionChoiceSchema, functionToolSchema, responsesRequestSchema } from './schema.ts';
import type { ResponsesRequestBody } from './schema.ts';

const check = bodyCheck(responsesRequestSchema, ['model', 'input']);

/** Decodes the body of `POST /v1/responses`, and what its answer echoes (contracts §1.3). */
export function decodeResponsesRequest(
  json: unknown,
  { items, isZeroRetention = false }: Pick<DecodeContext, 'items' | 'isZeroRetention'>,
): Decoded<Asked> {
  const body = check(json);
  refuseUnsupported(body);
  checkMetadata(body.metadata);
  const input = decodeInput(body.input, items);
  const instructions: readonly Message[] = body.instructions
    ? [{ role: 'system', content: [{ type: 'text', text: body.instructions.toWellFormed() }] }]
    : [];
  const tools = decodeTools(body.tools ?? []);
  const choice = decodeToolChoice(body.tool_choice, tools);
  const isKept = keptOf(body, isZeroRetention);
  const includesLogprobs = body.include?.includes('message.output_text.logprobs') ?? false;
  const request: GenerationRequest = {
    model: body.model,
    stream: body.stream ?? false,
    prompt: { type: 'messages', messages: [...instructions, ...input.messages] },
    sendsSystem: typeof body.instructions === 'string',
    choices: 1,
    maxTokens: body.max_output_tokens ?? undefined,
    sampling: decodeSampling(body),
    stop: decodeStop(body.stop),
    tools: choice.offered.map(({ tool }) => tool),
    toolChoice: choice.choice,
    parallelToolCalls: body.parallel_tool_calls ?? undefined,
    constraint: decodeConstraint(body.text?.format),
    effort:
      typeof body.reasoning?.effort === 'string'
        ? { type: 'tier', value: body.reasoning.effort, at: 'reasoning.effort' }
        : undefined,
    // §4.2.5(7): off unless the client enables it, with the switch of chat completions or this API's own.
    tier: decodeTier(body.service_tier),
    preserveThinking: body.preserve_thinking === true || body.reasoning?.context === 'all_turns',
    logprobs: includesLogprobs ? (body.top_logprobs ?? 0) : undefined,
    logitBias: undefined,
    at: pathsOf(
      choice.offered.map(({ index }) => index),
      (message) => input.itemOf[message - instructions.length] ?? 0,
    ),
  };
  return { request, format: askedOf(body, includesLogprobs, isKept), references: input.references };
}

/** The items of an answer with `store: true` can be referenced later, which is impossible with zero data retention. */
function keptOf({ store }: ResponsesRequestBody, isZeroRetention: boolean): boolean {
  if (store === true && isZeroRetention)
    throw new ApiError('unsupported_parameter', "'store' cannot be true with zero data retention. Leave it out.", {
      param: 'store',
    });
  return store ?? !isZeroRetention;
}

function pathsOf(toolIndexes: readonly number[], itemOf: (message: number) => number): FieldPaths {
  return {
    prompt: 'input',
    toolChoice: 'tool_choice',
    toolChoiceName: 'tool_choice.name',
    constraintType: 'text.format.type',
    constraintText: 'text.format.schema',
    constraint: 'text.format',
    logprobs: 'include',
    tool: (index, part) => `tools[${toolIndexes[index] ?? index}].${part}`,
    toolCallId: (message) => `input[${itemOf(message)}].call_id`,
  };
}

/** Contracts §1.0: refuses fields that would change the meaning of the answer and cannot be honored. */
function refuseUnsupported(body: ResponsesRequestBody): void {
  const unsupported = (param: string, remedy: string): ApiError =>
    new ApiError('unsupported_parameter', `'${param}' is not supported. ${remedy}`, { param });
  const isSet = (value: unknown): boolean => value !== undefined && value !== null;
  if (isSet(body.previous_response_id))
    throw unsupported('previous_response_id', "Send the whole conversation in 'input'.");
  if (isSet(body.conversation)) throw unsupported('conversation', "Send the whole conversation in 'input'.");
  if (body.background === true)
    throw unsupported('background', 'Leave it out, and stream the answer if it takes long.');
  if (isSet(body.prompt)) throw unsupported('prompt', "Send its text in 'instructions' or 'input'.");
}

const metadataPairsMax = 16;
const metadataNameMax = 64;

function checkMetadata(metadata: ResponsesRequestBody['metadata']): void {
  const names = Object.keys(metadata ?? {});
  const fault =
    names.length > metadataPairsMax
      ? `must have at most ${metadataPairsMax} pairs`
      : names.some((name) => name.length > metadataNameMax)
        ? `must have names of at most ${metadataNameMax} characters`
        : undefined;
  if (fault !== undefined)
    throw new ApiError('schema_validation_failed', `'metadata' ${fault}.`, { param: 'metadata' });
}

type ToolsInBody = NonNullable<ResponsesRequestBody['tools']>;

/** A tool that can be offered, and its position in the body. */
interface Offered {
  readonly index: number;
  readonly tool: Tool;
}

const checkFunctionTool = shapeCheck(functionToolSchema);

/** Contracts decision 3: functions are offered; all other tools are accepted and echoed. */
function decodeTools(tools: ToolsInBody): readonly Offered[] {
  return tools.flatMap((tool, index): readonly Offered[] => {
    checkFreeForm(tool, `tools[${index}]`);
    if (tool.type !== 'function') return [];
    const { name, description, parameters } = checkFunctionTool(tool, `tools[${index}]`);
    return [{ index, tool: { type: 'function', name, description: description ?? undefined, parameters } }];
  });
}

const checkFunctionChoice = shapeCheck(functionChoiceSchema);
const checkAllowedTools = shapeCheck(allowedToolsSchema);

/** `allowed_tools` narrows the offered tools: the model cannot call what it does not see. */
function decodeToolChoice(
  choice: ResponsesRequestBody['tool_choice'],
  tools: readonly Offered[],
): { readonly choice: ToolChoice | undefined; readonly offered: readonly Offered[] } {
  if (choice === undefined || choice === null) return { choice: undefined, offered: tools };
  if (typeof choice === 'string') return { choice: { type: choice }, offered: tools };
  checkFreeForm(choice, 'tool_choice');
  switch (choice.type) {
    case 'function': {
      const { name } = checkFunctionChoice(choice, 'tool_choice');
      return { choice: { type: 'function', name }, offered: tools };
    }
    case 'allowed_tools': {
      const allowed = checkAllowedTools(choice, 'tool_choice');
      const names = new Set<string>();
      allowed.tools.forEach(({ type, name }, index) => {
        if (type !== 'function') return;
        if (!tools.some(({ tool }) => tool.name === name)) {
          throw new ApiError('tool_choice_unknown_tool', 'tool_choice allows a function that is not among the tools.', {
            param: `tool_choice.tools[${index}].name`,
          });
        }
        names.add(name ?? '');
      });
      return { choice: { type: allowed.mode }, offered: tools.filter(({ tool }) => names.has(tool.name)) };
    }
    default:
      throw new ApiError('unsupported_parameter', 'tool_choice names a tool that is not offered to the model.', {
        param: 'tool_choice',
      });
  }
}

type FormatInBody = NonNullable<ResponsesRequestBody['text']>['format'];

function decodeConstraint(format: FormatInBody): Constraint | undefined {
  switch (format?.type) {
    case undefined:
    case 'text':
      return undefined;
    case 'json_object':
      return { type: 'json-object' };
    case 'json_schema': {
      const schema = present(format?.schema, 'text.format.schema');
      checkFreeForm(schema, 'text.format.schema');
      return { type: 'json-schema', schema, name: format?.name?.toWellFormed() };
    }
    default:
      throw new ApiError(
        'unsupported_response_format',
        "'text.format.type' must be one of text, json_object, json_schema.",
        { param: 'text.format.type' },
      );
  }
}

function askedOf(body: ResponsesRequestBody, includesLogprobs: boolean, isKept: boolean): Asked {
  return {
    isKept,
    includesLogprobs,
    includesEncrypted: body.include?.includes('reasoning.encrypted_content') ?? false,
    echo: {
      instructions: body.instructions ?? null,
      max_output_tokens: body.max_output_tokens ?? null,
      max_tool_calls: body.max_tool_calls ?? null,
      parallel_tool_calls: body.parallel_tool_calls ?? true,
      previous_response_id: null,
      prompt_cache_key: body.prompt_cache_key ?? null,
      reasoning: { effort: effortOf(body.reasoning?.effort), summary: body.reasoning?.summary ?? null },
      safety_identifier: body.safety_identifier ?? null,
      service_tier: 'default',
      store: isKept,
      background: false,
      temperature: body.temperature ?? 1,
      top_p: body.top_p ?? 1,
      presence_penalty: body.presence_penalty ?? 0,
      frequency_penalty: body.frequency_penalty ?? 0,
      top_logprobs: body.top_logprobs ?? 0,
      text: textOf(body.text),
      tool_choice: body.tool_choice ?? 'auto',
      tools: (body.tools ?? []).map(toolOf),
      truncation: body.truncation ?? 'disabled',
      metadata: body.metadata ?? {},
      // Published as a string that is never null (contracts §1.3).
      ...(typeof body.user === 'string' ? { user: body.user } : {}),
    },
  };
}

/** §4.2.5(3): an effort that is not a tier switches reasoning off. */
function effortOf(effort: string | null | undefined): string | null {
  if (effort === undefined || effort === null) return null;
  return (efforts as readonly string[]).includes(effort) ? effort : 'none';
}

const verbosities: readonly (string | null | undefined)[] = ['low', 'medium', 'high'];

function textOf(text: ResponsesRequestBody['text']) {
  const format = text?.format;
  return {
    format:
      format?.type === 'json_schema'
        ? {
            type: 'json_schema',
            name: format.name ?? 'response',
            ...(typeof format.description === 'string' ? { description: format.description } : {}),
            schema: format.schema,
            strict: format.strict ?? null,
          }
        : { type: format?.type ?? 'text' },
    ...(verbosities.includes(text?.verbosity) ? { verbosity: text?.verbosity } : {}),
  };
}

function toolOf(tool: ToolsInBody[number]): unknown {
  if (tool.type !== 'function') return tool;
  const { name, description, parameters, strict } = tool as ToolsInBody[number] & Readonly<Record<string, unknown>>;
  return {
    type: 'function',
    name,
    description: description ?? null,
    parameters: parameters ?? null,
    strict: strict ?? null,
  };
}
