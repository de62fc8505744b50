import { ApiError } from '../../../platform/errors.ts';
import type {
  Constraint,
  FieldPaths,
  GenerationRequest,
  RequestedEffort,
  Tool,
  ToolChoice,
} from '../../../generation/request.ts';
import { decodeSampling, decodeStop, present } from '../common-fields.ts';
import { bodyCheck, checkFreeForm } from '../validate.ts';
import { decodeConversation } from './conversation.ts';
import { countRequestSchema, messagesRequestSchema } from './schema.ts';
import type { CountRequestBody, MessagesRequestBody } from './schema.ts';

const checkMessages = bodyCheck(messagesRequestSchema, ['model', 'messages', 'max_tokens']);
const checkCount = bodyCheck(countRequestSchema, ['model', 'messages']);

/** Decodes the body of `POST /v1/messages` (specification §4.4, contracts §1.2). */
export function decodeMessagesRequest(json: unknown): GenerationRequest {
  const body = checkMessages(json);
  return decode(body, {
    stream: body.stream ?? false,
    maxTokens: body.max_tokens,
    sampling: decodeSampling(body),
    stop: decodeStop(body.stop_sequences),
    // Only `auto` may use what the key has beyond the standard.
    tier: body.service_tier === 'standard_only' ? 'default' : undefined,
  });
}

/** Decodes the body of `POST /v1/messages/count_tokens` into the request whose input is counted. */
export function decodeCountRequest(json: unknown): GenerationRequest {
  return decode(checkCount(json), {
    stream: false,
    maxTokens: undefined,
    sampling: decodeSampling({}),
    stop: [],
    tier: undefined,
  });
}

/** Whether thinking is reported without its text (contracts §1.2, `display`). */
export const omitsThinking = (json: unknown): boolean =>
  (json as Partial<MessagesRequestBody>).thinking?.display === 'omitted';

/** Fields that only a generating request has. */
type Generating = Pick<GenerationRequest, 'stream' | 'maxTokens' | 'sampling' | 'stop' | 'tier'>;

/** Decodes the fields of both endpoints. Each field by name: spreading such a large object takes 10 µs, everything else here 1. */
function decode(body: CountRequestBody, { stream, maxTokens, sampling, stop, tier }: Generating): GenerationRequest {
  refuseThread(body.thread);
  const { messages, resultPaths } = decodeConversation(body);
  const { tools, indexes, serverTools } = decodeTools(body.tools ?? []);
  return {
    model: body.model,
    stream,
    prompt: { type: 'messages', messages },
    sendsSystem: body.system !== undefined && body.system !== null,
    choices: 1,
    maxTokens,
    sampling,
    stop,
    tools,
    toolChoice: decodeToolChoice(body.tool_choice, tools, serverTools),
    parallelToolCalls: body.tool_choice?.disable_parallel_tool_use === true ? false : undefined,
    constraint: decodeConstraint(body),
    effort: decodeEffort(body),
    tier,
    // Thinking that comes back is used unless thinking is switched off: if the request does not say, the model may think by default. The
    // card says whether the model accepts thinking from earlier turns, and only thinking that is used is checked.
    preserveThinking: body.thinking?.type !== 'disabled',
    logprobs: undefined,
    logitBias: undefined,
    at: {
      prompt: 'messages',
      toolChoice: 'tool_choice',
      toolChoiceName: 'tool_choice.name',
      stop: 'stop_sequences',
      ...constraintPaths(body),
      tool: (index, part) => `tools[${indexes[index] ?? index}].${toolFields[part]}`,
      toolCallId: (message) => resultPaths.get(message) ?? 'messages',
    },
  };
}

const toolFields = { type: 'type', name: 'name', parameters: 'input_schema' };

/** Message threads are stored on a server; after this error text the vendor's client sends the whole history (contracts §0.6). */
function refuseThread(thread: unknown): void {
  if (thread === undefined || thread === null) return;
  throw new ApiError(
    'unsupported_parameter',
    "Message threads are not kept here: send the whole history, and no 'thread'.",
    {
      param: 'thread',
      extra: { details: { error_code: 'thread_unsupported_request', unsupported: ['thread'] } },
    },
  );
}

