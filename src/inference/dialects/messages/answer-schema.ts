import Type from 'typebox';

/**
 * The schema of the answers of `POST /v1/messages` and its `count_tokens` (contracts §1.2), for the API description; tests check the
 * encoders against it. Fields that only `anthropic-version: 2026-10-21` and later have are optional and always null.
 */
const recent = (description: string) =>
  Type.Optional(Type.Null({ description: `From version 2026-10-21 on. ${description}` }));
const unused = 'Always null.';

const inputUsage = {
  input_tokens: Type.Integer({ description: 'Tokens of the prompt that were not in a cache.' }),
  cache_creation_input_tokens: Type.Integer({
    description: 'Always 0: writing to the cache is not billed separately.',
  }),
  cache_read_input_tokens: Type.Integer({ description: 'Tokens of the prompt from a cache, at its own price.' }),
};
const outputUsage = {
  output_tokens: Type.Integer({ description: 'Generated tokens, thinking included.' }),
  output_tokens_details: Type.Object(
    { thinking_tokens: Type.Integer({ description: 'Generated tokens that were spent on thinking.' }) },
    { description: 'Details of the generated tokens.' },
  ),
};

export const messageUsage = Type.Object(
  {
    ...inputUsage,
    ...outputUsage,
    service_tier: Type.Enum(['standard', 'priority', 'batch'], {
      description: 'The tier that served, which is the one that is charged.',
    }),
    cache_creation: recent(unused),
    inference_geo: recent(unused),
    server_tool_use: recent(unused),
    speed: recent(unused),
  },
  { description: 'The billed tokens. The whole prompt is the sum of the three kinds of input tokens.' },
);

const textBlock = Type.Object({
  type: Type.Literal('text', { description: 'Always `text`.' }),
  text: Type.String({ description: 'The text.' }),
  citations: recent(unused),
});
const thinkingBlock = Type.Object({
  type: Type.Literal('thinking', { description: 'Always `thinking`.' }),
  thinking: Type.String({ description: 'The thinking of the model; empty with `display: omitted`.' }),
  signature: Type.String({
    description: 'Signature which proves that this service produced the thinking; send it back unchanged.',
  }),
});
const toolUseBlock = Type.Object({
  type: Type.Literal('tool_use', { description: 'Always `tool_use`.' }),
  id: Type.String({ description: 'Id of the call, for `tool_use_id` of its result.' }),
  name: Type.String({ description: 'The name of the tool.' }),
  input: Type.Object({}, { description: 'The arguments.' }),
  caller: Type.Optional(
    Type.Object(
      { type: Type.Literal('direct', { description: 'Always `direct`.' }) },
      { description: 'From version 2026-10-21 on. Who calls the tool.' },
    ),
  ),
});

export const messageBlock = Type.Union([textBlock, thinkingBlock, toolUseBlock], {
  description: 'A piece of an answer.',
});

const stopReason = Type.Enum(['end_turn', 'max_tokens', 'stop_sequence', 'tool_use', 'model_context_window_exceeded']);
const stopFields = {
  stop_reason: Type.Union([stopReason, Type.Null()], {
    description: 'Why the answer ended; null at the beginning of a stream.',
  }),
  stop_sequence: Type.Union([Type.String(), Type.Null()], {
    description: 'The stop sequence that ended the answer.',
  }),
  stop_details: recent(unused),
};

export const message = Type.Object(
  {
    id: Type.String({ description: 'Id of the message.' }),
    type: Type.Literal('message', { description: 'Always `message`.' }),
    role: Type.Literal('assistant', { description: 'Always `assistant`.' }),
    model: Type.String({ description: 'Id of the model, as its card writes it.' }),
    content: Type.Array(messageBlock, { description: 'The answer; empty when the model generated nothing.' }),
    ...stopFields,
    container: recent(unused),
    diagnostics: recent(unused),
    usage: messageUsage,
  },
  { description: 'A whole answer.' },
);

const event = <Name extends string, Fields extends Type.TProperties>(type: Name, fields: Fields, description: string) =>
  Type.Object({ type: Type.Literal(type, { description: 'As in the line `event:`.' }), ...fields }, { description });
const index = { index: Type.Integer({ minimum: 0, description: 'Which block of the answer this is.' }) };
const delta = <Name extends string>(type: Name, field: string, description: string) =>
  Type.Object({
    type: Type.Literal(type, { description: 'The new part.' }),
    [field]: Type.String({ description }),
  });

/** The events in this order; `ping` may come anywhere. */
export const messageEvents = {
  MessageStart: event('message_start', { message }, 'The message, without content.'),
  MessagePing: event('ping', {}, 'Says nothing.'),
  MessageBlockStart: event(
    'content_block_start',
    { ...index, content_block: messageBlock },
    'A block begins, with nothing in it. Blocks come one after the other.',
  ),
  MessageBlockDelta: event(
    'content_block_delta',
    {
      ...index,
      delta: Type.Union(
        [
          delta('text_delta', 'text', 'The next piece of the text.'),
          delta('thinking_delta', 'thinking', 'The next piece of the thinking.'),
          delta('signature_delta', 'signature', 'The signature: once, at the end of a block of thinking.'),
          delta('input_json_delta', 'partial_json', 'The next piece of the JSON text of `input`.'),
        ],
        { description: 'The new part.' },
      ),
    },
    'A block grows.',
  ),
  MessageBlockStop: event('content_block_stop', index, 'A block is whole.'),
  MessageDelta: event(
    'message_delta',
    {
      delta: Type.Object({ ...stopFields, container: recent(unused) }, { description: 'What ended the answer.' }),
      usage: Type.Object(
        { ...inputUsage, ...outputUsage, server_tool_use: recent(unused) },
        { description: 'The billed tokens of the whole answer.' },
      ),
    },
    'The answer has ended.',
  ),
  MessageStop: event('message_stop', {}, 'The last event.'),
};

export const tokenCount = Type.Object(
  { input_tokens: Type.Integer({ description: 'Tokens of the prompt, cacheable ones included.' }) },
  { description: 'How long the prompt is.' },
);
