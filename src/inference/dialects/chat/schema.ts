import Type from 'typebox';

/**
 * The body of `POST /v1/chat/completions` (specification §4.2, contracts §1.5). Unknown fields are accepted and ignored
 * (§1); an optional field that is null counts as absent, as clients expect of this wire.
 */
const optional = <Schema extends Type.TSchema>(schema: Schema) => Type.Optional(Type.Union([schema, Type.Null()]));

const integer = (minimum: number, maximum: number) => Type.Integer({ minimum, maximum });
const number = (minimum: number, maximum: number) => Type.Number({ minimum, maximum });
/** §4.2.1(3): a limit beyond any window is ignored, not refused. */
const tokenLimit = integer(1, Number.MAX_VALUE);
/** Seeds are 64-bit numbers to several clients. */
const largestSeed = 2 ** 63;
/** Any JSON Schema: an object, or true or false. */
const jsonSchema = Type.Union([Type.Object({}), Type.Boolean()]);

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
  model: Type.String({ minLength: 1, maxLength: 512 }),
  messages: Type.Array(chatMessage, { minItems: 1 }),
  max_tokens: optional(tokenLimit),
  max_completion_tokens: optional(tokenLimit),
  temperature: optional(number(0, 2)),
  top_p: optional(number(0, 1)),
  // −1 and 0 mean "no limit" to several servers.
  top_k: optional(integer(-1, 1_000_000)),
  min_p: optional(number(0, 1)),
  frequency_penalty: optional(number(-2, 2)),
  presence_penalty: optional(number(-2, 2)),
  repetition_penalty: optional(Type.Number({ exclusiveMinimum: 0, maximum: 10 })),
  stop: optional(Type.Union([Type.String(), Type.Array(Type.String(), { maxItems: 16 })])),
  seed: optional(integer(-largestSeed, largestSeed)),
  n: optional(integer(1, 128)),
  logprobs: optional(Type.Boolean()),
  top_logprobs: optional(integer(0, 20)),
  // Not `Type.Record`: its pattern for names does not match one with a line feed, whose value then goes unchecked.
  logit_bias: optional(
    Type.Unsafe<Record<string, number>>(Type.Object({}, { additionalProperties: number(-100, 100) })),
  ),
  stream: optional(Type.Boolean()),
  stream_options: optional(Type.Object({})),
  tools: optional(Type.Array(chatTool, { maxItems: 1024 })),
  tool_choice: optional(
    Type.Union([
      Type.Enum(['auto', 'none', 'required']),
      Type.Object({ type: Type.Literal('function'), function: Type.Object({ name: Type.String() }) }),
    ]),
  ),
  parallel_tool_calls: optional(Type.Boolean()),
  response_format: optional(
    Type.Object({
      type: Type.String(),
      json_schema: optional(
        Type.Object({ name: optional(Type.String()), strict: optional(Type.Boolean()), schema: optional(jsonSchema) }),
      ),
      grammar: optional(Type.String()),
    }),
  ),
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