interface DecodedTools {
  readonly tools: readonly Tool[];
  /** Their indexes in the body. */
  readonly indexes: readonly number[];
  /** Names of tools that the vendor's own service would run. */
  readonly serverTools: ReadonlySet<string>;
}

/** Tools with a vendor-specific type run on the vendor's servers: they are accepted and not offered (contracts decision 3). */
function decodeTools(all: NonNullable<CountRequestBody['tools']>): DecodedTools {
  const tools: Tool[] = [];
  const indexes: number[] = [];
  const serverTools = new Set<string>();
  all.forEach((tool, index) => {
    if (tool.type !== undefined && tool.type !== null && tool.type !== 'custom') {
      serverTools.add(tool.name ?? '');
      return;
    }
    const name = present(tool.name, `tools[${index}].name`).toWellFormed();
    const schema = present(tool.input_schema, `tools[${index}].input_schema`);
    checkFreeForm(schema, `tools[${index}].input_schema`);
    const description = tool.description?.toWellFormed();
    tools.push({ type: 'function', name, description, parameters: withProperties(schema) });
    indexes.push(index);
  });
  return { tools, indexes, serverTools };
}

/** In this API `type: object` is all that a tool's schema needs. */
function withProperties(schema: unknown): unknown {
  if (typeof schema !== 'object' || schema === null || Array.isArray(schema)) return schema;
  const { type, properties } = schema as { readonly type?: unknown; readonly properties?: unknown };
  return type === 'object' && (properties === undefined || properties === null)
    ? { ...schema, properties: {} }
    : schema;
}

/** A choice that can only refer to tools that are not offered is ignored: the answer is an ordinary one (contracts §1.2, `tools[]`). */
function decodeToolChoice(
  choice: CountRequestBody['tool_choice'],
  tools: readonly Tool[],
  serverTools: ReadonlySet<string>,
): ToolChoice | undefined {
  switch (choice?.type) {
    case undefined:
    case 'auto':
      return undefined;
    case 'none':
      return { type: 'none' };
    case 'any':
      return tools.length === 0 && serverTools.size > 0 ? undefined : { type: 'required' };
    case 'tool': {
      const name = present(choice.name, 'tool_choice.name').toWellFormed();
      return serverTools.has(name) && !tools.some((tool) => tool.name === name)
        ? undefined
        : { type: 'function', name };
    }
  }
}

/** `output_format` is the former name of `output_config.format`. */
const formatOf = (body: CountRequestBody) => body.output_config?.format ?? body.output_format ?? undefined;

function decodeConstraint(body: CountRequestBody): Constraint | undefined {
  const format = formatOf(body);
  if (format === undefined) return undefined;
  const { constraint, constraintType, constraintText } = constraintPaths(body);
  if (format.type !== 'json_schema') {
    throw new ApiError('unsupported_response_format', `'${constraint}.type' must be json_schema.`, {
      param: constraintType,
    });
  }
  const schema = present(format.schema, constraintText);
  if (typeof schema !== 'boolean' && (typeof schema !== 'object' || Array.isArray(schema))) {
    throw new ApiError('schema_validation_failed', `'${constraintText}' must be a JSON Schema.`, {
      param: constraintText,
    });
  }
  checkFreeForm(schema, constraintText);
  return { type: 'json-schema', schema, name: undefined };
}

function constraintPaths(body: CountRequestBody): Pick<FieldPaths, 'constraint' | 'constraintType' | 'constraintText'> {
  const isOlder = !body.output_config?.format && body.output_format !== undefined;
  const constraint = isOlder ? 'output_format' : 'output_config.format';
  return { constraint, constraintType: `${constraint}.type`, constraintText: `${constraint}.schema` };
}

/** Thinking that is switched off stays off; otherwise the effort sets the amount, and without one thinking is just on. */
function decodeEffort({ thinking, output_config: config }: CountRequestBody): RequestedEffort | undefined {
  const isOff = thinking?.type === 'disabled';
  if (!isOff && typeof config?.effort === 'string')
    return { type: 'tier', value: config.effort, at: 'output_config.effort' };
  return thinking ? { type: 'switch', on: !isOff, at: 'thinking.type' } : undefined;
}
