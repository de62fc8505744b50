import type { Change, FollowedRepositories, Follows } from '../store/feed.ts';
import type { AccountPrice } from '../store/repositories/account-prices.ts';
import type { Directory } from './directory.ts';

/** The rates of accounts in memory. */
export interface FollowedPrices {
  load(prices: readonly AccountPrice[]): void;
  replace(accountId: string, prices: readonly AccountPrice[]): void;
}

export interface FollowerOptions {
  readonly directory: Directory;
  readonly prices: FollowedPrices;
  /** The budget of a key or an account has changed; `undefined`: possibly any. */
  readonly budgetChanged?: (subject: string | undefined) => void;
  /** The time shared by all replicas. */
  readonly now: () => number;
  readonly warn: (message: string) => void;
}

/** The size of a page of the repositories. */
const keysAtOnce = 1000;

/**
 * Keeps keys, accounts and rates in memory in line with the database. For each change it reads the current state of its subject:
 * so it does not matter how often, how late and in which order changes arrive, and which of them this version knows.
 */
export class Follower implements Follows {
  readonly #options: FollowerOptions;
  #isLoaded = false;

  constructor(options: FollowerOptions) {
    this.#options = options;
  }

  /** Throws, the first time, when keys were made with another secret: the service must not start in this state. */
  async loadAll(repositories: FollowedRepositories): Promise<void> {
    const { directory, prices } = this.#options;
    const known = new Set(directory.ids());
    for (let after: string | undefined; ;) {
      const page = await repositories.loadKeys({ limit: keysAtOnce, ...(after === undefined ? {} : { after }) });
      if (this.#isLoaded) this.#load(page);
      else directory.load(page);
      for (const { id } of page) known.delete(id);
      after = page.at(-1)?.id;
      if (after === undefined) break;
    }
    await this.#followKeys([...known], repositories);
    prices.load(await ratesOf(undefined, repositories, this.#options.now()));
    if (this.#isLoaded) this.#options.budgetChanged?.(undefined);
    this.#isLoaded = true;
  }

  async follow(changes: readonly Change[], repositories: FollowedRepositories): Promise<void> {
    const refsOf = (prefix: string): readonly string[] => [
      ...new Set(changes.filter(({ kind }) => kind.startsWith(prefix)).map(({ ref }) => ref)),
    ];
    await this.#followKeys(refsOf('key_'), repositories);
    for (const accountId of refsOf('account_')) await this.#followAccount(accountId, repositories);
    // After it is in force: a returned lease is not requested again by a part that has not heard of the change.
    for (const subject of [...refsOf('key_budget'), ...refsOf('account_budget')])
      this.#options.budgetChanged?.(subject);
  }

  /** Keys that are not live in the database are revoked. */
  async #followKeys(ids: readonly string[], repositories: FollowedRepositories): Promise<void> {
    for (let from = 0; from < ids.length; from += keysAtOnce) {
      const some = ids.slice(from, from + keysAtOnce);
      const found = await repositories.loadKeys({ ids: some });
      this.#load(found);
      const live = new Set(found.map(({ id }) => id));
      for (const keyId of some) if (!live.has(keyId)) this.#options.directory.revoke(keyId);
    }
  }

  async #followAccount(accountId: string, repositories: FollowedRepositories): Promise<void> {
    const { directory, prices } = this.#options;
    const account = await repositories.getAccount({ accountId });
    if (account === undefined || account.isSystem) return;
    directory.setAccount({ ...account, budget: await repositories.getBudget({ subject: accountId }) });
    prices.replace(accountId, await ratesOf(accountId, repositories, this.#options.now()));
  }

  /** A key that was made with another secret must not prevent this service from following its own. */
  #load(keys: Parameters<Directory['load']>[0]): void {
    const { directory, warn } = this.#options;
    const own = keys.filter((key) => directory.isOwn(key));
    directory.load(own);
    if (own.length < keys.length)
      warn(
        `${keys.length - own.length} API keys were created with another secret than this service has, and do not work here. ` +
          'Revoke them, and create new ones with the present TOKENHOUSE_SECRET.',
      );
  }
}

/** All rates that are or will be in force. */
async function ratesOf(
  accountId: string | undefined,
  repositories: FollowedRepositories,
  endingAfter: number,
): Promise<readonly AccountPrice[]> {
  const rates: AccountPrice[] = [];
  for (let after: AccountPrice | undefined; ;) {
    const page = await repositories.listAccountPrices({
      endingAfter,
      ...(accountId === undefined ? {} : { accountId }),
      ...(after === undefined ? {} : { after }),
    });
    rates.push(...page);
    after = page.at(-1);
    if (after === undefined) return rates;
  }
}
