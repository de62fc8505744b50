import type { Model, ModelTiers } from '../catalog/model.ts';
import { timesPrice, wholePrice, type Prices } from '../catalog/pricing.ts';
import type { Tier } from '../generation/tier.ts';
import type { AccountPrice } from '../store/repositories/account-prices.ts';
import { everyModel } from '../store/row-facts.ts';

type Rates = readonly AccountPrice[] | undefined;

/**
 * Returns the prices of a request to this model that starts at this time, for an account with these rates. The rate in force is the one
 * that began last and has not ended; without one, the list prices apply.
 */
export function pricesAt(model: Pick<Model, 'id' | 'prices'>, rates: Rates, at: number): Prices {
  if (rates === undefined) return model.prices;
  const latest = inForce(rates, model.id, at, ({ input }) => input !== null);
  if (latest === undefined || latest.input === null) return model.prices;
  const { input, output, cacheRead } = latest;
  return { input, output, cacheRead };
}

/** A line of a batch costs half where nothing else is said. */
const batchPrice = wholePrice / 2n;

type Tiered = Pick<Model, 'id' | 'tiers'>;
type PricedTier = keyof ModelTiers;

/**
 * What the prices of a tier are of the usual ones, in ten-thousandths: what the account's rates for the model say, else its rates for all models,
 * else the card.
 */
export function multipleAt({ id, tiers }: Tiered, tier: PricedTier, rates: Rates, at: number): bigint {
  const own = rates === undefined ? undefined : ownMultiple(id, tier, rates, at);
  return own ?? tiers?.[tier]?.price ?? (tier === 'batch' ? batchPrice : wholePrice);
}

/** The multiples of all tiers that the model has for such an account, as on its card; undefined: there is no tier besides `default`. */
export function multiplesAt(
  model: Tiered,
  rates: Rates,
  at: number,
): Readonly<Partial<Record<PricedTier, bigint>>> | undefined {
  const sold = Object.keys(model.tiers ?? {}) as PricedTier[];
  // Lines of batches run at every model.
  if (!sold.includes('batch') && rates !== undefined && ownMultiple(model.id, 'batch', rates, at) !== undefined)
    sold.push('batch');
  if (sold.length === 0) return undefined;
  return Object.fromEntries(sold.map((tier) => [tier, multipleAt(model, tier, rates, at)]));
}

/** What a request is charged at: the prices, and the multiple that is in them; undefined: that of `default`, which is 1. */
export function tierPricesAt(
  model: Pick<Model, 'id' | 'prices' | 'tiers'>,
  tier: Tier,
  rates: Rates,
  at: number,
): { readonly prices: Prices; readonly multiple: number | undefined } {
  const prices = pricesAt(model, rates, at);
  if (tier === 'default') return { prices, multiple: undefined };
  const multiple = multipleAt(model, tier, rates, at);
  return { prices: timesPrice(prices, multiple), multiple: Number(multiple) };
}

function ownMultiple(id: string, tier: PricedTier, rates: readonly AccountPrice[], at: number): bigint | undefined {
  const says = ({ tierMultiples }: AccountPrice): boolean => tierMultiples?.[tier] !== undefined;
  const own = inForce(rates, id, at, says) ?? inForce(rates, everyModel, at, says);
  const multiple = own?.tierMultiples?.[tier];
  return multiple === undefined ? undefined : BigInt(multiple);
}

/** The rates for a model that began last and have not ended, among those for which `says` holds. */
function inForce(
  rates: readonly AccountPrice[],
  model: string,
  at: number,
  says: (rate: AccountPrice) => boolean,
): AccountPrice | undefined {
  const modelId = model.toLowerCase();
  let latest: AccountPrice | undefined;
  for (const rate of rates) {
    if (rate.modelId !== modelId || rate.validFrom > at || (rate.validTo !== null && rate.validTo <= at)) continue;
    if (says(rate) && (latest === undefined || rate.validFrom > latest.validFrom)) latest = rate;
  }
  return latest;
}
