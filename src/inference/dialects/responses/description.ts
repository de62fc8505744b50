import Type from 'typebox';

import { modelText, samplingTexts, serviceTierText, streamText } from '../common-fields.ts';
import { citySchema, named, plainError, self } from '../description.ts';
import type { EndpointDescription, NamedSchema } from '../description.ts';
import {
  inputTokens,
  response,
  responseErrorEvent,
  responseEvents,
  responseItem,
  responseTextPart,
  responseUsage,
} from './answer-schema.ts';
import {
  allowedToolsSchema,
  callOutputSchema,
  customToolCallSchema,
  filePartSchema,
  functionCallSchema,
  functionChoiceSchema,
  functionToolSchema,
  imagePartSchema,
  itemReferenceSchema,
  messageSchema,
  reasoningSchema,
  refusalPartSchema,
  responsesRequestSchema,
  textPartSchema,
} from './schema.ts';

/** The schema of a kind with its `type`; in a check, the `type` has already selected the kind. */
const ofType = <Fields extends Type.TProperties>(types: readonly [string, ...string[]], kind: Type.TObject<Fields>) =>
  Type.Object({ type: Type.Enum([...types]), ...kind.properties });

const id = Type.Optional(Type.Union([Type.String(), Type.Null()]));

const textPart = ofType(['input_text', 'output_text'], textPartSchema);
const refusalPart = ofType(['refusal'], refusalPartSchema);
const imagePart = ofType(['input_image'], imagePartSchema);
const filePart = ofType(['input_file'], filePartSchema);
const parts = Type.Union([textPart, refusalPart, imagePart, filePart]);

const message = Type.Object({
  type: Type.Optional(Type.Literal('message')),
  id,
  role: messageSchema.properties.role,
  content: Type.Optional(Type.Union([Type.String(), Type.Array(parts), Type.Null()])),
});
const functionCall = Type.Object({ id, ...ofType(['function_call'], functionCallSchema).properties });
const customCall = Type.Object({ id, ...ofType(['custom_tool_call'], customToolCallSchema).properties });
const callOutput = Type.Object({
  type: Type.Enum(['function_call_output', 'custom_tool_call_output']),
  id,
  call_id: callOutputSchema.properties.call_id,
  output: Type.Optional(Type.Union([Type.String(), Type.Array(parts), Type.Null()])),
});
const reasoning = Type.Object({ id, ...ofType(['reasoning'], reasoningSchema).properties });
const reference = Type.Object({
  type: Type.Optional(Type.Literal('item_reference')),
  id: itemReferenceSchema.properties.id,
});
const item = Type.Union([message, functionCall, callOutput, reasoning, reference, customCall]);

const functionTool = ofType(['function'], functionToolSchema);
const functionChoice = ofType(['function'], functionChoiceSchema);
const allowedTools = ofType(['allowed_tools'], allowedToolsSchema);

/**
 * The body is checked in two steps: as a whole by the schema of the request, then each item, part and tool by the schema of its kind. Here
 * both are merged.
 */
const request = Type.Object({
  ...responsesRequestSchema.properties,
  input: Type.Union([Type.String(), Type.Array(item, { minItems: 1 })]),
  tools: Type.Optional(
    Type.Union([
      Type.Array(
        Type.Union([functionTool, Type.Object({ type: Type.String() }, { additionalProperties: Type.Unknown() })]),
        {
          maxItems: 1024,
        },
      ),
      Type.Null(),
    ]),
  ),
  tool_choice: Type.Optional(
    Type.Union([Type.Enum(['auto', 'none', 'required']), functionChoice, allowedTools, Type.Null()]),
  ),
});

const noEffect = 'Accepted; no effect.';

