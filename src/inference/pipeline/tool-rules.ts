import { ApiError } from '../../platform/errors.ts';
import type { FieldPaths, GenerationRequest, Message, Tool } from '../../generation/request.ts';

/** Checks the rules for tools and tool messages, before any model is asked (specification §4.2, §4.2.2, §7.2). */
export function checkTools(request: GenerationRequest): void {
  const names = new Set<string>();
  request.tools.forEach((tool, index) => {
    checkTool(tool, (part) => request.at.tool(index, part));
    if (names.has(tool.name)) {
      throw new ApiError('duplicate_tool_name', `Two tools are named '${tool.name}'.`, {
        param: request.at.tool(index, 'name'),
      });
    }
    names.add(tool.name);
  });
  const choice = request.toolChoice;
  if (choice?.type === 'function' && !names.has(choice.name)) {
    throw new ApiError(
      'tool_choice_unknown_tool',
      `tool_choice names '${shown(choice.name)}', which is not among the tools.`,
      {
        param: request.at.toolChoiceName,
      },
    );
  }
  // As on other servers of this API: without tools, nothing can be called.
  if (choice?.type === 'required' && request.tools.length === 0) {
    throw new ApiError('unsupported_value', "tool_choice 'required' needs at least one tool.", {
      param: request.at.toolChoice,
    });
  }
  if (request.prompt.type === 'messages') checkToolMessages(request.prompt.messages, request.at);
}

/** Shortens client text before it is repeated. */
const shown = (text: string): string => (text.length > 64 ? `${text.slice(0, 64)}…` : text);

function checkTool(tool: Tool, at: (part: 'type' | 'parameters') => string): void {
  if (tool.type !== 'function') {
    throw new ApiError(
      'unsupported_tool_type',
      `A tool of type '${shown(tool.type)}' is not supported; use 'function'.`,
      { param: at('type') },
    );
  }
  if (tool.parameters !== undefined && tool.parameters !== null && !isObjectSchema(tool.parameters)) {
    throw new ApiError(
      'tool_schema_invalid',
      "The parameters of a tool must be a JSON Schema of type 'object' with 'properties'.",
      {
        param: at('parameters'),
      },
    );
  }
}

/** `{"type":"object"}` alone is an object without properties (contracts decision 12). */
function isObjectSchema(schema: unknown): boolean {
  if (typeof schema !== 'object' || schema === null || Array.isArray(schema)) return false;
  const { type, properties } = schema as { readonly type?: unknown; readonly properties?: unknown };
  if (type !== 'object') return false;
  if (properties === undefined) return Object.keys(schema).length === 1;
  return typeof properties === 'object' && properties !== null && !Array.isArray(properties);
}

/** §4.2.2(4): results are matched by id with calls of preceding assistant messages. */
function checkToolMessages(messages: readonly Message[], at: FieldPaths): void {
  const issued = new Set<string>();
  messages.forEach((message, index) => {
    if (message.role === 'assistant') for (const call of message.toolCalls) issued.add(call.id);
    if (message.role !== 'tool') return;
    const param = at.toolCallId(index);
    if (message.toolCallId === undefined || message.toolCallId === '') {
      throw new ApiError('missing_tool_call_id', 'A tool message needs the tool_call_id of the call that it answers.', {
        param,
      });
    }
    if (!issued.has(message.toolCallId)) {
      throw new ApiError(
        'orphan_tool_message',
        'A tool message answers a call that no preceding assistant message made.',
        { param },
      );
    }
  });
}
