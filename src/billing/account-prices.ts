import type { AccountPrice } from '../store/repositories/account-prices.ts';
import type { Model } from '../catalog/model.ts';
import type { Prices } from '../catalog/pricing.ts';

/**
 * The rates that accounts have instead of the list prices, all in memory: a request is priced without I/O. At each moment the
 * rates apply that began last and have not ended; without any, the list prices do.
 */
export class AccountPrices {
  readonly #byAccountAndModel = new Map<string, readonly AccountPrice[]>();

  /** Replaces all rates of all accounts. */
  load(prices: readonly AccountPrice[]): void {
    this.#byAccountAndModel.clear();
    for (const price of prices) this.#add(price);
  }

  /** Replaces all rates of an account. */
  replace(accountId: string, prices: readonly AccountPrice[]): void {
    const ofAccount = keyOf(accountId, '');
    for (const key of this.#byAccountAndModel.keys())
      if (key.startsWith(ofAccount)) this.#byAccountAndModel.delete(key);
    for (const price of prices) this.#add(price);
  }

  /** What a request of this account to this model costs, when it starts at this time. */
  of(model: Pick<Model, 'id' | 'prices'>, accountId: string, at: number): Prices {
    const rates = this.#byAccountAndModel
      .get(keyOf(accountId, model.id.toLowerCase()))
      ?.find(({ validFrom, validTo }) => validFrom <= at && (validTo === null || at < validTo));
    if (rates === undefined) return model.prices;
    const { input, output, cacheRead } = rates;
    return { input, output, cacheRead };
  }

  #add(price: AccountPrice): void {
    const key = keyOf(price.accountId, price.modelId);
    const others = this.#byAccountAndModel.get(key) ?? [];
    // Newest beginning first, so that the first one that applies is the one that began last.
    this.#byAccountAndModel.set(
      key,
      [...others, price].sort((a, b) => b.validFrom - a.validFrom),
    );
  }
}

/** Ids of accounts have no blanks. */
const keyOf = (accountId: string, modelId: string): string => `${accountId} ${modelId}`;
