import type { AccountLedger, BudgetChange, Ledger, NewAccount } from '../store/ledger.ts';
import type { Repositories } from '../store/repositories/repositories.ts';
import type { Change } from '../store/feed.ts';
import { StoreError } from '../store/store-error.ts';
import type { OperationActor } from './actor.ts';
import type { Secret } from './secret.ts';

/** The account part of the store: the ledger thread's writes besides money. */
export interface AccountWriter {
  createAccount(account: NewAccount): Promise<unknown>;
  setAccountStatus(
    accountId: string,
    status: 'active' | 'suspended',
    at: number,
    changeId: Uint8Array,
  ): Promise<unknown>;
  /** Sets how far below zero a customer may go. Rejects as `insufficient` when the credit to be taken away is in use. */
  setCreditLimit(accountId: string, toMicrocents: bigint, at: number, changeId: Uint8Array): Promise<void>;
  /** Rejects as `not_found` when there is no such live key or customer. */
  setBudget(change: BudgetChange): Promise<void>;
}

export interface OperationServices {
  readonly ledger: Ledger & AccountWriter & Pick<AccountLedger, 'reverse' | 'reinstate'>;
  readonly repositories: Repositories;
  readonly secret: Secret;
  /** Makes UUIDv7s. */
  readonly newId: () => Uint8Array;
  /** The time shared by all processes on the ledger. */
  readonly now: () => number;
  /** The actor; left out: the service itself. */
  readonly actor?: OperationActor | undefined;
  /**
   * Brings what was changed into force in the memory of the service, which reads it again. A command that works on the database
   * alone has none.
   */
  readonly followed?: ((changes: readonly Change[]) => Promise<unknown>) | undefined;
}

/** A request of the operator that cannot be fulfilled; the message is for display. */
export class OperationError extends Error {
  override readonly name = 'OperationError';
  /** The field of the API that is wrong, where it is one. */
  readonly param: string | undefined;

  constructor(message: string, { param, ...options }: ErrorOptions & { readonly param?: string | undefined } = {}) {
    super(message, options);
    this.param = param;
  }
}

/** The named account, or the only one there is. */
export async function accountMeant(
  named: string | undefined,
  repositories: Pick<Repositories, 'listAccounts' | 'getAccount'>,
): Promise<string> {
  if (named !== undefined) {
    const account = await repositories.getAccount({ accountId: named });
    if (account === undefined || account.isSystem || account.deletedAt !== null)
      throw new OperationError(`There is no account ${named}. List them with: tokenhouse credits show`, {
        cause: new StoreError('not_found', `there is no account ${named}`),
      });
    return named;
  }
  const accounts = await repositories.listAccounts({ limit: 2 });
  const [only] = accounts;
  if (only === undefined) throw new OperationError('There is no account yet. Start the service once: npm start');
  if (accounts.length > 1)
    throw new OperationError(
      'There are several accounts: choose one with --account. List them with: tokenhouse credits show',
    );
  return only.id;
}

/** For a request that is not found: it may be one whose details are no longer kept. */
export async function olderThanKept(repositories: Pick<Repositories, 'retentionOf'>): Promise<string> {
  const { keptSince } = await repositories.retentionOf({});
  return keptSince === 0 ? '' : ` since ${new Date(keptSince).toISOString()}; of older ones, only sums are kept`;
}

/** For text displayed in terminals and pages: no control characters, nothing that PostgreSQL refuses (reliability D9). */
export function checkedText(text: string, what: string, lengthMax: number, param?: string): string {
  // Characters as the document's `maxLength` counts them: an emoji is one, or a few that are joined.
  const isTooLong = text.length > lengthMax && (text.length > 2 * lengthMax || [...text].length > lengthMax);
  if (text === '' || isTooLong || /\p{Cc}/u.test(text) || !text.isWellFormed()) {
    throw new OperationError(`${what} must have 1 to ${lengthMax} characters, without control characters.`, { param });
  }
  return text;
}
