import Type from 'typebox';

import { logitBiasText, modelText, samplingTexts, serviceTierText, streamText } from '../common-fields.ts';
import { named, plainError, self } from '../description.ts';
import type { EndpointDescription } from '../description.ts';
import { completion, completionChunk, completionLogprobs, completionUsage } from './answer-schema.ts';
import { completionRequestSchema } from './schema.ts';

const oneForm = 'At most one of `ebnf`, `regex`, `json_schema`, `response_format` and `structured_outputs` is taken.';

/** `POST /v1/completions` in the API description. */
export const completionsDescription: EndpointDescription = {
  operationId: 'createCompletion',
  tag: 'Completions',
  summary: 'Continue a text',
  description:
    'Prompts as text or as token ids, without a chat template, one or several at once; answers in a form that is enforced token by token. Fields that are not listed here are accepted and have no effect; null counts as absent.',
  request: completionRequestSchema,
  answer: completion,
  events: {
    description:
      'With `stream: true`: lines `data: <JSON>`, each followed by an empty line, then `data: [DONE]`. Texts, token ids and logprobs of the chunks, put together, are those of the whole answer. Lines that begin with a colon are comments. A failure in mid-stream is one event with `error`, then `[DONE]`, and nothing is charged.',
    schema: (error) => Type.Union([completionChunk, error]),
  },
  error: plainError,
  named: {
    CompletionRequest: named(completionRequestSchema, {
      model: modelText,
      prompt: 'A text, the ids of its tokens, or a list of either. No template is applied.',
      max_tokens:
        'Maximum of tokens to generate for each answer; 16 when absent. 0 is accepted with `echo`: the prompt is only scored.',
      ...samplingTexts,
      stop: 'Texts that end the answer.',
      n: 'Number of answers to each prompt.',
      best_of: 'Not supported above 1.',
      suffix: 'Not supported.',
      logprobs: 'How many of the most likely tokens to report at each position; 0: only the chosen one.',
      echo: 'Whether the text begins with the prompt; with `logprobs` its tokens are reported too.',
      logit_bias: logitBiasText,
      stream: streamText,
      service_tier: serviceTierText,
      stream_options: 'Not needed: the usage is always included.',
      ebnf: `Rules in EBNF that the answer follows; the start rule is \`root\`. ${oneForm}`,
      regex: `A regular expression that the whole answer matches. ${oneForm}`,
      json_schema: `The text of a JSON Schema that the answer matches. ${oneForm}`,
      response_format: `The format of the answer, as on chat completions. ${oneForm}`,
      'response_format.type': '`text`, `json_object`, `json_schema` or `grammar`.',
      'response_format.json_schema': 'With the type `json_schema`.',
      'response_format.json_schema.name': 'Name of the schema.',
      'response_format.json_schema.strict': 'Accepted; the schema is always enforced.',
      'response_format.json_schema.schema': 'A JSON Schema.',
      'response_format.grammar': 'With the type `grammar`: rules in EBNF.',
      structured_outputs: `The format of the answer, in the form of vLLM. ${oneForm}`,
      'structured_outputs.json': 'A JSON Schema, or its text.',
      'structured_outputs.json_object': 'Whether the answer is any JSON object.',
      'structured_outputs.regex': 'A regular expression.',
      'structured_outputs.choice': 'Texts, of which the answer is one.',
      'structured_outputs.grammar': 'Rules in EBNF.',
      'structured_outputs.structural_tag': 'Not supported.',
      return_token_ids: 'Whether the ids of the tokens are returned.',
      return_tokens_as_token_ids: 'Whether tokens in `logprobs` are written `token_id:<id>`.',
      stop_token_ids: 'Tokens that end the answer.',
      ignore_eos: 'Whether to continue when the model would end the answer.',
      min_tokens: 'Tokens to generate before the answer may end.',
      skip_special_tokens: 'Whether special tokens are left out of the text; true when absent.',
      include_stop_str_in_output: 'Whether the stop sequence that ended the answer is part of it.',
      no_stop_trim: 'Another name of `include_stop_str_in_output`.',
      add_special_tokens:
        'Whether a prompt that is text gets the special tokens that the model begins with; true when absent.',
    }),
    Completion: self(completion),
    CompletionChunk: self(completionChunk),
    CompletionUsage: self(completionUsage),
    CompletionLogprobs: self(completionLogprobs),
  },
  examples: [
    {
      name: 'text',
      summary: 'Continue a text',
      needs: [],
      body: (model) => ({ model, prompt: 'The sky is blue because', max_tokens: 64 }),
    },
    {
      name: 'stream',
      summary: 'Two prompts, as they are generated',
      needs: ['streaming'],
      body: (model) => ({ model, prompt: ['One, two,', 'Monday, Tuesday,'], max_tokens: 16, stream: true }),
    },
    {
      name: 'regex',
      summary: 'An answer that matches a regular expression',
      needs: ['regex'],
      body: (model) => ({
        model,
        prompt: 'The year of the first moon landing: ',
        regex: '(19|20)[0-9]{2}',
        max_tokens: 8,
      }),
    },
    {
      name: 'grammar',
      summary: 'An answer that follows a grammar',
      needs: ['grammar'],
      body: (model) => ({
        model,
        prompt: 'Is the sky blue? ',
        ebnf: 'root ::= "yes" | "no"',
        max_tokens: 8,
      }),
    },
  ],
};
