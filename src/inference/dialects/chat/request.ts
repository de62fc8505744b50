import { ApiError } from '../../../platform/errors.ts';
import type {
  Constraint,
  FieldPaths,
  GenerationRequest,
  Message,
  Part,
  RequestedEffort,
  Tool,
  ToolChoice,
} from '../../../generation/request.ts';
import {
  decodeLogitBias,
  decodeResponseFormat,
  decodeSampling,
  decodeStop,
  decodeTier,
  present,
} from '../common-fields.ts';
import { bodyCheck, checkFreeForm } from '../validate.ts';
import { chatRequestSchema } from './schema.ts';
import type { ChatMessage, ChatRequestBody } from './schema.ts';

const check = bodyCheck(chatRequestSchema, ['model', 'messages']);

/** Decodes the body of `POST /v1/chat/completions` (specification §4.2, contracts §1.5). */
export function decodeChatRequest(json: unknown): GenerationRequest {
  const body = check(json);
  return {
    model: body.model,
    stream: body.stream ?? false,
    prompt: { type: 'messages', messages: body.messages.map(decodeMessage) },
    choices: body.n ?? 1,
    // §4.2: if both are sent, max_tokens wins.
    maxTokens: body.max_tokens ?? body.max_completion_tokens ?? undefined,
    sampling: decodeSampling(body),
    stop: decodeStop(body.stop),
    tools: (body.tools ?? []).map(decodeTool),
    toolChoice: decodeToolChoice(body.tool_choice),
    parallelToolCalls: body.parallel_tool_calls ?? undefined,
    constraint: decodeConstraint(body),
    effort: decodeEffort(body),
    tier: decodeTier(body.service_tier),
    preserveThinking: decodePreserveThinking(body),
    logprobs: body.logprobs === true ? (body.top_logprobs ?? 0) : undefined,
    logitBias: decodeLogitBias(body.logit_bias),
    at: body.response_format?.type === 'grammar' ? grammarPaths : typeof body.regex === 'string' ? regexPaths : paths,
  };
}

const toolFields = { type: 'type', name: 'function.name', parameters: 'function.parameters' };

const paths: FieldPaths = {
  prompt: 'messages',
  toolChoice: 'tool_choice',
  toolChoiceName: 'tool_choice.function.name',
  constraintType: 'response_format.type',
  constraintText: 'response_format.json_schema.schema',
  constraint: 'response_format',
  tool: (index, part) => `tools[${index}].${toolFields[part]}`,
  toolCallId: (message) => `messages[${message}].tool_call_id`,
};
const grammarPaths: FieldPaths = { ...paths, constraintText: 'response_format.grammar' };
const regexPaths: FieldPaths = { ...paths, constraintType: 'regex', constraintText: 'regex', constraint: 'regex' };

function decodeMessage(message: ChatMessage, index: number): Message {
  const content = decodeContent(message.content, `messages[${index}].content`);
  switch (message.role) {
    case 'system':
    case 'developer':
      return { role: 'system', content };
    case 'user':
      return { role: 'user', content };
    case 'assistant':
      return {
        role: 'assistant',
        content,
        reasoning: message.reasoning_content
          ? [{ text: message.reasoning_content.toWellFormed(), signature: undefined }]
          : [],
        toolCalls: (message.tool_calls ?? []).map((call) => ({
          id: call.id.toWellFormed(),
          name: call.function.name.toWellFormed(),
          arguments: call.function.arguments.toWellFormed(),
        })),
      };
    case 'tool':
      // §4.2.2(3): content null is an empty result. A missing id is checked with the other tool rules, §4.2.2(4).
      return { role: 'tool', toolCallId: message.tool_call_id?.toWellFormed(), content };
  }
}

