import Type from 'typebox';

import { modelText, samplingTexts, streamText } from '../common-fields.ts';
import { named, self } from '../description.ts';
import type { EndpointDescription, ErrorForm, NamedSchema } from '../description.ts';
import { message, messageBlock, messageEvents, messageUsage, tokenCount } from './answer-schema.ts';
import { encodeMessagesError } from './response.ts';
import { countRequestSchema, messagesRequestSchema } from './schema.ts';

/** Error fields that clients of this API read instead of, or in addition to, the common ones. */
const errorFields = {
  details: Type.Object(
    { error_code: Type.String({ description: 'The same as `code`, where some clients look for it.' }) },
    { description: 'For clients. May have more fields.', additionalProperties: Type.Unknown() },
  ),
};
const wrapped = (error: Type.TObject) =>
  Type.Object({
    type: Type.Literal('error', { description: 'Always `error`.' }),
    error,
    request_id: Type.String({ description: 'The value of `request-id`.' }),
  });

/** Specification §7.1: the common envelope, wrapped. */
const error: ErrorForm = {
  name: 'MessagesError',
  schema: ({ properties }) =>
    wrapped(Type.Object({ ...properties, ...errorFields }, { description: 'What went wrong.' })),
  print: encodeMessagesError,
};

const inStream = Type.Enum(['overloaded_error', 'timeout_error', 'authentication_error', 'api_error'], {
  description: 'In a stream: tells clients of this API whether a retry makes sense.',
});

const wireMessage = messagesRequestSchema.properties.messages.items;
const block = wireMessage.properties.content.anyOf[1].items;
const innerBlock = block.properties.content.anyOf[0].anyOf[1].items;
const textBlock = innerBlock.properties.content.anyOf[0].items;
const source = innerBlock.properties.source.anyOf[0].anyOf[1];
const pieceBlock = source.properties.content.anyOf[0].anyOf[1].items;
const tool = messagesRequestSchema.properties.tools.anyOf[0].items;
const outputFormat = messagesRequestSchema.properties.output_format.anyOf[0];

const promptTexts = {
  model: modelText,
  messages:
    'The conversation so far. Turns of one role in a row are joined; if the last turn is the assistant’s, the answer continues it.',
  system: 'Instructions, as text or blocks of text.',
  tools:
    'Tools that the model may call. Tools of a `type` that the vendor would run are accepted, but not offered to the model.',
  tool_choice: 'Whether the model calls tools. Models that always reason take only `auto` and `none`.',
  'tool_choice.type': '`auto`: the model decides; `any`: some tool; `tool`: the tool of this name; `none`: no tool.',
  'tool_choice.name': 'With the type `tool`.',
  'tool_choice.disable_parallel_tool_use': 'Whether the answer ends after its first tool call.',
  thinking: 'Whether the model thinks before it answers.',
  'thinking.type': '`disabled`; with the other values the model thinks, as much as `output_config.effort` says.',
  'thinking.budget_tokens': 'Accepted; no effect.',
  'thinking.display': '`omitted`: thinking blocks have no text.',
  output_config: 'How much the model reasons, and the form of its answer.',
  'output_config.effort':
    '`low`, `medium`, `high`, `xhigh` or `max`; a value that the card does not list is replaced by the nearest one that it does.',
  'output_config.format': 'A JSON Schema that the answer matches.',
  output_format: 'An older name of `output_config.format`.',
  thread: 'Not supported (400): clients then send the whole conversation.',
};

const sourceTexts = {
  type: '`base64`, `url`, `file`, `text` or `content`.',
  media_type: 'With `base64` and `text`: what the data is.',
  data: 'With `base64`: the bytes; with `text`: the text.',
  url: 'With `url`, for images: a public `https://` address.',
  file_id: 'With `file`: id of an uploaded file.',
};

const innerTexts = {
  type: 'Decides which of the other fields apply.',
  text: 'For `text`.',
  source: 'For `image` and `document`, the contents; for `search_result`, its address.',
  title: 'For `document` and `search_result`.',
  context: 'For `document`: context for the model.',
  tool_name: 'For `tool_reference`.',
};

const shared: Readonly<Record<string, NamedSchema>> = {
  MessagesMessage: named(
    wireMessage,
    {
      role: 'Role of the author. A `system` message keeps its position in the conversation.',
      content: 'Text, or blocks.',
    },
    'One turn of a conversation.',
  ),
  MessagesBlock: named(
    block,
    {
      ...innerTexts,
      type: '`text`, `image`, `document`, `search_result`; in assistant turns also `thinking`, `redacted_thinking`, `tool_use`; in user turns also `tool_result`. `cache_control` is accepted on any block and has no effect.',
      thinking: 'For `thinking`.',
      signature: 'For `thinking`: unchanged from the answer.',
      data: 'For `redacted_thinking`: unchanged from the answer.',
      id: 'For `tool_use`: unchanged from the answer.',
      name: 'For `tool_use`: name of the tool.',
      input: 'For `tool_use`: the arguments.',
      tool_use_id: 'For `tool_result`: the `id` of the call that it answers.',
      is_error: 'For `tool_result`: whether the tool failed.',
      content: 'For `tool_result`: text or blocks; for `search_result`: blocks of text.',
    },
    'A part of a turn.',
  ),
  MessagesResultBlock: named(
    innerBlock,
    { ...innerTexts, content: 'For `search_result`: blocks of text.' },
    'A piece of the result of a tool: `text`, `image`, `document`, `search_result` or `tool_reference`.',
  ),
  MessagesTextBlock: named(textBlock, { type: 'Always `text`.', text: 'The text.' }, 'A text.'),
  MessagesSource: named(
    source,
    { ...sourceTexts, content: 'With `content`: text, or blocks of text and images.' },
    'Where an image or a document is.',
  ),
  MessagesDocumentBlock: named(
    pieceBlock,
    {
      type: '`text` or `image`.',
      text: 'For `text`.',
      source: 'For `image`.',
      'source.type': sourceTexts.type,
      'source.media_type': sourceTexts.media_type,
      'source.data': sourceTexts.data,
      'source.url': sourceTexts.url,
      'source.file_id': sourceTexts.file_id,
    },
    'A piece of a document.',
  ),
  MessagesTool: named(
    tool,
    {
      type: '`custom`, or absent.',
      name: 'Unique among the tools.',
      description: 'What it does, for the model.',
      input_schema: 'JSON Schema of the arguments: `type` is `object`.',
    },
    'A tool that the model may call.',
  ),
  MessagesOutputFormat: named(
    outputFormat,
    { type: 'Always `json_schema`.', schema: 'A JSON Schema.' },
    'The format of the answer.',
  ),
};

