import type { AccountLedger, BudgetChange, Ledger, NewAccount } from '../store/ledger.ts';
import type { Repositories } from '../store/repositories/repositories.ts';
import type { Change } from '../store/feed.ts';
import { StoreError } from '../store/store-error.ts';
import type { OperationActor } from './actor.ts';
import type { Secret } from './secret.ts';

/** The account part of the store: the ledger thread's writes other than money. */
export interface AccountWriter {
  createAccount(account: NewAccount): Promise<unknown>;
  setAccountStatus(
    accountId: string,
    status: 'active' | 'suspended',
    at: number,
    changeId: Uint8Array,
  ): Promise<unknown>;
  /** Sets how far below zero a customer may go. Rejects with `insufficient` if the credit to be removed is in use. */
  setCreditLimit(accountId: string, toMicrocents: bigint, at: number, changeId: Uint8Array): Promise<void>;
  /** Rejects with `not_found` if there is no such live key or customer. */
  setBudget(change: BudgetChange): Promise<void>;
}

export interface OperationServices {
  readonly ledger: Ledger & AccountWriter & Pick<AccountLedger, 'reverse' | 'reinstate'>;
  readonly repositories: Repositories;
  readonly secret: Secret;
  /** Generates UUIDv7s. */
  readonly newId: () => Uint8Array;
  /** The clock shared by all processes on the ledger. */
  readonly now: () => number;
  /** The actor; omitted: the service itself. */
  readonly actor?: OperationActor | undefined;
  /** Applies changes to the memory of the service, which reads them again. Commands that work on the database alone omit it. */
  readonly followed?: ((changes: readonly Change[]) => Promise<unknown>) | undefined;
}

/** An operator's request that cannot be fulfilled; the message is for display. */
export class OperationError extends Error {
  override readonly name = 'OperationError';
  /** The API field that is wrong, if any. */
  readonly param: string | undefined;

  constructor(message: string, { param, ...options }: ErrorOptions & { readonly param?: string | undefined } = {}) {
    super(message, options);
    this.param = param;
  }
}

/** The named account, or the only one. */
export async function accountMeant(
  named: string | undefined,
  repositories: Pick<Repositories, 'listCustomers' | 'getAccount'>,
): Promise<string> {
  if (named !== undefined) {
    const account = await repositories.getAccount({ accountId: named });
    if (account === undefined || account.isSystem || account.deletedAt !== null)
      throw new OperationError(`There is no account ${named}. List them with: tokenhouse credits show`, {
        cause: new StoreError('not_found', `there is no account ${named}`),
      });
    return named;
  }
  const accounts = await repositories.listCustomers({ limit: 2 });
  const [only] = accounts;
  if (only === undefined) throw new OperationError('There is no account yet. Start the service once: npm start');
  if (accounts.length > 1)
    throw new OperationError(
      'There are several accounts: choose one with --account. List them with: tokenhouse credits show',
    );
  return only.id;
}

/** Explains a request that is not found: its details may no longer be kept. */
export async function olderThanKept(repositories: Pick<Repositories, 'retentionOf'>): Promise<string> {
  const { keptSince } = await repositories.retentionOf({});
  return keptSince === 0 ? '' : ` since ${new Date(keptSince).toISOString()}; of older ones, only sums are kept`;
}

/** Checks text displayed in terminals and pages: no control characters, and nothing that PostgreSQL refuses (reliability D9). */
export function checkedText(text: string, what: string, lengthMax: number, param?: string): string {
  // Counts characters like the API document's `maxLength`: an emoji is one, or a few that are joined.
  const isTooLong = text.length > lengthMax && (text.length > 2 * lengthMax || [...text].length > lengthMax);
  if (text === '' || isTooLong || /\p{Cc}/u.test(text) || !text.isWellFormed()) {
    throw new OperationError(`${what} must have 1 to ${lengthMax} characters, without control characters.`, { param });
  }
  return text;
}
