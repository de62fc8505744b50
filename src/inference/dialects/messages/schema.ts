import Type from 'typebox';

import { integer, modelId, optional, samplingFields, tokenLimit, serviceTier } from '../common-fields.ts';

/**
 * The body of `POST /v1/messages` and of its `count_tokens` (contracts §1.2). Unknown fields are accepted and ignored, so `cache_control`,
 * `metadata`, `context_management` and others are missing here. Which fields a block needs depends on its type: see `content.ts`.
 */
const text = optional(Type.String());

const textBlock = Type.Object({ type: Type.String(), text });

const sourceFields = { type: Type.String(), media_type: text, data: text, url: text, file_id: text };
/** The allowed content of a document: texts and images, but no further documents. */
const pieceBlock = Type.Object({ type: Type.String(), text, source: optional(Type.Object(sourceFields)) });
const source = Type.Object({
  ...sourceFields,
  content: optional(Type.Union([Type.String(), Type.Array(pieceBlock)])),
});

const innerFields = {
  type: Type.String(),
  text,
  // An object for images and documents, a URL for search results.
  source: optional(Type.Union([Type.String(), source])),
  title: text,
  context: text,
  tool_name: text,
};
/** The allowed content of a tool's result. */
const innerBlock = Type.Object({ ...innerFields, content: optional(Type.Array(textBlock)) });

const block = Type.Object({
  ...innerFields,
  thinking: text,
  signature: text,
  data: text,
  id: text,
  name: text,
  input: Type.Optional(Type.Unknown()),
  tool_use_id: text,
  is_error: optional(Type.Boolean()),
  content: optional(Type.Union([Type.String(), Type.Array(innerBlock)])),
});

const message = Type.Object({
  role: Type.Enum(['user', 'assistant', 'system']),
  content: Type.Union([Type.String(), Type.Array(block)]),
});

const outputFormat = Type.Object({ type: Type.String(), schema: Type.Optional(Type.Unknown()) });

const promptFields = {
  model: modelId,
  messages: Type.Array(message, { minItems: 1 }),
  system: optional(Type.Union([Type.String(), Type.Array(textBlock)])),
  tools: optional(
    Type.Array(
      Type.Object({
        type: text,
        name: optional(Type.String({ minLength: 1, maxLength: 256 })),
        description: text,
        input_schema: Type.Optional(Type.Unknown()),
      }),
      { maxItems: 1024 },
    ),
  ),
  tool_choice: optional(
    Type.Object({
      type: Type.Enum(['auto', 'any', 'tool', 'none']),
      name: text,
      disable_parallel_tool_use: optional(Type.Boolean()),
    }),
  ),
  thinking: optional(
    Type.Object({
      type: Type.Enum(['enabled', 'adaptive', 'between_tools', 'disabled']),
      budget_tokens: optional(integer(1024, Number.MAX_VALUE)),
      display: text,
    }),
  ),
  output_config: optional(Type.Object({ effort: text, format: optional(outputFormat) })),
  output_format: optional(outputFormat),
  thread: Type.Optional(Type.Unknown()),
};

const generationFields = {
  temperature: samplingFields.temperature,
  top_p: samplingFields.top_p,
  top_k: samplingFields.top_k,
  stop_sequences: optional(Type.Array(Type.String(), { maxItems: 64 })),
  stream: optional(Type.Boolean()),
};

export const messagesRequestSchema = Type.Object({
  ...promptFields,
  max_tokens: tokenLimit,
  ...generationFields,
  service_tier: serviceTier,
});

export const countRequestSchema = Type.Object(promptFields);

export type MessagesRequestBody = Type.Static<typeof messagesRequestSchema>;
export type CountRequestBody = Type.Static<typeof countRequestSchema>;
export type WireMessage = Type.Static<typeof message>;
export type WireBlock = Type.Static<typeof block>;
export type WireInnerBlock = Type.Static<typeof innerBlock>;
export type WireTextBlock = Type.Static<typeof textBlock>;
export type WireSource = Type.Static<typeof source>;
