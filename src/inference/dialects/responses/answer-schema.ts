import Type from 'typebox';

/**
 * The answers of `POST /v1/responses` and its `input_tokens` (contracts §1.3), for the API description; tests check the encoders against
 * it.
 */
const nullable = <Schema extends Type.TSchema>(schema: Schema, description: string) =>
  Type.Union([schema, Type.Null()], { description });
const literal = <Value extends string>(value: Value) => Type.Literal(value, { description: `Always \`${value}\`.` });
const text = (description: string) => Type.String({ description });
const status = Type.Enum(['in_progress', 'completed', 'incomplete'], { description: 'State of the item.' });

const tokenFields = {
  token: text('The text of the token.'),
  logprob: Type.Number({ description: 'Natural logarithm of its probability; -9999 when it could not be chosen.' }),
};
const bytes = Type.Array(Type.Integer(), { description: 'Its bytes in UTF-8.' });
const topLogprobs = 'The likeliest tokens at this position.';

export const responseTextPart = Type.Object(
  {
    type: literal('output_text'),
    text: text('The text.'),
    annotations: Type.Array(Type.Unknown(), { description: 'Always empty.' }),
    logprobs: Type.Array(
      Type.Object({
        ...tokenFields,
        bytes,
        top_logprobs: Type.Array(Type.Object({ ...tokenFields, bytes }), { description: topLogprobs }),
      }),
      { description: 'Logprobs of the tokens, when `include` has `message.output_text.logprobs`.' },
    ),
  },
  { description: 'A text of an answer.' },
);
const summaryPart = Type.Object(
  { type: literal('summary_text'), text: text('The full reasoning of the model.') },
  { description: 'The reasoning.' },
);

const messageItem = Type.Object({
  id: text('Id of the item.'),
  type: literal('message'),
  status,
  role: literal('assistant'),
  content: Type.Array(responseTextPart, { description: 'The text; empty in the first event of the item.' }),
});
const reasoningItem = Type.Object({
  id: text('Id of the item.'),
  type: literal('reasoning'),
  status: Type.Optional(status),
  summary: Type.Array(summaryPart, {
    description: 'The reasoning of the model; empty in the first event of the item.',
  }),
  encrypted_content: Type.Optional(
    text(
      'When `include` has `reasoning.encrypted_content`: the reasoning, encrypted for this service; send it back unchanged.',
    ),
  ),
});
const callItem = Type.Object({
  id: text('Id of the item.'),
  type: literal('function_call'),
  status,
  call_id: text('Id of the call, for `call_id` of its result.'),
  name: text('The name of the function.'),
  arguments: text('JSON text of the arguments.'),
});

export const responseItem = Type.Union([messageItem, reasoningItem, callItem], {
  description: 'A piece of an answer; send it back as it is in the `input` of the next request.',
});

export const responseUsage = Type.Object(
  {
    input_tokens: Type.Integer({ description: 'Tokens of the input, cached ones included.' }),
    input_tokens_details: Type.Object(
      {
        cached_tokens: Type.Integer({ description: 'Input tokens that were read from a cache, at their own price.' }),
        cache_write_tokens: Type.Integer({ description: 'Always 0: writing to the cache is not billed separately.' }),
      },
      { description: 'Details of the input tokens.' },
    ),
    output_tokens: Type.Integer({ description: 'Generated tokens, reasoning included.' }),
    output_tokens_details: Type.Object(
      { reasoning_tokens: Type.Integer({ description: 'Generated tokens that were spent on reasoning.' }) },
      { description: 'Details of the generated tokens.' },
    ),
    total_tokens: Type.Integer({ description: 'The sum of both.' }),
  },
  { description: 'The billed tokens.' },
);

const echoed = 'The value of the request.';
const never = (description = 'Always null.') => Type.Null({ description });

export const response = Type.Object(
  {
    id: text('Id of the response.'),
    object: literal('response'),
    created_at: Type.Integer({ description: 'When the request arrived, in seconds since 1970.' }),
    completed_at: nullable(Type.Integer(), 'When the answer was complete.'),
    status: Type.Enum(['in_progress', 'completed', 'incomplete', 'failed'], { description: 'State of the answer.' }),
    error: nullable(
      Type.Object({
        code: text('`server_error`, `rate_limit_exceeded` or `invalid_prompt`.'),
        message: text('For people.'),
      }),
      'Why it failed.',
    ),
    incomplete_details: nullable(
      Type.Object({ reason: literal('max_output_tokens') }),
      'Why it is incomplete: the cap or the window was reached.',
    ),
    output: Type.Array(responseItem, { description: 'The answer.' }),
    usage: nullable(responseUsage, 'The billed tokens; null until the answer is complete.'),
    model: text('Id of the model, as its card writes it.'),
    instructions: nullable(Type.String(), echoed),
    max_output_tokens: nullable(Type.Integer(), echoed),
    max_tool_calls: nullable(Type.Integer(), echoed),
    parallel_tool_calls: Type.Boolean({ description: echoed }),
    previous_response_id: never(),
    prompt_cache_key: nullable(Type.String(), echoed),
    reasoning: Type.Object(
      {
        effort: nullable(Type.String(), 'The value of the request; `none` for an unknown value.'),
        summary: nullable(Type.String(), echoed),
      },
      { description: echoed },
    ),
    safety_identifier: nullable(Type.String(), echoed),
    service_tier: Type.Enum(['default', 'flex', 'priority'], {
      description: 'The tier that served, which is the one that is charged.',
    }),
    store: Type.Boolean({ description: echoed }),
    background: Type.Literal(false, { description: 'Always false.' }),
    temperature: Type.Number({ description: 'The value of the request, or 1.' }),
    top_p: Type.Number({ description: 'The value of the request, or 1.' }),
    presence_penalty: Type.Number({ description: 'The value of the request, or 0.' }),
    frequency_penalty: Type.Number({ description: 'The value of the request, or 0.' }),
    top_logprobs: Type.Integer({ description: 'The value of the request, or 0.' }),
    text: Type.Object(
      {
        format: Type.Object(
          {
            type: text('`text`, `json_object` or `json_schema`.'),
            name: Type.Optional(text(echoed)),
            description: Type.Optional(text(echoed)),
            schema: Type.Optional(Type.Unknown({ description: echoed })),
            strict: Type.Optional(nullable(Type.Boolean(), echoed)),
          },
          { description: 'The form of the answer.' },
        ),
        verbosity: Type.Optional(text(echoed)),
      },
      { description: echoed },
    ),
    tool_choice: Type.Unknown({ description: 'The value of the request, or `auto`.' }),
    tools: Type.Array(Type.Unknown(), { description: echoed }),
    truncation: text('The value of the request, or `disabled`.'),
    metadata: Type.Object({}, { additionalProperties: Type.String(), description: echoed }),
    user: Type.Optional(text(echoed)),
  },
  { description: 'An answer, or its present state.' },
);

