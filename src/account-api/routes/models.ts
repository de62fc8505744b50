import Type from 'typebox';

import { multiplesAt } from '../../billing/account-prices.ts';
import { featureFlags, type Capabilities, type FeatureFlag } from '../../catalog/card-flags.ts';
import { cardSchema } from '../../catalog/card-schema.ts';
import { modelCard } from '../../catalog/card.ts';
import { retirementOf } from '../../catalog/catalog.ts';
import { underItsNames } from '../../catalog/model.ts';
import type { Prices } from '../../catalog/pricing.ts';
import { inferenceRoutes } from '../../inference/http/routes.ts';
import { camel } from '../../platform/camel-case.ts';
import { accountOf, ratesOf, usableModels } from '../account-models.ts';
import { everyRole, route } from '../route.ts';
import type { AccountRoute } from '../route.ts';
import type { BackendState } from '../../config/backend-state.ts';
import { nullable, page, secondsOf, secondsOrNull, wholeListSchema, wholeOf } from '../wire.ts';

const rateSchema = Type.Object({
  input_microcents: Type.Integer(),
  output_microcents: Type.Integer(),
  cache_read_microcents: Type.Integer(),
});

const states = ['ready', 'starting', 'failed'] as const;

const conversation = ['streaming', 'tools', 'tool_streaming', 'vision', 'reasoning'] as const;
const schemas = ['json_schema', 'json_schema_refs'] as const;
const tokens = ['n', 'logprobs', 'logit_bias', 'regex', 'grammar', 'json_object'] as const;

/** The features that the wire format of each family has fields for. */
const carried: Readonly<Record<string, readonly FeatureFlag[]>> = {
  chat: [...conversation, ...schemas, ...tokens, 'tools_with_response_format'],
  completions: ['streaming', ...schemas, ...tokens],
  messages: [...conversation, ...schemas, 'tools_with_response_format'],
  responses: [...conversation, ...schemas, 'json_object', 'logprobs', 'tools_with_response_format'],
  embeddings: ['dimensions'],
  rerank: [],
};

export const modelRoutes: readonly AccountRoute[] = [
  route({
    method: 'get',
    path: '/v1/models/cards',
    operationId: 'listModelCards',
    tag: 'Models',
    summary: 'List the models of the account',
    description:
      'The models that the account may use now: the card of each, as `GET /v1/models` of the inference host shows it to a key of the account, and whether it answers. Models that are retired are left out.',
    access: everyRole,
    answers: [
      {
        status: 200,
        description: 'One row per model.',
        schema: wholeListSchema(
          Type.Object({
            object: Type.Literal('model_card'),
            model: Type.String(),
            state: Type.Enum([...states], {
              description: 'Of its backends: `ready` when one of them is, `failed` when all of them are.',
            }),
            retires_at: nullable(
              Type.Integer({ description: 'Unix seconds from which on the model is gone; null: no day is set.' }),
            ),
            sampling: Type.Enum(['honor', 'ignore', 'fixed'], {
              description:
                'What becomes of `temperature`, `top_p` and the penalties of a request: they apply, or have no effect.',
            }),
            endpoints: Type.Array(
              Type.Object({
                path: Type.String({ description: 'Of the inference host.' }),
                features: Type.Array(Type.Enum([...featureFlags]), {
                  description: 'What requests there may ask for. What is not listed is refused, or has no effect.',
                }),
              }),
              { description: 'Where the model can be used.' },
            ),
            card: cardSchema,
          }),
        ),
      },
    ],
    handle: async (call) => {
      const { operations, config, modelOf, backends } = call.services;
      const at = operations.now();
      const [account, rates, found] = await Promise.all([accountOf(call), ratesOf(call, at), backends?.()]);
      // Only tests of single routes have no catalog.
      if (modelOf === undefined) return page([]);
      return page(
        usableModels(account, config(), at).flatMap((configured) => {
          const { list, own, all } = rates(configured);
          return underItsNames(modelOf(configured)).map((model) => {
            const retiresAt = retirementOf(model);
            return {
              object: 'model_card' as const,
              model: model.id,
              state: stateOf(configured.id, found ?? []),
              retires_at: Number.isFinite(retiresAt) ? secondsOf(retiresAt) : null,
              sampling: model.sampling,
              endpoints: endpointsOf(model.capabilities),
              card: modelCard(model, own ?? list, secondsOf(at), multiplesAt(model, all, at)),
            };
          });
        }),
      );
    },
  }),
  route({
    method: 'get',
    path: '/v1/models/prices',
    operationId: 'listModelPrices',
    tag: 'Models',
    summary: 'Get the rates of the account',
    description:
      'The rates of each model that the account may use, in microcents per million tokens: current and scheduled ones. A request is charged by the rates in force when it starts.',
    access: everyRole,
    answers: [
      {
        status: 200,
        description: 'One row per model.',
        schema: wholeListSchema(
          Type.Object({
            object: Type.Literal('model_price'),
            model: Type.String(),
            list: rateSchema,
            now: Type.Object({
              ...rateSchema.properties,
              source: Type.Enum(['list', 'account']),
              until: nullable(Type.Integer({ description: 'Unix seconds; null: no end is set.' })),
            }),
            upcoming: Type.Array(
              Type.Object({ ...rateSchema.properties, from: Type.Integer(), until: nullable(Type.Integer()) }),
            ),
          }),
        ),
      },
    ],
    handle: async (call) => {
      const { operations, config } = call.services;
      const at = operations.now();
      const [account, rates] = await Promise.all([accountOf(call), ratesOf(call, at)]);
      return page(
        usableModels(account, config(), at).map((model) => {
          const { list, own, upcoming } = rates(model);
          return {
            object: 'model_price',
            model: model.id,
            list: rate(list),
            now:
              own === undefined
                ? { ...rate(list), source: 'list', until: null }
                : { ...rate(own), source: 'account', until: secondsOrNull(own.validTo) },
            upcoming: upcoming.map((price) => ({
              ...rate(price),
              from: secondsOf(price.validFrom),
              until: secondsOrNull(price.validTo),
            })),
          };
        }),
      );
    },
  }),
];

/** Determined by the flags of the route, which requests are checked against. */
const endpointsOf = (capabilities: Capabilities) =>
  [...inferenceRoutes].flatMap(([path, { kind, api, flags }]) => {
    const own = flags(capabilities);
    if (kind !== 'generate' || !own.supported) return [];
    const able = carried[api] ?? [];
    return [
      { path, features: featureFlags.filter((feature) => able.includes(feature) && own[camel(feature)] === true) },
    ];
  });

function stateOf(model: string, backends: readonly BackendState[]): (typeof states)[number] {
  const own = backends.filter(({ modelId }) => modelId === model);
  // A server that is started when it is asked for accepts requests.
  if (own.some(({ state }) => state === 'stopped' || state === 'sleeping')) return 'ready';
  return states.find((state) => own.some((backend) => backend.state === state)) ?? 'starting';
}

const rate = ({ input, output, cacheRead }: Prices) => ({
  input_microcents: wholeOf(input),
  output_microcents: wholeOf(output),
  cache_read_microcents: wholeOf(cacheRead),
});
