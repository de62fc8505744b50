import type { Change, FollowedRepositories, Follows } from '../store/feed.ts';
import { readMemberSubject, readModelSubject } from '../store/budget.ts';
import type { LoadedKey } from '../store/repositories/loaded-keys.ts';
import { ratesOf } from './account-rates.ts';
import type { Directory } from './directory.ts';

export interface FollowerOptions {
  readonly directory: Directory;
  /** Called when the budget of a key, a member or an account has changed; undefined: possibly any. */
  readonly budgetChanged?: (subject: string | undefined) => void;
  /** Ids of the keys that have running requests. */
  readonly runningKeys?: () => Iterable<string>;
  /** The clock shared by all replicas. */
  readonly now: () => number;
  readonly warn: (message: string) => void;
}

/** Page size of the repositories. */
const keysAtOnce = 1000;

/**
 * Keeps keys, accounts and rates in memory in line with the database. For each change it reads the current state of the subject, so it does
 * not matter how often, how late and in which order changes arrive, or which of them this version knows.
 */
export class Follower implements Follows {
  readonly #options: FollowerOptions;
  #isLoaded = false;

  constructor(options: FollowerOptions) {
    this.#options = options;
  }

  /** Throws, on the first load only, if keys were made with another secret: the service must not start in this state. */
  async loadAll(repositories: FollowedRepositories): Promise<void> {
    const { directory } = this.#options;
    const { keysMax } = directory;
    const fits = keysMax === Infinity || (await repositories.countKeys({ most: keysMax })) !== undefined;
    if (fits) await this.#loadWhole(repositories);
    else await this.#beginPartly(repositories);
    if (this.#isLoaded) this.#options.budgetChanged?.(undefined);
    this.#isLoaded = true;
  }

  async follow(changes: readonly Change[], repositories: FollowedRepositories): Promise<void> {
    const refsOf = (prefix: string): readonly string[] => [
      ...new Set(changes.filter(({ kind }) => kind.startsWith(prefix)).map(({ ref }) => ref)),
    ];
    // A budget for one model is read with the rest of its key or account.
    const ownersOf = (prefix: string): readonly string[] => [
      ...new Set(refsOf(prefix).map((ref) => readModelSubject(ref)?.ownerId ?? ref)),
    ];
    await this.#followKeys(ownersOf('key_'), repositories);
    for (const subject of refsOf('member_budget')) await this.#followMember(subject, repositories);
    for (const accountId of ownersOf('account_')) await this.#followAccount(accountId, repositories);
    // Called after the change is in force: otherwise a part that has not seen the change would request the returned lease again.
    for (const subject of [...refsOf('key_budget'), ...refsOf('member_budget'), ...refsOf('account_budget')])
      this.#options.budgetChanged?.(subject);
  }

  async #loadWhole(repositories: FollowedRepositories): Promise<void> {
    const { directory, runningKeys, now } = this.#options;
    if (!directory.isWhole) directory.forgetAll();
    const known = new Set([...directory.ids(), ...(runningKeys?.() ?? [])]);
    const rates = await ratesOf('all', repositories, now());
    for (let after: string | undefined; ;) {
      const page = await repositories.loadKeys({ limit: keysAtOnce, ...(after === undefined ? {} : { after }) });
      directory.load(this.#own(page), rates);
      for (const { id } of page) known.delete(id);
      after = page.at(-1)?.id;
      if (after === undefined) break;
    }
    await this.#followKeys([...known], repositories);
    directory.loadedAll();
  }

  /** Keys are loaded when presented; changes to those with running requests are read immediately. */
  async #beginPartly(repositories: FollowedRepositories): Promise<void> {
    const { directory, runningKeys } = this.#options;
    directory.forgetAll();
    // Not all of them, but no service gets its first thousand keys from another.
    this.#own(await repositories.loadKeys({ limit: keysAtOnce }));
    await this.#followKeys([...new Set(runningKeys?.())], repositories);
  }

  /** Revokes keys that are not live in the database. */
  async #followKeys(ids: readonly string[], repositories: FollowedRepositories): Promise<void> {
    const { directory, now } = this.#options;
    for (let from = 0; from < ids.length; from += keysAtOnce) {
      const some = ids.slice(from, from + keysAtOnce);
      const found = await repositories.loadKeys({ ids: some });
      const accountIds = found.map(({ accountId }) => accountId);
      directory.update(this.#own(found), await ratesOf(accountIds, repositories, now()));
      const live = new Set(found.map(({ id }) => id));
      for (const keyId of some) if (!live.has(keyId)) directory.revoke(keyId);
    }
  }

  /** Reloads the member's keys, which hold the member's budget. */
  async #followMember(subject: string, repositories: FollowedRepositories): Promise<void> {
    const member = readMemberSubject(subject);
    if (member === undefined) return;
    for (let after: string | undefined; ;) {
      const found = await repositories.loadKeys({
        member,
        limit: keysAtOnce,
        ...(after === undefined ? {} : { after }),
      });
      await this.#followKeys(
        found.map(({ id }) => id),
        repositories,
      );
      after = found.at(-1)?.id;
      if (found.length < keysAtOnce) return;
    }
  }

  async #followAccount(accountId: string, repositories: FollowedRepositories): Promise<void> {
    const { directory, now } = this.#options;
    const account = await repositories.getAccount({ accountId });
    if (account === undefined || account.isSystem) return;
    const budget = await repositories.getBudget({ subject: accountId });
    const modelBudgets = await repositories.modelBudgetsOf({ ownerIds: [accountId], at: now() });
    const rates = await ratesOf([accountId], repositories, now());
    directory.setAccount({ ...account, budget, modelBudgets, rates: rates.get(accountId) ?? [] });
  }

  /** Once started, the service keeps following its own keys even if some were made with another secret. */
  #own(keys: readonly LoadedKey[]): readonly LoadedKey[] {
    const { directory, warn } = this.#options;
    if (!this.#isLoaded) directory.refuseStrange(keys);
    const own = keys.filter((key) => directory.isOwn(key));
    if (own.length < keys.length)
      warn(
        `${keys.length - own.length} API keys were created with another secret than this service has, and do not work here. ` +
          'Revoke them, and create new ones with the present TOKENHOUSE_SECRET.',
      );
    return own;
  }
}
