import Type from 'typebox';

import {
  integer,
  jsonSchema,
  mapOf,
  modelId,
  optional,
  samplingFields,
  serviceTier,
  tokenLimit,
} from '../common-fields.ts';

/**
 * The body of `POST /v1/responses` (contracts §1.3). Unknown fields are accepted and ignored. Items of `input` and parts of their content
 * have a schema per kind, checked one by one: only the value itself shows its kind, and skipped kinds may have any shape.
 */
/** The remaining ones do not belong to this API, but are honored as in chat completions. */
const { temperature, top_p, ...furtherSamplingFields } = samplingFields;

/** The fields of all kinds. */
const anyItem = Type.Object({ type: optional(Type.String()), id: optional(Type.String()) });
const anyPart = Type.Object({ type: Type.String() });

export const responsesRequestSchema = Type.Object({
  model: modelId,
  input: Type.Union([Type.String(), Type.Array(anyItem, { minItems: 1 })]),
  instructions: optional(Type.String()),
  stream: optional(Type.Boolean()),
  service_tier: serviceTier,
  stream_options: optional(Type.Object({})),
  store: optional(Type.Boolean()),
  max_output_tokens: optional(tokenLimit),
  max_tool_calls: optional(integer(0, Number.MAX_SAFE_INTEGER)),
  temperature,
  top_p,
  top_logprobs: optional(integer(0, 20)),
  ...furtherSamplingFields,
  preserve_thinking: optional(Type.Boolean()),
  tools: optional(Type.Array(Type.Object({ type: Type.String() }), { maxItems: 1024 })),
  tool_choice: optional(
    Type.Union([Type.Enum(['auto', 'none', 'required']), Type.Object({ type: Type.String({ maxLength: 64 }) })]),
  ),
  parallel_tool_calls: optional(Type.Boolean()),
  text: optional(
    Type.Object({
      format: optional(
        Type.Object({
          type: Type.String(),
          name: optional(Type.String()),
          description: optional(Type.String()),
          schema: optional(jsonSchema),
          strict: optional(Type.Boolean()),
        }),
      ),
      verbosity: optional(Type.String()),
    }),
  ),
  reasoning: optional(
    Type.Object({
      effort: optional(Type.String()),
      summary: optional(Type.Enum(['auto', 'concise', 'detailed'])),
      context: optional(Type.String()),
    }),
  ),
  include: optional(Type.Array(Type.String(), { maxItems: 64 })),
  truncation: optional(Type.Enum(['auto', 'disabled'])),
  metadata: optional(mapOf(Type.String({ maxLength: 512 }))),
  prompt_cache_key: optional(Type.String()),
  safety_identifier: optional(Type.String()),
  user: optional(Type.String()),
  background: optional(Type.Boolean()),
  previous_response_id: Type.Optional(Type.Unknown()),
  conversation: Type.Optional(Type.Unknown()),
  prompt: Type.Optional(Type.Unknown()),
});

export const messageSchema = Type.Object({
  role: Type.Enum(['user', 'assistant', 'system', 'developer']),
  content: optional(Type.Union([Type.String(), Type.Array(anyPart)])),
});

export const functionCallSchema = Type.Object({
  call_id: Type.String({ minLength: 1 }),
  name: Type.String(),
  arguments: Type.String(),
});

export const customToolCallSchema = Type.Object({
  call_id: Type.String({ minLength: 1 }),
  name: Type.String(),
  input: Type.String(),
});

export const callOutputSchema = Type.Object({
  // §4.2.2(4): a result without an id has its own error.
  call_id: optional(Type.String()),
  output: optional(Type.Union([Type.String(), Type.Array(anyPart)])),
});

const texts = Type.Array(Type.Object({ text: Type.String() }));

export const reasoningSchema = Type.Object({
  summary: optional(texts),
  content: optional(texts),
  encrypted_content: optional(Type.String()),
});

export const itemReferenceSchema = Type.Object({ id: Type.String({ minLength: 1, maxLength: 256 }) });

export const textPartSchema = Type.Object({ text: Type.String() });
export const refusalPartSchema = Type.Object({ refusal: Type.String() });
export const imagePartSchema = Type.Object({
  image_url: optional(Type.Union([Type.String(), Type.Object({ url: Type.String() })])),
  file_id: optional(Type.String()),
});
export const filePartSchema = Type.Object({
  file_id: optional(Type.String()),
  file_data: optional(Type.String()),
  file_url: optional(Type.String()),
  filename: optional(Type.String()),
});

export const functionToolSchema = Type.Object({
  name: Type.String({ minLength: 1, maxLength: 256 }),
  description: optional(Type.String()),
  parameters: Type.Optional(Type.Unknown()),
  strict: optional(Type.Boolean()),
});

export const functionChoiceSchema = Type.Object({ name: Type.String() });
export const allowedToolsSchema = Type.Object({
  mode: Type.Enum(['auto', 'required']),
  tools: Type.Array(Type.Object({ type: Type.String(), name: optional(Type.String()) }), { maxItems: 1024 }),
});

export type ResponsesRequestBody = Type.Static<typeof responsesRequestSchema>;