const shared: Readonly<Record<string, NamedSchema>> = {
  ResponsesRequest: named(request, {
    model: modelText,
    input: 'A text, or the items of the conversation so far. Items of tools that the vendor would run are skipped.',
    instructions: 'Instructions for the model, before the conversation.',
    stream: streamText,
    service_tier: serviceTierText,
    stream_options: noEffect,
    store:
      'Whether later requests of the account may reference the items of the answer by id, for 30 days; true when absent. With zero data retention `true` is refused, and the default is false.',
    max_output_tokens:
      'Maximum of tokens to generate, reasoning included. When absent: what the context window leaves. Lowered to the maximum of the model.',
    max_tool_calls: noEffect,
    ...samplingTexts,
    top_logprobs: 'How many of the most likely tokens to report, when `include` has logprobs.',
    preserve_thinking: 'Whether the model sees the reasoning of its earlier turns. Only on models that support it.',
    tools: 'Functions are offered to the model; tools of other types are accepted and echoed, but not offered.',
    'tools.type': 'The type of a tool that is not offered.',
    tool_choice:
      '`auto` (default): the model decides; `none`: no tool; `required`: some tool; or an object that names a function or the allowed tools.',
    parallel_tool_calls:
      'Whether one answer may call several functions. With false the answer ends after the first call.',
    text: 'The format of the answer.',
    'text.format': 'One of the formats in `responses.text_format` of the card.',
    'text.format.type': '`text`, `json_object` or `json_schema`.',
    'text.format.name': 'Name of the schema.',
    'text.format.description': 'What the schema is for.',
    'text.format.schema': 'With the type `json_schema`: a JSON Schema. The answer is JSON without Markdown fences.',
    'text.format.strict': 'Accepted; the schema is always enforced.',
    'text.verbosity': noEffect,
    reasoning: 'How much the model reasons.',
    'reasoning.effort':
      '`none`, `low`, `medium`, `high`, `xhigh` or `max`; any other value turns reasoning off. Absent: the default of the model.',
    'reasoning.summary': 'Accepted; no effect: the summary is always the full reasoning.',
    'reasoning.context': '`all_turns`: same as `preserve_thinking`.',
    include: '`reasoning.encrypted_content` and `message.output_text.logprobs`; other values are ignored.',
    truncation: 'Accepted; no effect: an input that is too long is refused with `context_length_exceeded`.',
    metadata: 'Up to 16 pairs; echoed.',
    prompt_cache_key: 'Echoed; no other effect.',
    safety_identifier: 'Echoed; no other effect.',
    user: 'Echoed; no other effect.',
    background: 'true is not supported.',
    previous_response_id: 'Not supported: send the whole conversation.',
    conversation: 'Not supported: send the whole conversation.',
    prompt: 'Not supported: send the text of the prompt.',
  }),
  ResponsesMessage: named(
    message,
    {
      type: '`message`, or absent.',
      id: 'Unchanged from the answer.',
      role: 'Role of the author. `developer` is the same as `system`.',
      content: 'Text, or parts.',
    },
    'A message.',
  ),
  ResponsesFunctionCall: named(
    functionCall,
    {
      type: 'Always `function_call`.',
      id: 'Unchanged from the answer.',
      call_id: 'Unchanged from the answer.',
      name: 'The name of the function.',
      arguments: 'JSON text of the arguments.',
    },
    'A call that the model made.',
  ),
  ResponsesCustomToolCall: named(
    customCall,
    {
      type: 'Always `custom_tool_call`.',
      id: 'Unchanged from the answer.',
      call_id: 'Unchanged from the answer.',
      name: 'The name of the tool.',
      input: 'The input of the tool.',
    },
    'A call of a tool that takes text.',
  ),
  ResponsesCallOutput: named(
    callOutput,
    {
      type: 'Which kind of call it answers.',
      id: 'Id of this item.',
      call_id: 'The `call_id` of the call that it answers.',
      output: 'Text, or parts.',
    },
    'The result of a call.',
  ),
  ResponsesReasoning: named(
    reasoning,
    {
      type: 'Always `reasoning`.',
      id: 'Unchanged from the answer.',
      summary: 'Unchanged from the answer.',
      'summary.text': 'The text.',
      content: 'Unchanged from the answer.',
      'content.text': 'The text.',
      encrypted_content: 'Unchanged from the answer.',
    },
    'Reasoning of the model. Used only when thinking is preserved.',
  ),
  ResponsesItemReference: named(
    reference,
    { type: '`item_reference`, or absent.', id: 'Id of the item.' },
    'An item of an earlier answer of the same account. A reference to an item that is not stored is refused, except for reasoning.',
  ),
  ResponsesTextPart: named(textPart, { type: '`output_text` in earlier answers.', text: 'The text.' }, 'A text.'),
  ResponsesRefusalPart: named(
    refusalPart,
    { type: 'Always `refusal`.', refusal: 'The text.' },
    'A text of an earlier answer.',
  ),
  ResponsesImagePart: named(
    imagePart,
    {
      type: 'Always `input_image`.',
      image_url: 'A data URI of base64, or a public `https://` URL.',
      'image_url.url': 'The same.',
      file_id: 'Id of an uploaded image.',
    },
    'An image. On models without vision images are removed without an error.',
  ),
  ResponsesFilePart: named(
    filePart,
    {
      type: 'Always `input_file`.',
      file_id: 'Id of an uploaded file.',
      file_data: 'A data URI of base64.',
      file_url: 'A public `https://` URL of a PDF or a text; the service fetches it.',
      filename: 'Name of the file in `file_data`.',
    },
    'A file.',
  ),
  ResponsesFunctionTool: named(
    functionTool,
    {
      type: 'Always `function`.',
      name: 'Unique among the tools.',
      description: 'What it does, for the model.',
      parameters: 'JSON Schema of the arguments: `type` is `object`, with `properties`.',
      strict: 'Accepted; schemas are always enforced.',
    },
    'A function that the model may call.',
  ),
  ResponsesFunctionChoice: named(
    functionChoice,
    { type: 'Always `function`.', name: 'The function to call.' },
    'The function to call.',
  ),
  ResponsesAllowedTools: named(
    allowedTools,
    {
      type: 'Always `allowed_tools`.',
      mode: '`auto`: the model decides; `required`: some tool.',
      tools: 'The allowed tools.',
      'tools.type': '`function`; others are ignored.',
      'tools.name': 'The name of the function.',
    },
    'The tools that the model may call.',
  ),
};

