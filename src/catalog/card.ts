import { isDeepStrictEqual } from 'node:util';
import type { Tier } from '../generation/tier.ts';
import {
  chatFlags,
  embeddingsFlags,
  flagsOnCard,
  generalFlags,
  messagesFlags,
  rerankFlags,
  responsesFlags,
} from './card-flags.ts';
import type { Model } from './model.ts';
import { defaultsOnCard } from './model-defaults.ts';
import { roundedCents } from './pricing.ts';
import type { Prices } from './pricing.ts';

/**
 * The card of a model (specification §2.2 to §2.4). `created` is the time of the request, in seconds since 1970. `multiples`: what the prices of
 * its service tiers are of these, in ten-thousandths; absent: it has none.
 */
export function modelCard(model: Model, prices: Prices, created: number, multiples?: Multiples) {
  const { capabilities } = model;
  const { chat, responses, messages, embeddings, rerank } = capabilities;
  const defaults = defaultsOnCard(model.defaults);
  return {
    id: model.id,
    object: 'model',
    created,
    // Three fields that clients of the messages family expect (contracts §1.2).
    type: 'model',
    display_name: model.displayName,
    created_at: new Date(created * 1000).toISOString(),
    owned_by: model.ownedBy,
    max_model_len: model.contextLength,
    zdr_supported: capabilities.zdr,
    supports_vision: capabilities.vision,
    service: {
      display_name: model.displayName,
      ...(model.description === undefined ? {} : { description: model.description }),
      ...(model.tier === undefined ? {} : { tier: model.tier }),
      context_length: model.contextLength,
      max_output_tokens: model.maxOutputTokens,
      ...(model.deprecationDate === undefined ? {} : { deprecation_date: model.deprecationDate }),
      ...(model.successor === undefined ? {} : { successor: model.successor }),
      ...(model.aliasOf === undefined ? {} : { alias_of: model.aliasOf }),
      ...(model.adapterOf === undefined ? {} : { adapter_of: model.adapterOf }),
      ...(Object.keys(defaults).length === 0 ? {} : { defaults }),
      capabilities: {
        ...flagsOnCard(generalFlags, capabilities),
        chat_completions: flagsOnCard(chatFlags, chat),
        responses: flagsOnCard(responsesFlags, responses),
        messages: flagsOnCard(messagesFlags, messages),
        embeddings: flagsOnCard(embeddingsFlags, embeddings),
        rerank: flagsOnCard(rerankFlags, rerank),
        zdr: {
          supported: capabilities.zdr,
          same_capabilities: capabilities.zdr && isDeepStrictEqual(capabilities, model.zdrCapabilities),
        },
        reasoning_effort: { efforts: capabilities.efforts, default: capabilities.defaultEffort },
      },
      pricing: {
        currency: 'usd',
        input_cents_per_million: centsPerMillion(prices.input),
        output_cents_per_million: centsPerMillion(prices.output),
        // §2.4: rounded to whole cents here, exact in the next field.
        cache_read_cents_per_million: roundedCents(prices.cacheRead),
        cache_read_microcents_per_million: Number(prices.cacheRead),
        ...(multiples === undefined ? {} : { service_tiers: multiplesOf(multiples) }),
      },
    },
  };
}

/**
 * The full response of `GET /v1/models` (specification §2.1); its last three fields tell paging clients there is no more (contracts §1.2).
 */
export const modelList = (cards: readonly ReturnType<typeof modelCard>[]) => ({
  object: 'list',
  data: cards,
  has_more: false,
  first_id: cards[0]?.id ?? null,
  last_id: cards.at(-1)?.id ?? null,
});

type Multiples = Readonly<Partial<Record<Exclude<Tier, 'default'>, bigint>>>;

const multiplesOf = (multiples: Multiples) =>
  Object.fromEntries(Object.entries(multiples).map(([tier, price]) => [tier, { multiple: Number(price) / 10_000 }]));

/** A price is at most a few billion microcents, so the quotient is the double nearest to its decimal text. */
const centsPerMillion = (microcents: bigint): number => Number(microcents) / 1_000_000;
