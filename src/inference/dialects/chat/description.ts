import Type from 'typebox';

import { logitBiasText, modelText, samplingTexts, serviceTierText, streamText } from '../common-fields.ts';
import { citySchema, named, plainError, self } from '../description.ts';
import type { EndpointDescription } from '../description.ts';
import { chatChunk, chatCompletion, chatLogprobs, chatToolCall, chatUsage } from './answer-schema.ts';
import { chatMessage, chatPart, chatRequestSchema, chatTool, chatToolCallSent } from './schema.ts';

/** `POST /v1/chat/completions` in the API description. */
export const chatDescription: EndpointDescription = {
  operationId: 'createChatCompletion',
  tag: 'Chat completions',
  summary: 'Answer a conversation',
  description:
    'Text, tools, structured output, reasoning and images; streamed or whole. Fields that are not listed here are accepted and have no effect; a field that is null counts as absent.',
  request: chatRequestSchema,
  answer: chatCompletion,
  events: {
    schema: (error) => Type.Union([chatChunk, error]),
    description:
      'With `stream: true`: lines `data: <JSON>`, each followed by an empty line, then `data: [DONE]`. The first chunk of a choice has the role; the last chunk has `usage` and no choices. Lines that begin with a colon are comments that keep the connection alive. A failure in mid-stream is one event with `error`, then `[DONE]`, and nothing is charged.',
  },
  error: plainError,
  named: {
    ChatRequest: named(chatRequestSchema, {
      model: modelText,
      messages: 'The conversation so far.',
      max_tokens:
        'Maximum of tokens to generate, reasoning included. When absent: the `max_output_tokens` of the model, or the smaller of 65,536 and half its context window. Lowered to the maximum of the model; ignored when larger than its context window.',
      max_completion_tokens: 'Another name of `max_tokens`, which wins when both are sent.',
      ...samplingTexts,
      n: 'Number of answers. Above 1 only on models whose card has `chat_completions.n`.',
      logprobs: 'Whether to report the probabilities of the tokens of the text. Not on every model.',
      top_logprobs: 'How many of the most likely tokens to report at each position.',
      logit_bias: logitBiasText,
      stream: streamText,
      service_tier: serviceTierText,
      stream_options: 'Not needed: the usage is always included.',
      tools: 'Functions that the model may call. Their names are unique.',
      tool_choice:
        '`auto` (default): the model decides; `none`: no tool; `required`: some tool; or the function to call. Models that always reason take only `auto` and `none`.',
      'tool_choice.type': 'Always `function`.',
      'tool_choice.function': 'The function to call.',
      'tool_choice.function.name': 'Its name, one of those in `tools`.',
      parallel_tool_calls:
        'Whether one answer may call several tools. With false the answer ends after the first call.',
      response_format:
        'The format of the answer. With tools and `tool_choice: auto` it takes precedence; with a forced choice it is ignored.',
      'response_format.type':
        '`text`, `json_object`, `json_schema`, or `grammar`, as far as the card of the model has them.',
      'response_format.json_schema': 'With the type `json_schema`: what the answer must match.',
      'response_format.json_schema.name': 'Name of the schema.',
      'response_format.json_schema.strict': 'Accepted; the schema is always enforced.',
      'response_format.json_schema.schema':
        'A JSON Schema. Local `$ref`s are inlined; `if`, `then`, `else`, `not`, `uniqueItems`, `multipleOf` and `format` are not enforced.',
      'response_format.grammar': 'With the type `grammar`: rules in EBNF; the start rule is `root`.',
      regex:
        'A regular expression that the whole answer matches. Only on models whose card has `chat_completions.regex`.',
      reasoning_effort:
        'How much the model reasons: `none`, `low`, `medium`, `high`, `xhigh` or `max`. A value that the card does not list is replaced by the nearest one that it does.',
      reasoning: 'Another way to say `reasoning_effort`.',
      'reasoning.effort': 'The values of `reasoning_effort`.',
      thinking: 'Whether the model reasons: true or false, or an object.',
      'thinking.type': '`enabled` or `disabled`.',
      'thinking.keep': '`all`: same as `preserve_thinking`.',
      enable_thinking: 'Whether the model reasons.',
      preserve_thinking:
        'Whether the model sees the reasoning of its earlier turns, from their `reasoning_content`. Only on models that support it.',
      chat_template_kwargs: 'Only `enable_thinking` is read.',
      'chat_template_kwargs.enable_thinking': 'Another way to say `enable_thinking`.',
    }),
    ChatMessage: named(
      chatMessage,
      {
        role: 'Role of the author. `developer` is the same as `system`; `tool` answers a call.',
        content: 'Text, or parts. Null where an assistant only calls tools; in a `tool` message it is an empty result.',
        reasoning_content: 'Reasoning of an assistant message. Used only with `preserve_thinking`.',
        tool_calls: 'Tool calls of an assistant message.',
        tool_call_id: 'In a `tool` message: the `id` of the call that it answers.',
      },
      'One turn of a conversation.',
    ),
    ChatPart: named(
      chatPart,
      {
        type: 'Which of the other fields counts. `input_audio` is refused.',
        text: 'With the type `text`.',
        refusal: 'With the type `refusal`: text of an earlier answer.',
        image_url: 'With the type `image_url`. On models without vision images are removed without an error.',
        'image_url.url': 'A data URI of base64 (PNG, JPEG, WebP, GIF), or a public `https://` URL.',
        file: 'With the type `file`: an uploaded file, or a file inside the request.',
        'file.file_id': 'Id of an uploaded file.',
        'file.file_data': 'A data URI of base64.',
        'file.filename': 'Name of the file in `file_data`.',
      },
      'A part of a message.',
    ),
    ChatToolCallSent: named(
      chatToolCallSent,
      {
        id: 'The id that the answer gave it.',
        type: 'Always `function`.',
        function: 'The called function.',
        'function.name': 'The name of the tool.',
        'function.arguments': 'JSON text of the arguments.',
      },
      'A tool call of an earlier answer, unchanged.',
    ),
    ChatTool: named(
      chatTool,
      {
        type: 'Always `function`.',
        function: 'The function.',
        'function.name': 'Unique among the tools.',
        'function.description': 'What it does, for the model.',
        'function.parameters':
          'JSON Schema of the arguments: `type` is `object`, with `properties`. Absent: no arguments.',
      },
      'A function that the model may call.',
    ),
    ChatCompletion: self(chatCompletion),
    ChatChunk: self(chatChunk),
    ChatUsage: self(chatUsage),
    ChatLogprobs: self(chatLogprobs),
    ChatToolCall: self(chatToolCall),
  },
  examples: [
    {
      name: 'text',
      summary: 'A question',
      needs: [],
      body: (model) => ({ model, messages: [{ role: 'user', content: 'Why is the sky blue?' }], max_tokens: 200 }),
    },
    {
      name: 'stream',
      summary: 'An answer as it is generated',
      needs: ['streaming'],
      body: (model) => ({
        model,
        messages: [
          { role: 'system', content: 'Answer in one sentence.' },
          { role: 'user', content: 'Why is the sky blue?' },
        ],
        stream: true,
      }),
    },
    {
      name: 'tools',
      summary: 'A tool, its call and its result',
      needs: ['tools'],
      body: (model) => ({
        model,
        messages: [
          { role: 'user', content: 'What is the weather in Bern?' },
          {
            role: 'assistant',
            content: null,
            tool_calls: [
              { id: 'call_1', type: 'function', function: { name: 'get_weather', arguments: '{"city":"Bern"}' } },
            ],
          },
          { role: 'tool', tool_call_id: 'call_1', content: '{"celsius":21}' },
        ],
        tools: [
          {
            type: 'function',
            function: {
              name: 'get_weather',
              description: 'The weather in a city.',
              parameters: { type: 'object', properties: { city: { type: 'string' } }, required: ['city'] },
            },
          },
        ],
        max_tokens: 200,
      }),
    },
    {
      name: 'json',
      summary: 'An answer that matches a JSON Schema',
      needs: ['jsonSchema'],
      body: (model) => ({
        model,
        messages: [{ role: 'user', content: 'Name a city and its country, as JSON.' }],
        response_format: {
          type: 'json_schema',
          json_schema: {
            name: 'city',
            schema: citySchema,
          },
        },
        max_tokens: 200,
      }),
    },
    {
      name: 'reasoning',
      summary: 'More reasoning',
      needs: ['reasoning'],
      body: (model) => ({
        model,
        messages: [{ role: 'user', content: 'Is 91 prime?' }],
        reasoning_effort: 'high',
      }),
    },
    {
      name: 'image',
      summary: 'A picture',
      needs: ['vision'],
      body: (model) => ({
        model,
        messages: [
          {
            role: 'user',
            content: [
              { type: 'text', text: 'What is in this picture?' },
              { type: 'image_url', image_url: { url: `data:image/png;base64,${smallPng}` } },
            ],
          },
        ],
        max_tokens: 200,
      }),
    },
  ],
};

/** One red pixel. */
const smallPng = 'iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8BQDwAEhQGAhKmMIQAAAABJRU5ErkJggg==';
