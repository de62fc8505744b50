import type { Repositories } from './repositories/repositories.ts';

/** A change of something other than money. It says where to look, not what is there now. */
export interface Change {
  /** `key_…` or `account_…`; a later version has more of both. */
  readonly kind: string;
  /** Id of the key or the account. */
  readonly ref: string;
}

export type FollowedRepositories = Pick<
  Repositories,
  'loadKeys' | 'countKeys' | 'getAccount' | 'getBudget' | 'listAccountPrices'
>;

/** Keeps what is in memory in line with the database. Both may be called again for the same changes without harm. */
export interface Follows {
  /** Reads everything. */
  loadAll(repositories: FollowedRepositories): Promise<void>;
  /** Reads what has changed, as it is now. */
  follow(changes: readonly Change[], repositories: FollowedRepositories): Promise<void>;
}

/** Changes of keys, accounts and prices, from any process (money, "Revocation"). */
export interface Feed {
  /** Other processes make changes too; those of this one come back through the feed, in the order of the database. */
  readonly isShared: boolean;
  /** Changes of others may be unknown here: nothing may be admitted from memory. */
  readonly isStale: boolean;
  /** Waits until it is not stale; `false`: the database did not answer in time. */
  freshen(): Promise<boolean>;
  /**
   * Resolves when all that was durable at the call is in force here; `false`: the database did not answer in time. The only
   * process on its ledger does not look for what has changed: it is given the changes that it has made.
   */
  catchUp(made?: readonly Change[]): Promise<boolean>;
  close(): Promise<void>;
}
