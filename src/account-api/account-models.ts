import { retirementOf } from '../catalog/catalog.ts';
import type { Prices } from '../catalog/pricing.ts';
import type { Config, ModelConfig } from '../config/config.ts';
import type { Account } from '../store/repositories/accounts.ts';
import type { AccountPrice } from '../store/repositories/account-prices.ts';
import { notThere } from './input.ts';
import type { Call } from './route.ts';

type Asked = Pick<Call, 'account' | 'services'>;

export async function accountOf({ account, services }: Asked): Promise<Account> {
  const found = await services.operations.repositories.getAccount({ accountId: account.id });
  if (found === undefined) throw notThere();
  return found;
}

/** The models that an account may use at a given time, by id. */
export const usableModels = (account: Account, { models }: Config, at: number): readonly ModelConfig[] =>
  models
    .filter(
      (model) =>
        at < retirementOf(model) &&
        (model.dedicatedTo.length === 0 || model.dedicatedTo.includes(account.id)) &&
        (account.models === null || account.models.includes(model.id.toLowerCase())),
    )
    .toSorted((a, b) => (a.id < b.id ? -1 : 1));

/** Rates that say what tokens cost. */
export type PriceOfTokens = AccountPrice & { readonly input: bigint };

/** What a model costs an account. */
export interface Rates {
  readonly list: Prices;
  /** Replaces the list prices; undefined: the list applies. */
  readonly own: PriceOfTokens | undefined;
  readonly upcoming: readonly PriceOfTokens[];
  /** All rates of the account, also those of tiers. */
  readonly all: readonly AccountPrice[];
}

/** Reads the account's rates; the result returns those of a model. */
export async function ratesOf(call: Asked, at: number): Promise<(model: ModelConfig) => Rates> {
  const prices = await ratesOfAccount(call, call.account.id, at);
  return (model) => {
    const own = prices.filter(
      (price): price is PriceOfTokens => price.modelId === model.id.toLowerCase() && price.input !== null,
    );
    return {
      list: model.pricing,
      // The rates that began most recently apply (money.md, "Rates").
      own: own.findLast(({ validFrom, validTo }) => validFrom <= at && (validTo === null || at < validTo)),
      upcoming: own.filter(({ validFrom }) => validFrom > at),
      all: prices,
    };
  };
}

const pagesMax = 100;

/** Present and future ones, sorted by model and start. */
export async function ratesOfAccount(
  { services }: Pick<Call, 'services'>,
  accountId: string,
  at: number,
): Promise<readonly AccountPrice[]> {
  const prices: AccountPrice[] = [];
  for (let pages = 0; pages < pagesMax; pages++) {
    const after = prices.at(-1);
    const page = await services.operations.repositories.listAccountPrices({
      accountId,
      endingAfter: at,
      limit: 1000,
      ...(after === undefined ? {} : { after }),
    });
    prices.push(...page);
    if (page.length < 1000) break;
  }
  return prices;
}