const event = <Fields extends Type.TProperties>(type: string, fields: Fields, description: string) =>
  Type.Object(
    {
      type: Type.Literal(type, { description: 'As in the line `event:`.' }),
      sequence_number: Type.Integer({ minimum: 0, description: 'Number of the event, from 0 without gaps.' }),
      ...fields,
    },
    { description },
  );
const outputIndex = { output_index: Type.Integer({ minimum: 0, description: 'Which item of `output` this is.' }) };
const ofItem = { item_id: text('Id of the item.'), ...outputIndex };
const inContent = { ...ofItem, content_index: Type.Integer({ description: 'Which part of its `content`.' }) };
const inSummary = { ...ofItem, summary_index: Type.Integer({ description: 'Which part of its `summary`.' }) };
const delta = text('The new part.');
const eventLogprobs = Type.Array(
  Type.Object({
    ...tokenFields,
    top_logprobs: Type.Array(Type.Object(tokenFields), { description: topLogprobs }),
  }),
  { description: 'Logprobs of the tokens, when `include` has `message.output_text.logprobs`.' },
);
const part = (schema: Type.TSchema) => ({ part: schema });
const state = { response };

/** An error in mid-stream: flat for clients of one published form, nested for clients of the other. */
export const responseErrorEvent = (error: Type.TObject) =>
  event(
    'error',
    {
      code: text('The code of the error.'),
      message: text('For people.'),
      param: nullable(Type.String(), 'Path of the field at fault.'),
      error: Type.Object(
        { ...error.properties, param: nullable(Type.String(), 'Path of the field at fault.') },
        { description: 'The whole error.' },
      ),
    },
    'The answer cannot go on; `response.failed` follows.',
  );

/** The events in this order, one item after the other. */
export const responseEvents = {
  ResponseCreated: event('response.created', state, 'The first event.'),
  ResponseInProgress: event('response.in_progress', state, 'The second event.'),
  ResponseItemAdded: event(
    'response.output_item.added',
    { ...outputIndex, item: responseItem },
    'An item begins, with nothing in it.',
  ),
  ResponsePartAdded: event(
    'response.content_part.added',
    { ...inContent, ...part(responseTextPart) },
    'The text of a message begins.',
  ),
  ResponseTextDelta: event('response.output_text.delta', { ...inContent, delta, logprobs: eventLogprobs }, 'Text.'),
  ResponseTextDone: event(
    'response.output_text.done',
    { ...inContent, text: text('The whole text.'), logprobs: eventLogprobs },
    'The text is whole.',
  ),
  ResponsePartDone: event(
    'response.content_part.done',
    { ...inContent, ...part(responseTextPart) },
    'The text of a message is whole.',
  ),
  ResponseSummaryPartAdded: event(
    'response.reasoning_summary_part.added',
    { ...inSummary, ...part(summaryPart) },
    'Reasoning begins.',
  ),
  ResponseSummaryTextDelta: event('response.reasoning_summary_text.delta', { ...inSummary, delta }, 'Reasoning.'),
  ResponseSummaryTextDone: event(
    'response.reasoning_summary_text.done',
    { ...inSummary, text: text('The whole reasoning.') },
    'The reasoning is whole.',
  ),
  ResponseSummaryPartDone: event(
    'response.reasoning_summary_part.done',
    { ...inSummary, ...part(summaryPart) },
    'The reasoning is whole.',
  ),
  ResponseArgumentsDelta: event('response.function_call_arguments.delta', { ...ofItem, delta }, 'Arguments.'),
  ResponseArgumentsDone: event(
    'response.function_call_arguments.done',
    { ...ofItem, name: text('The name of the function.'), arguments: text('JSON text of the arguments.') },
    'The arguments are whole.',
  ),
  ResponseItemDone: event('response.output_item.done', { ...outputIndex, item: responseItem }, 'An item is whole.'),
  ResponseCompleted: event('response.completed', state, 'The answer is whole.'),
  ResponseIncomplete: event('response.incomplete', state, 'The answer ended at its cap.'),
  ResponseFailed: event('response.failed', state, 'The answer failed.'),
};

export const inputTokens = Type.Object(
  {
    object: literal('response.input_tokens'),
    input_tokens: Type.Integer({ description: 'Tokens of the input.' }),
  },
  { description: 'How long the input is.' },
);
