import type { Repositories } from './repositories/repositories.ts';

/** A change of something other than money. It identifies what has changed, not the new state. */
export interface Change {
  /** `key_…` or `account_…`; later versions add more of both. */
  readonly kind: string;
  /** The id of the key or the account. */
  readonly ref: string;
}

export type FollowedRepositories = Pick<
  Repositories,
  'loadKeys' | 'countKeys' | 'getAccount' | 'getBudget' | 'modelBudgetsOf' | 'listAccountPrices'
>;

/** Keeps memory in line with the database. Both methods may be called again for the same changes without harm. */
export interface Follows {
  /** Reads everything. */
  loadAll(repositories: FollowedRepositories): Promise<void>;
  /** Reads the current state of what has changed. */
  follow(changes: readonly Change[], repositories: FollowedRepositories): Promise<void>;
}

/** Changes of keys, accounts and prices, from any process (money, "Revocation"). */
export interface Feed {
  /** Other processes make changes too; this process's own changes come back through the feed, in database order. */
  readonly isShared: boolean;
  /** Changes by others may be unknown here: nothing may be admitted from memory. */
  readonly isStale: boolean;
  /** Waits until it is not stale; false: the database did not answer in time. */
  freshen(): Promise<boolean>;
  /**
   * Resolves when everything that was durable at the call is in force here; false: the database did not answer in time. The only process on
   * its ledger does not poll for changes: it passes in the changes that it has made.
   */
  catchUp(made?: readonly Change[]): Promise<boolean>;
  close(): Promise<void>;
}
