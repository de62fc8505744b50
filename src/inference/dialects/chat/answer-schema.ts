import Type from 'typebox';

import { tierInAnswer } from '../common-fields.ts';

/**
 * The schema of the answers of `POST /v1/chat/completions` (specification §2.5 to §2.7), for the API description. The encoders print by
 * hand; tests check every fixture and live answers against this.
 */
const nullable = <Schema extends Type.TSchema>(schema: Schema, description: string) =>
  Type.Union([schema, Type.Null()], { description });

export const chatUsage = Type.Object(
  {
    prompt_tokens: Type.Integer({ description: 'Tokens of the prompt, images and cached ones included.' }),
    completion_tokens: Type.Integer({ description: 'Generated tokens of all choices, reasoning included.' }),
    total_tokens: Type.Integer({ description: 'The sum of both.' }),
    prompt_tokens_details: Type.Object(
      {
        cached_tokens: Type.Integer({ description: 'Prompt tokens that were read from a cache, at their own price.' }),
      },
      { description: 'Details of the prompt tokens.' },
    ),
    completion_tokens_details: Type.Object(
      { reasoning_tokens: Type.Integer({ description: 'Generated tokens that were spent on reasoning.' }) },
      { description: 'Details of the generated tokens.' },
    ),
  },
  { description: 'The billed tokens.' },
);

const tokenFields = {
  token: Type.String({ description: 'The text of the token.' }),
  logprob: Type.Number({ description: 'Natural logarithm of its probability; -9999 when it could not be chosen.' }),
  bytes: Type.Array(Type.Integer({ minimum: 0, maximum: 255 }), {
    description: 'Its bytes in UTF-8; a token may hold half a character.',
  }),
};

export const chatLogprobs = Type.Object(
  {
    content: Type.Array(
      Type.Object({
        ...tokenFields,
        top_logprobs: Type.Array(Type.Object(tokenFields), {
          description: 'The likeliest tokens at this position, as many as `top_logprobs` asked for.',
        }),
      }),
      { description: 'The tokens of the text.' },
    ),
    refusal: Type.Null({ description: 'Always null.' }),
  },
  { description: 'Probabilities of tokens.' },
);

const finishReason = Type.Enum(['stop', 'length', 'tool_calls']);
const finishText =
  '`stop`: the model ended, or a stop sequence came; `length`: `max_tokens` was reached, or the model began to repeat itself; `tool_calls`: the model calls tools.';

export const chatToolCall = Type.Object(
  {
    id: Type.String({ description: 'Id of the call, for `tool_call_id` of its result.' }),
    type: Type.Literal('function', { description: 'Always `function`.' }),
    function: Type.Object(
      {
        name: Type.String({ description: 'The name of the tool.' }),
        arguments: Type.String({ description: 'JSON text of the arguments.' }),
      },
      { description: 'The called function.' },
    ),
  },
  { description: 'A tool call.' },
);

const head = {
  id: Type.String({ description: 'Id of the completion.' }),
  created: Type.Integer({ description: 'When the request arrived, in seconds since 1970.' }),
  model: Type.String({ description: 'Id of the model, as its card writes it.' }),
};
const index = Type.Integer({ minimum: 0, description: 'Which of the `n` choices this is.' });

export const chatCompletion = Type.Object(
  {
    ...head,
    object: Type.Literal('chat.completion', { description: 'Always `chat.completion`.' }),
    service_tier: tierInAnswer,
    choices: Type.Array(
      Type.Object({
        index,
        message: Type.Object(
          {
            role: Type.Literal('assistant', { description: 'Always `assistant`.' }),
            content: nullable(Type.String(), 'The text of the answer; null when the model only calls tools.'),
            reasoning_content: nullable(Type.String(), 'The reasoning of the model, separate from its answer.'),
            refusal: Type.Null({ description: 'Always null.' }),
            tool_calls: nullable(Type.Array(chatToolCall), 'Tool calls.'),
          },
          { description: 'The answer, ready to be sent back as a message of the next request.' },
        ),
        logprobs: nullable(chatLogprobs, 'Present when the request has `logprobs`.'),
        finish_reason: { ...finishReason, description: finishText },
      }),
      { description: 'One for each of `n`.' },
    ),
    usage: chatUsage,
  },
  { description: 'A whole answer.' },
);

const delta = Type.Object(
  {
    role: Type.Optional(Type.Literal('assistant', { description: 'In the first chunk of a choice.' })),
    content: Type.Optional(Type.String({ description: 'The next piece of the text.' })),
    reasoning_content: Type.Optional(Type.String({ description: 'The next piece of the reasoning.' })),
    tool_calls: Type.Optional(
      Type.Array(
        Type.Object({
          index: Type.Integer({
            minimum: 0,
            description: 'Which call of the choice this is; pieces are joined by it.',
          }),
          id: Type.Optional(Type.String({ description: 'In the first piece of a call.' })),
          type: Type.Optional(Type.Literal('function', { description: 'In the first piece of a call.' })),
          function: Type.Object(
            {
              name: Type.Optional(Type.String({ description: 'In the first piece of a call.' })),
              arguments: Type.String({ description: 'The next piece of the JSON text of the arguments.' }),
            },
            { description: 'The called function.' },
          ),
        }),
        { description: 'Pieces of tool calls.' },
      ),
    ),
  },
  { description: 'The new part.' },
);

const chunkHead = {
  ...head,
  object: Type.Literal('chat.completion.chunk', { description: 'Always `chat.completion.chunk`.' }),
};

export const chatChunk = Type.Object(
  {
    ...chunkHead,
    choices: Type.Array(
      Type.Object({
        index,
        delta,
        logprobs: nullable(chatLogprobs, 'Logprobs of the tokens of this piece, when the request has `logprobs`.'),
        finish_reason: nullable(finishReason, `Null until the choice ends. ${finishText}`),
      }),
      { description: 'One choice; none in the chunk that carries the usage.' },
    ),
    service_tier: tierInAnswer,
    usage: Type.Optional(chatUsage),
  },
  { description: 'One event of a stream. The last one before `[DONE]` has the usage and no choices.' },
);