function decodeContent(content: ChatMessage['content'], at: string): readonly Part[] {
  if (content === undefined || content === null) return [];
  if (typeof content === 'string') return content === '' ? [] : [{ type: 'text', text: content.toWellFormed() }];
  return content.map((part, index): Part => {
    const path = `${at}[${index}]`;
    switch (part.type) {
      case 'text':
        return { type: 'text', text: present(part.text, `${path}.text`).toWellFormed() };
      case 'refusal':
        return { type: 'text', text: present(part.refusal, `${path}.refusal`).toWellFormed() };
      case 'image_url': {
        const image = present(part.image_url, `${path}.image_url`);
        return typeof image === 'string'
          ? { type: 'image-url', url: image, at: `${path}.image_url` }
          : { type: 'image-url', url: image.url, at: `${path}.image_url.url` };
      }
      case 'file': {
        const file = present(part.file, `${path}.file`);
        return {
          type: 'file',
          fileId: file.file_id ?? undefined,
          data: file.file_data ?? undefined,
          filename: file.filename ?? undefined,
          at: `${path}.file${typeof file.file_id === 'string' ? '.file_id' : typeof file.file_data === 'string' ? '.file_data' : ''}`,
        };
      }
      case 'input_audio':
        throw new ApiError('unsupported_value', 'Audio input is not supported.', { param: `${path}.type` });
    }
  });
}

function decodeTool(tool: NonNullable<ChatRequestBody['tools']>[number], index: number): Tool {
  if (tool.type === 'function') present(tool.function, `tools[${index}].function`);
  checkFreeForm(tool.function?.parameters, `tools[${index}].function.parameters`);
  return {
    type: tool.type,
    name: tool.function?.name.toWellFormed() ?? '',
    description: tool.function?.description?.toWellFormed() ?? undefined,
    parameters: tool.function?.parameters,
  };
}

function decodeToolChoice(choice: ChatRequestBody['tool_choice']): ToolChoice | undefined {
  if (choice === undefined || choice === null) return undefined;
  return typeof choice === 'string'
    ? { type: choice }
    : { type: 'function', name: choice.function.name.toWellFormed() };
}

function decodeConstraint(body: ChatRequestBody): Constraint | undefined {
  const format = body.response_format;
  if (format && format.type !== 'text') {
    if (typeof body.regex === 'string') {
      throw new ApiError('unsupported_parameter', "An answer can have one form: 'regex' or 'response_format'.", {
        param: 'regex',
      });
    }
    return decodeResponseFormat(format)?.constraint;
  }
  return body.regex === undefined || body.regex === null
    ? undefined
    : { type: 'regex', pattern: body.regex.toWellFormed() };
}

/** §4.2.5(2); if controls disagree, the first in this order wins (contracts decision 22). */
function decodeEffort(body: ChatRequestBody): RequestedEffort | undefined {
  if (typeof body.reasoning_effort === 'string')
    return { type: 'tier', value: body.reasoning_effort, at: 'reasoning_effort' };
  if (typeof body.reasoning?.effort === 'string')
    return { type: 'tier', value: body.reasoning.effort, at: 'reasoning.effort' };
  const { thinking } = body;
  if (typeof thinking === 'boolean') return { type: 'switch', on: thinking, at: 'thinking' };
  if (thinking) return { type: 'switch', on: thinking.type === 'enabled', at: 'thinking.type' };
  if (typeof body.enable_thinking === 'boolean')
    return { type: 'switch', on: body.enable_thinking, at: 'enable_thinking' };
  const inTemplate = body.chat_template_kwargs?.enable_thinking;
  return typeof inTemplate === 'boolean'
    ? { type: 'switch', on: inTemplate, at: 'chat_template_kwargs.enable_thinking' }
    : undefined;
}

/** §4.2.5(7). */
const decodePreserveThinking = ({ preserve_thinking, thinking }: ChatRequestBody): boolean =>
  preserve_thinking === true ||
  (typeof thinking === 'object' && thinking?.type === 'enabled' && thinking.keep === 'all');
