import type { AccountPrice } from '../store/repositories/account-prices.ts';
import type { Repositories } from '../store/repositories/repositories.ts';

/** Rates that accounts pay instead of the list prices; accounts without an entry pay the list prices. */
export type RatesOfAccounts = ReadonlyMap<string, readonly AccountPrice[]>;

/** Page size of the repositories. */
const accountsAtOnce = 1000;

/** Loads the current and future rates of these accounts, or of all accounts. */
export async function ratesOf(
  accountIds: Iterable<string> | 'all',
  repositories: Pick<Repositories, 'listAccountPrices'>,
  endingAfter: number,
): Promise<RatesOfAccounts> {
  const rates = new Map<string, AccountPrice[]>();
  if (accountIds === 'all') {
    await read(undefined, repositories, endingAfter, rates);
    return rates;
  }
  const ids = [...new Set(accountIds)];
  for (let from = 0; from < ids.length; from += accountsAtOnce)
    await read(ids.slice(from, from + accountsAtOnce), repositories, endingAfter, rates);
  return rates;
}

async function read(
  accountIds: readonly string[] | undefined,
  repositories: Pick<Repositories, 'listAccountPrices'>,
  endingAfter: number,
  into: Map<string, AccountPrice[]>,
): Promise<void> {
  for (let after: AccountPrice | undefined; ;) {
    const page = await repositories.listAccountPrices({
      endingAfter,
      ...(accountIds === undefined ? {} : { accountIds }),
      ...(after === undefined ? {} : { after }),
    });
    for (const price of page) {
      const known = into.get(price.accountId);
      if (known === undefined) into.set(price.accountId, [price]);
      else known.push(price);
    }
    after = page.at(-1);
    if (after === undefined) return;
  }
}
