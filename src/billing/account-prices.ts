import type { Model } from '../catalog/model.ts';
import type { Prices } from '../catalog/pricing.ts';
import type { AccountPrice } from '../store/repositories/account-prices.ts';

/**
 * Returns the prices of a request to this model that starts at this time, for an account with these rates. The rate in force is the one
 * that began last and has not ended; without one, the list prices apply.
 */
export function pricesAt(
  model: Pick<Model, 'id' | 'prices'>,
  rates: readonly AccountPrice[] | undefined,
  at: number,
): Prices {
  if (rates === undefined) return model.prices;
  const modelId = model.id.toLowerCase();
  let latest: AccountPrice | undefined;
  for (const rate of rates) {
    if (rate.modelId !== modelId || rate.validFrom > at || (rate.validTo !== null && rate.validTo <= at)) continue;
    if (latest === undefined || rate.validFrom > latest.validFrom) latest = rate;
  }
  if (latest === undefined) return model.prices;
  const { input, output, cacheRead } = latest;
  return { input, output, cacheRead };
}
