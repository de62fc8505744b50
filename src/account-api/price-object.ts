import Type from 'typebox';
import type { Static } from 'typebox';

import { scaledDecimal } from '../config/decimal.ts';
import { ApiError } from '../platform/errors.ts';
import type { AccountPrice } from '../store/repositories/account-prices.ts';
import type { TierMultiples } from '../store/schema/tables.ts';
import { nullable, secondsOf, secondsOrNull, wholeOf } from './wire.ts';

const rate = () => Type.Integer({ minimum: 0, maximum: 1_000_000_000_000_000 });
const multiple = (minimum: number, maximum: number) => Type.Optional(Type.Number({ minimum, maximum }));

/** What is asked of rates: prices, multiples of tiers, or both. */
export const priceFields = {
  account_id: Type.String({ minLength: 1, maxLength: 64 }),
  model: Type.String({
    minLength: 1,
    maxLength: 128,
    description: '`*`: all models; it takes multiples of tiers only.',
  }),
  input_microcents_per_million: Type.Optional(rate()),
  output_microcents_per_million: Type.Optional(rate()),
  cache_read_microcents_per_million: Type.Optional(rate()),
  tier_multiples: Type.Optional(
    Type.Object(
      { priority: multiple(1, 100), flex: multiple(0, 1), batch: multiple(0, 1) },
      {
        additionalProperties: false,
        description: 'What a service tier costs as a multiple of the usual price, with at most four decimals.',
      },
    ),
  ),
};
type Asked = Static<ReturnType<typeof Type.Object<typeof priceFields>>>;

const priceOrNull = () =>
  nullable(
    Type.Integer({ description: 'null: these rates say nothing of prices; earlier ones apply, else the list.' }),
  );

/** Rates that an account has instead of the list prices. */
export const priceSchema = Type.Object({
  object: Type.Literal('account_price'),
  account_id: priceFields.account_id,
  model: priceFields.model,
  input_microcents_per_million: priceOrNull(),
  output_microcents_per_million: priceOrNull(),
  cache_read_microcents_per_million: priceOrNull(),
  tier_multiples: nullable(
    Type.Object(
      { priority: multiple(1, 100), flex: multiple(0, 1), batch: multiple(0, 1) },
      { description: 'null, or one left out: earlier rates apply, then those for all models, else the card.' },
    ),
  ),
  valid_from: Type.Integer({ description: 'Unix seconds.' }),
  valid_to: nullable(Type.Integer({ description: 'Unix seconds; null: for good.' })),
});
export type PriceObject = Static<typeof priceSchema>;

type Rate = bigint | string | null;

/** The object of a price from the database, or from the operation that set it. */
export const priceObject = (
  price: Pick<AccountPrice, 'accountId' | 'modelId' | 'validFrom' | 'validTo' | 'tierMultiples'> & {
    readonly [Name in 'input' | 'output' | 'cacheRead']: Rate;
  },
): PriceObject => ({
  object: 'account_price',
  account_id: price.accountId,
  model: price.modelId,
  input_microcents_per_million: whole(price.input),
  output_microcents_per_million: whole(price.output),
  cache_read_microcents_per_million: whole(price.cacheRead),
  tier_multiples: price.tierMultiples ? multiplesShown(price.tierMultiples) : null,
  valid_from: secondsOf(price.validFrom),
  valid_to: secondsOrNull(price.validTo),
});

const whole = (rate: Rate): number | null => (rate === null ? null : wholeOf(BigInt(rate)));

const parts = 10_000;

/** The quotient is the double nearest to its decimal text. */
export const multipleShown = (multiple: number): number => multiple / parts;

/** The multiple that a request or a line of a statement was charged at; null: from before it was recorded, or several. */
export const tierMultipleOf = (tier: string | null | undefined, multiple: number | undefined): number | null =>
  multiple !== undefined ? multipleShown(multiple) : (tier ?? 'default') === 'default' && tier !== null ? 1 : null;

const multiplesShown = (multiples: TierMultiples) =>
  Object.fromEntries(Object.entries(multiples).map(([tier, multiple]) => [tier, multipleShown(multiple)]));

/** Multiples in ten-thousandths. Throws `unsupported_value` for one with more than four decimals. */
export function multiplesGiven(asked: Asked['tier_multiples']): TierMultiples | undefined {
  if (asked === undefined) return undefined;
  return Object.fromEntries(
    Object.entries(asked).map(([tier, multiple]) => {
      const scaled = scaledDecimal(String(multiple), 4);
      if (scaled === undefined)
        throw new ApiError('unsupported_value', 'A multiple has at most four decimals.', {
          param: `tier_multiples.${tier}`,
        });
      return [tier, Number(scaled)];
    }),
  );
}
