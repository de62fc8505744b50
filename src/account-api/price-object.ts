import Type from 'typebox';
import type { Static } from 'typebox';

import type { AccountPrice } from '../store/repositories/account-prices.ts';
import { nullable, secondsOf, secondsOrNull, wholeOf } from './wire.ts';

const rate = () => Type.Integer({ minimum: 0, maximum: 1_000_000_000_000_000 });

export const priceFields = {
  account_id: Type.String({ minLength: 1, maxLength: 64 }),
  model: Type.String({ minLength: 1, maxLength: 128 }),
  input_microcents_per_million: rate(),
  output_microcents_per_million: rate(),
};

/** Rates that an account has instead of the list prices. */
export const priceSchema = Type.Object({
  object: Type.Literal('account_price'),
  ...priceFields,
  cache_read_microcents_per_million: Type.Integer(),
  valid_from: Type.Integer({ description: 'Unix seconds.' }),
  valid_to: nullable(Type.Integer({ description: 'Unix seconds; null: for good.' })),
});
export type PriceObject = Static<typeof priceSchema>;

/** The object of a price from the database, or from the operation that set it. */
export const priceObject = (
  price: Pick<AccountPrice, 'accountId' | 'modelId' | 'validFrom' | 'validTo'> & {
    readonly [Rate in 'input' | 'output' | 'cacheRead']: bigint | string;
  },
): PriceObject => ({
  object: 'account_price',
  account_id: price.accountId,
  model: price.modelId,
  input_microcents_per_million: wholeOf(BigInt(price.input)),
  output_microcents_per_million: wholeOf(BigInt(price.output)),
  cache_read_microcents_per_million: wholeOf(BigInt(price.cacheRead)),
  valid_from: secondsOf(price.validFrom),
  valid_to: secondsOrNull(price.validTo),
});
