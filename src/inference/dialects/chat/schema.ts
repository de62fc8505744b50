import Type from 'typebox';

import {
  integer,
  logitBias,
  modelId,
  optional,
  responseFormat,
  samplingFields,
  serviceTier,
  tokenLimit,
} from '../common-fields.ts';

/** The body of `POST /v1/chat/completions` (specification §4.2, contracts §1.5). Unknown fields are accepted and ignored (§1). */
export const chatPart = Type.Object({
  type: Type.Enum(['text', 'image_url', 'file', 'input_audio', 'refusal']),
  text: optional(Type.String()),
  refusal: optional(Type.String()),
  image_url: optional(Type.Union([Type.Object({ url: Type.String() }), Type.String()])),
  file: optional(
    Type.Object({
      file_id: optional(Type.String()),
      file_data: optional(Type.String()),
      filename: optional(Type.String()),
    }),
  ),
});

export const chatToolCallSent = Type.Object({
  id: Type.String({ minLength: 1 }),
  type: optional(Type.String()),
  function: Type.Object({ name: Type.String(), arguments: Type.String() }),
});

export const chatMessage = Type.Object({
  role: Type.Enum(['system', 'developer', 'user', 'assistant', 'tool']),
  content: optional(Type.Union([Type.String(), Type.Array(chatPart)])),
  reasoning_content: optional(Type.String()),
  tool_calls: optional(Type.Array(chatToolCallSent)),
  tool_call_id: optional(Type.String()),
});

export const chatTool = Type.Object({
  type: Type.String(),
  function: optional(
    Type.Object({
      name: Type.String({ minLength: 1, maxLength: 256 }),
      description: optional(Type.String()),
      parameters: Type.Optional(Type.Unknown()),
    }),
  ),
});

export const chatRequestSchema = Type.Object({
  model: modelId,
  messages: Type.Array(chatMessage, { minItems: 1 }),
  max_tokens: optional(tokenLimit),
  max_completion_tokens: optional(tokenLimit),
  ...samplingFields,
  n: optional(integer(1, 128)),
  logprobs: optional(Type.Boolean()),
  top_logprobs: optional(integer(0, 20)),
  logit_bias: logitBias,
  stream: optional(Type.Boolean()),
  service_tier: serviceTier,
  stream_options: optional(Type.Object({})),
  tools: optional(Type.Array(chatTool, { maxItems: 1024 })),
  tool_choice: optional(
    Type.Union([
      Type.Enum(['auto', 'none', 'required']),
      Type.Object({ type: Type.Literal('function'), function: Type.Object({ name: Type.String() }) }),
    ]),
  ),
  parallel_tool_calls: optional(Type.Boolean()),
  response_format: responseFormat,
  regex: optional(Type.String()),
  reasoning_effort: optional(Type.String()),
  reasoning: optional(Type.Object({ effort: optional(Type.String()) })),
  thinking: optional(
    Type.Union([
      Type.Boolean(),
      Type.Object({ type: Type.Enum(['enabled', 'disabled']), keep: optional(Type.String()) }),
    ]),
  ),
  enable_thinking: optional(Type.Boolean()),
  preserve_thinking: optional(Type.Boolean()),
  chat_template_kwargs: optional(Type.Object({ enable_thinking: optional(Type.Boolean()) })),
});

export type ChatRequestBody = Type.Static<typeof chatRequestSchema>;
export type ChatMessage = Type.Static<typeof chatMessage>;