/** `POST /v1/responses` in the API description. */
export const responsesDescription: EndpointDescription = {
  operationId: 'createResponse',
  tag: 'Responses',
  summary: 'Answer a conversation, in items',
  description:
    'Text, tools, reasoning, structured output, images and files; streamed or whole. Fields that are not listed here are accepted and have no effect; a field that is null counts as absent.',
  request,
  answer: response,
  events: {
    description:
      'With `stream: true`: events of two lines, `event: <type>` and `data: <JSON>`, each followed by an empty line, then `data: [DONE]`. Lines that begin with a colon are comments. A failure in mid-stream is the event `error`, then `response.failed`, then `[DONE]`, and nothing is charged.',
    schema: ({ properties }) =>
      Type.Union([...Object.values(responseEvents), responseErrorEvent(properties['error'] as Type.TObject)]),
  },
  error: plainError,
  named: {
    ...shared,
    Response: self(response),
    ResponseItem: self(responseItem),
    ResponseTextPart: self(responseTextPart),
    ResponseUsage: self(responseUsage),
    ...Object.fromEntries(Object.entries(responseEvents).map(([name, schema]) => [name, self(schema)])),
  },
  examples: [
    {
      name: 'text',
      summary: 'A question',
      needs: [],
      body: (model) => ({ model, input: 'Why is the sky blue?', max_output_tokens: 200 }),
    },
    {
      name: 'stream',
      summary: 'An answer as it is generated',
      needs: ['streaming'],
      body: (model) => ({
        model,
        instructions: 'Answer in one sentence.',
        input: [{ role: 'user', content: 'Why is the sky blue?' }],
        stream: true,
      }),
    },
    {
      name: 'tools',
      summary: 'A tool, its call and its result',
      needs: ['tools'],
      body: (model) => ({
        model,
        input: [
          { role: 'user', content: 'What is the weather in Bern?' },
          { type: 'function_call', call_id: 'call_1', name: 'get_weather', arguments: '{"city":"Bern"}' },
          { type: 'function_call_output', call_id: 'call_1', output: '{"celsius":21}' },
        ],
        tools: [weather],
        store: false,
      }),
    },
    {
      name: 'json',
      summary: 'An answer that matches a JSON Schema',
      needs: ['jsonSchema'],
      body: (model) => ({
        model,
        input: 'Name a city and its country.',
        text: {
          format: {
            type: 'json_schema',
            name: 'city',
            schema: citySchema,
          },
        },
        max_output_tokens: 200,
      }),
    },
    {
      name: 'reasoning',
      summary: 'More reasoning, to be sent back',
      needs: ['reasoning'],
      body: (model) => ({
        model,
        input: 'Is 91 prime?',
        reasoning: { effort: 'high' },
        include: ['reasoning.encrypted_content'],
        store: false,
      }),
    },
  ],
};

/** `POST /v1/responses/input_tokens` in the API description. */
export const inputTokensDescription: EndpointDescription = {
  operationId: 'countResponseInputTokens',
  tag: 'Responses',
  summary: 'Count the tokens of an input',
  description: 'Number of input tokens of such a request. Free of charge; nothing is generated.',
  request,
  answer: inputTokens,
  error: plainError,
  named: { ...shared, ResponseInputTokens: self(inputTokens) },
  examples: [
    {
      name: 'text',
      summary: 'A question',
      needs: [],
      body: (model) => ({ model, input: 'Why is the sky blue?' }),
    },
    {
      name: 'tools',
      summary: 'A question with a tool',
      needs: ['tools'],
      body: (model) => ({ model, input: 'What is the weather in Bern?', tools: [weather] }),
    },
  ],
};

const weather = {
  type: 'function',
  name: 'get_weather',
  description: 'The weather in a city.',
  parameters: { type: 'object', properties: { city: { type: 'string' } }, required: ['city'] },
};
