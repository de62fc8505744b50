import Type from 'typebox';

import {
  chatFlags,
  embeddingsFlags,
  generalFlags,
  messagesFlags,
  rerankFlags,
  responsesFlags,
  type CardFlag,
} from './card-flags.ts';
import { defaultableNames } from '../generation/sampling-defaults.ts';

/** The response of `GET /v1/models` (specification §2.1 to §2.4), for the API description; `card.ts` builds it. */
const flag = (description: string) => Type.Boolean({ description });
const count = (description: string) => Type.Integer({ description });
const text = (description: string) => Type.String({ description });

const flagsOf = (flags: Readonly<Record<string, CardFlag>>) =>
  Object.fromEntries(
    Object.entries(flags).flatMap(([key, { onCard: description, values }]) => {
      if (description === undefined) return [];
      return [[key, values === undefined ? flag(description) : Type.Array(Type.String(), { description })]];
    }),
  );

const capabilities = Type.Object(
  {
    ...flagsOf(generalFlags),
    chat_completions: Type.Object(flagsOf(chatFlags), { description: 'On /v1/chat/completions.' }),
    responses: Type.Object(flagsOf(responsesFlags), { description: 'On /v1/responses.' }),
    messages: Type.Object(flagsOf(messagesFlags), { description: 'On /v1/messages.' }),
    embeddings: Type.Object(flagsOf(embeddingsFlags), { description: 'On /v1/embeddings.' }),
    rerank: Type.Object(flagsOf(rerankFlags), { description: 'On /v1/rerank.' }),
    zdr: Type.Object(
      {
        supported: flag('Whether `Service-ZDR: required` is taken.'),
        same_capabilities: flag('Whether all features are available with it.'),
      },
      { description: 'Zero data retention.' },
    ),
    reasoning_effort: Type.Object(
      {
        efforts: Type.Array(Type.String(), { description: 'Reasoning efforts of the model.' }),
        default: text('The effort of requests that do not set one.'),
      },
      { description: 'The choices of reasoning effort.' },
    ),
  },
  { description: 'Features that requests may use with this model; others are refused.' },
);

const defaults = Type.Object(
  {
    system: Type.Optional(text('Text of the system message of a conversation that has none.')),
    ...Object.fromEntries(
      defaultableNames.map((name) => [
        name,
        Type.Optional(Type.Number({ description: `Value of \`${name}\` where a request has none.` })),
      ]),
    ),
  },
  { description: 'What applies where a request says nothing, field by field. A field without a default is neutral.' },
);

const pricing = Type.Object(
  {
    currency: text('Always `usd`: prices are in US cents.'),
    input_cents_per_million: Type.Number({ description: 'For a million uncached prompt tokens.' }),
    output_cents_per_million: Type.Number({ description: 'For a million generated tokens, reasoning included.' }),
    cache_read_cents_per_million: count('For a million cached prompt tokens, rounded to whole cents.'),
    cache_read_microcents_per_million: count('The same, exactly: a cent has 1,000,000 microcents.'),
    service_tiers: Type.Optional(
      Type.Object(
        {},
        {
          additionalProperties: Type.Object({
            multiple: Type.Number({ description: 'What its prices are, as a multiple of these.' }),
          }),
          description: 'The service tiers that the model has besides `default`; absent: none.',
        },
      ),
    ),
  },
  { description: 'List prices without a key; with one, the rates of its account.' },
);

export const cardSchema = Type.Object(
  {
    id: text('The value of `model` in requests, in any case.'),
    object: Type.Literal('model', { description: 'Always `model`.' }),
    created: count('When the list was requested, in seconds since 1970: not a release date.'),
    type: Type.Literal('model', { description: 'Always `model`.' }),
    display_name: text('Name for people.'),
    created_at: text('`created` as a date.'),
    owned_by: text('Who the model belongs to.'),
    max_model_len: count('Tokens of prompt and answer together.'),
    zdr_supported: flag('Whether `Service-ZDR: required` is taken.'),
    supports_vision: flag('Takes images.'),
    service: Type.Object(
      {
        display_name: text('Name for people.'),
        description: Type.Optional(text('What the model is.')),
        tier: Type.Optional(text('Label of a class of models.')),
        context_length: count('The same as `max_model_len`.'),
        max_output_tokens: Type.Union([Type.Integer(), Type.Null()], {
          description: 'Most tokens of an answer; null: as many as the window leaves.',
        }),
        deprecation_date: Type.Optional(
          text('`YYYY-MM-DD`, when a retirement is scheduled: gone from 00:00:00 UTC of that day.'),
        ),
        successor: Type.Optional(text('Id of the model that is to be used after the retirement.')),
        alias_of: Type.Optional(text('This card is of another name of the model with this id.')),
        adapter_of: Type.Optional(text('Id of the model that this one is a fine-tuned adapter (LoRA) of.')),
        defaults: Type.Optional(defaults),
        capabilities,
        pricing,
      },
      { description: 'Limits, capabilities and prices.' },
    ),
  },
  { description: 'The card of a model. Fields may be added.' },
);

const idOrNull = (description: string) => Type.Union([Type.String(), Type.Null()], { description });

export const modelListSchema = Type.Object(
  {
    object: Type.Literal('list', { description: 'Always `list`.' }),
    data: Type.Array(cardSchema, { description: 'The models that the key can use; without a key, all.' }),
    has_more: Type.Literal(false, { description: 'Always false: the list is whole.' }),
    first_id: idOrNull('Id of the first model.'),
    last_id: idOrNull('Id of the last model.'),
  },
  { description: 'The catalog.' },
);
