import Type from 'typebox';

import { tierInAnswer } from '../common-fields.ts';

/** The schema of the answers of `POST /v1/completions` (contracts §1.1), for the API description; tests check the encoders against it. */
const nullable = <Schema extends Type.TSchema>(schema: Schema, description: string) =>
  Type.Union([schema, Type.Null()], { description });

export const completionUsage = Type.Object(
  {
    prompt_tokens: Type.Integer({ description: 'Tokens of all prompts, cached ones included.' }),
    completion_tokens: Type.Integer({ description: 'Generated tokens of all choices.' }),
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

export const completionLogprobs = Type.Object(
  {
    tokens: Type.Array(Type.String(), { description: 'The tokens of `text`.' }),
    token_logprobs: Type.Array(Type.Union([Type.Number(), Type.Null()]), {
      description: 'Natural logarithm of the probability of each; null for the first token of a prompt.',
    }),
    top_logprobs: Type.Array(Type.Union([Type.Object({}, { additionalProperties: Type.Number() }), Type.Null()]), {
      description: 'The likeliest tokens at each position; the chosen one is always among them.',
    }),
    text_offset: Type.Array(Type.Integer(), { description: 'Where in `text` each token begins, in characters.' }),
  },
  { description: 'Probabilities of tokens: four lists of the same length.' },
);

const head = {
  id: Type.String({ description: 'Id of the completion.' }),
  object: Type.Literal('text_completion', { description: 'Always `text_completion`.' }),
  created: Type.Integer({ description: 'When the request arrived, in seconds since 1970.' }),
  model: Type.String({ description: 'Id of the model, as its card writes it.' }),
  service_tier: tierInAnswer,
};
const stopText =
  'What ended the answer: a stop sequence, or a token of `stop_token_ids`; null when the model ended it.';
const stop = (description: string) => Type.Union([Type.String(), Type.Integer(), Type.Null()], { description });
const finish = '`stop`: the model ended, or a stop sequence came; `length`: `max_tokens` was reached.';
const choice = {
  index: Type.Integer({ minimum: 0, description: 'Number of the prompt times `n`, plus the number of the answer.' }),
  logprobs: nullable(completionLogprobs, 'Present when the request has `logprobs`.'),
};
const promptIds = Type.Array(Type.Integer(), { description: 'With `return_token_ids`: the tokens of the prompt.' });

export const completion = Type.Object(
  {
    ...head,
    choices: Type.Array(
      Type.Object({
        ...choice,
        text: Type.String({ description: 'The answer; with `echo` the prompt and the answer.' }),
        finish_reason: Type.Enum(['stop', 'length'], { description: finish }),
        matched_stop: stop(stopText),
        stop_reason: stop('The same as `matched_stop`.'),
        token_ids: Type.Optional(
          Type.Array(Type.Integer(), { description: 'With `return_token_ids`: the tokens of the answer.' }),
        ),
        prompt_token_ids: Type.Optional(promptIds),
      }),
      { description: 'One for each of `n` answers to each prompt.' },
    ),
    usage: completionUsage,
  },
  { description: 'A whole answer.' },
);

export const completionChunk = Type.Object(
  {
    ...head,
    choices: Type.Array(
      Type.Object({
        ...choice,
        text: Type.String({ description: 'The next piece of the text.' }),
        finish_reason: nullable(Type.Enum(['stop', 'length']), `Null until the choice ends. ${finish}`),
        matched_stop: Type.Optional(stop(`In the last chunk of a choice. ${stopText}`)),
        stop_reason: Type.Optional(stop('The same as `matched_stop`.')),
        token_ids: Type.Optional(
          Type.Array(Type.Integer(), { description: 'With `return_token_ids`: the tokens of this piece.' }),
        ),
        prompt_token_ids: Type.Optional(promptIds),
      }),
      { description: 'One choice; none in the chunk that carries the usage.' },
    ),
    usage: Type.Optional(completionUsage),
  },
  { description: 'One event of a stream. The last one before `[DONE]` has the usage and no choices.' },
);