const weather = {
  name: 'get_weather',
  description: 'The weather in a city.',
  input_schema: { type: 'object', properties: { city: { type: 'string' } }, required: ['city'] },
};

const headers = [
  {
    name: 'anthropic-version',
    description: 'A date. From `2026-10-21` on answers have further fields, which are null. Any value is taken.',
    schema: Type.String(),
  },
];

/** `POST /v1/messages` in the API description. */
export const messagesDescription: EndpointDescription = {
  operationId: 'createMessage',
  tag: 'Messages',
  summary: 'Answer a conversation, in blocks',
  description:
    'Text, tools, thinking, structured output, images and documents; streamed or whole. Fields that are not listed here are accepted and have no effect.',
  request: messagesRequestSchema,
  answer: message,
  events: {
    description:
      'With `stream: true`: events of two lines, `event: <type>` and `data: <JSON>`, each followed by an empty line. Lines that begin with a colon are comments. A failure in mid-stream is the event `error`, after which nothing comes and nothing is charged.',
    schema: ({ properties }) =>
      Type.Union([
        ...Object.values(messageEvents),
        wrapped(
          Type.Object(
            { ...(properties['error'] as Type.TObject).properties, type: inStream },
            { description: 'What went wrong.' },
          ),
        ),
      ]),
  },
  error,
  headers,
  named: {
    ...shared,
    MessagesRequest: named(messagesRequestSchema, {
      ...promptTexts,
      max_tokens: 'Maximum of tokens to generate, thinking included. Lowered to the maximum of the model.',
      temperature: samplingTexts.temperature,
      top_p: samplingTexts.top_p,
      top_k: samplingTexts.top_k,
      service_tier:
        '`auto`: the tier of the key, which may go first and cost more; `standard_only`: the usual place and price.',
      stop_sequences: samplingTexts.stop,
      stream: streamText,
    }),
    Message: self(message),
    MessageBlock: self(messageBlock),
    MessageUsage: self(messageUsage),
    ...Object.fromEntries(Object.entries(messageEvents).map(([name, schema]) => [name, self(schema)])),
  },
  examples: [
    {
      name: 'text',
      summary: 'A question',
      needs: [],
      body: (model) => ({ model, max_tokens: 200, messages: [{ role: 'user', content: 'Why is the sky blue?' }] }),
    },
    {
      name: 'stream',
      summary: 'An answer as it is generated',
      needs: ['streaming'],
      body: (model) => ({
        model,
        max_tokens: 200,
        system: 'Answer in one sentence.',
        messages: [{ role: 'user', content: 'Why is the sky blue?' }],
        stream: true,
      }),
    },
    {
      name: 'tools',
      summary: 'A tool, its call and its result',
      needs: ['tools'],
      body: (model) => ({
        model,
        max_tokens: 200,
        messages: [
          { role: 'user', content: 'What is the weather in Bern?' },
          {
            role: 'assistant',
            content: [{ type: 'tool_use', id: 'toolu_1', name: 'get_weather', input: { city: 'Bern' } }],
          },
          { role: 'user', content: [{ type: 'tool_result', tool_use_id: 'toolu_1', content: '21 degrees' }] },
        ],
        tools: [weather],
      }),
    },
    {
      name: 'reasoning',
      summary: 'More reasoning',
      needs: ['reasoning'],
      body: (model) => ({
        model,
        max_tokens: 2000,
        thinking: { type: 'adaptive' },
        output_config: { effort: 'high' },
        messages: [{ role: 'user', content: 'Is 91 prime?' }],
      }),
    },
  ],
};

/** `POST /v1/messages/count_tokens` in the API description. */
export const messageCountDescription: EndpointDescription = {
  operationId: 'countMessageTokens',
  tag: 'Messages',
  summary: 'Count the tokens of a prompt',
  description: 'Number of prompt tokens of such a request. Free of charge; nothing is generated.',
  request: countRequestSchema,
  answer: tokenCount,
  error,
  headers,
  named: {
    ...shared,
    MessagesCountRequest: named(countRequestSchema, promptTexts),
    MessagesTokenCount: self(tokenCount),
  },
  examples: [
    {
      name: 'count',
      summary: 'A prompt with a tool',
      needs: ['tools'],
      body: (model) => ({
        model,
        messages: [{ role: 'user', content: 'What is the weather in Bern?' }],
        tools: [weather],
      }),
    },
    {
      name: 'text',
      summary: 'A prompt',
      needs: [],
      body: (model) => ({ model, messages: [{ role: 'user', content: 'Why is the sky blue?' }] }),
    },
  ],
};
