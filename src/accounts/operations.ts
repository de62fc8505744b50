import { houseAccounts } from '../store/ledger.ts';
import type { Ledger } from '../store/ledger.ts';
import type { Desk } from '../store/operations.ts';
import { StoreError } from '../store/store-error.ts';
import { newAccountId } from './base62.ts';
import type { Directory } from './directory.ts';
import { issueKey } from './key.ts';
import type { Secret } from './secret.ts';

/** What an operator changes while the service runs, or without it: the command line's writes. Plain JSON data. */
export type Operation =
  | { readonly kind: 'create_account'; readonly name: string }
  | {
      readonly kind: 'create_key';
      readonly accountId: string | undefined;
      readonly name: string;
      readonly expiresAt: number | undefined;
    }
  | { readonly kind: 'revoke_key'; readonly keyId: string }
  | {
      readonly kind: 'grant_credit';
      readonly accountId: string | undefined;
      readonly microcents: string;
      readonly reference: string | undefined;
      readonly idempotencyKey: string;
    }
  | { readonly kind: 'suspend_account' | 'revive_account'; readonly accountId: string };

export type OperationAnswer =
  | { readonly kind: 'account'; readonly accountId: string; readonly name: string }
  /** `key` is shown once and stored nowhere. */
  | {
      readonly kind: 'key';
      readonly keyId: string;
      readonly accountId: string;
      readonly name: string;
      readonly key: string;
    }
  | { readonly kind: 'revoked'; readonly keyId: string; readonly accountId: string; readonly name: string }
  | {
      readonly kind: 'granted';
      readonly accountId: string;
      readonly microcents: string;
      readonly balanceMicrocents: string;
      readonly again: boolean;
    }
  | { readonly kind: 'status'; readonly accountId: string; readonly status: 'active' | 'suspended' };

/** The account part of the store: what the ledger's thread writes besides money. */
export interface AccountWriter {
  createAccount(account: {
    readonly id: string;
    readonly name: string;
    readonly creditLimitMicrocents: bigint;
    readonly at: number;
    readonly changeId: Uint8Array;
  }): Promise<unknown>;
  setAccountStatus(
    accountId: string,
    status: 'active' | 'suspended',
    at: number,
    changeId: Uint8Array,
  ): Promise<unknown>;
}

export interface OperationServices {
  readonly ledger: Ledger & AccountWriter;
  readonly desk: Desk;
  readonly secret: Secret;
  /** Makes UUIDv7s. */
  readonly newId: () => Uint8Array;
  /** The live keys of the running service; a command that works on the database alone has none. */
  readonly directory: Directory | undefined;
}

/** A wish of the operator that cannot be fulfilled; the message is for a person. */
export class OperationError extends Error {
  override readonly name = 'OperationError';
}

/** Carries out one operation. It is durable, and in force in this process, when the promise resolves. */
export async function operate(operation: Operation, services: OperationServices): Promise<OperationAnswer> {
  try {
    return await carryOut(operation, services);
  } catch (error) {
    if (
      error instanceof StoreError &&
      (error.code === 'not_found' ||
        error.code === 'conflict' ||
        error.code === 'insufficient' ||
        error.code === 'invalid')
    ) {
      throw new OperationError(error.message, { cause: error });
    }
    throw error;
  }
}

async function carryOut(operation: Operation, services: OperationServices): Promise<OperationAnswer> {
  const { ledger, desk, secret, newId, directory } = services;
  const at = Date.now();
  switch (operation.kind) {
    case 'create_account': {
      const accountId = newAccountId();
      await ledger.createAccount({
        id: accountId,
        name: checkedName(operation.name),
        creditLimitMicrocents: 0n,
        at,
        changeId: newId(),
      });
      return { kind: 'account', accountId, name: operation.name };
    }
    case 'create_key': {
      const accountId = await accountMeant(operation.accountId, desk);
      const issued = issueKey({
        accountId,
        name: checkedName(operation.name),
        secret,
        now: at,
        expiresAt: operation.expiresAt ?? null,
      });
      await desk.createKey({ key: issued.row, changeId: newId() });
      const account = await desk.getAccount({ accountId });
      directory?.apply({ kind: 'key_created', key: { ...issued.row, accountStatus: account?.status ?? 'active' } });
      return { kind: 'key', keyId: issued.row.id, accountId, name: operation.name, key: issued.text };
    }
    case 'revoke_key': {
      const revoked = await desk.revokeKey({ keyId: operation.keyId, at, changeId: newId() });
      if (revoked === undefined)
        throw new OperationError(`There is no key ${operation.keyId}. List them with: tokenhouse keys list`);
      directory?.apply({ kind: 'key_revoked', keyId: revoked.id });
      return { kind: 'revoked', keyId: revoked.id, accountId: revoked.accountId, name: revoked.name };
    }
    case 'grant_credit': {
      const accountId = await accountMeant(operation.accountId, desk);
      const amountMicrocents = BigInt(operation.microcents);
      if (amountMicrocents <= 0n) throw new OperationError('A grant must be more than nothing.');
      const idempotencyKey = checkedText(operation.idempotencyKey, 'An idempotency key', idempotencyKeyLengthMax);
      const reference =
        operation.reference === undefined ? null : checkedText(operation.reference, 'A reason', referenceLengthMax);
      const moved = await ledger.transfer({
        id: newId(),
        debitAccount: houseAccounts.promo,
        creditAccount: accountId,
        amountMicrocents,
        kind: 'grant',
        idempotencyKey,
        reference,
        by: 'cli',
        at,
      });
      const account = await desk.getAccount({ accountId });
      return {
        kind: 'granted',
        accountId,
        microcents: operation.microcents,
        balanceMicrocents: String(account?.balanceMicrocents ?? 0n),
        again: !moved,
      };
    }
    case 'suspend_account':
    case 'revive_account': {
      const status = operation.kind === 'suspend_account' ? 'suspended' : 'active';
      await ledger.setAccountStatus(operation.accountId, status, at, newId());
      directory?.apply({ kind: 'account_status', accountId: operation.accountId, status });
      return { kind: 'status', accountId: operation.accountId, status };
    }
  }
}

/** The account that was named, or the only one there is. */
export async function accountMeant(
  named: string | undefined,
  desk: Pick<Desk, 'listAccounts' | 'getAccount'>,
): Promise<string> {
  if (named !== undefined) {
    const account = await desk.getAccount({ accountId: named });
    if (account === undefined || account.house)
      throw new OperationError(`There is no account ${named}. List them with: tokenhouse credits show`);
    return named;
  }
  const accounts = await desk.listAccounts({ limit: 2 });
  const [only] = accounts;
  if (only === undefined) throw new OperationError('There is no account yet. Start the service once: npm start');
  if (accounts.length > 1)
    throw new OperationError(
      'There are several accounts: say which with --account. List them with: tokenhouse credits show',
    );
  return only.id;
}

const nameLengthMax = 100;
const idempotencyKeyLengthMax = 255;
const referenceLengthMax = 1000;

const checkedName = (name: string): string => checkedText(name, 'A name', nameLengthMax);

/** Printed in terminals and pages: no control characters, nothing that PostgreSQL refuses (reliability D9). */
function checkedText(text: string, what: string, lengthMax: number): string {
  if (text === '' || text.length > lengthMax || /\p{Cc}/u.test(text) || !text.isWellFormed()) {
    throw new OperationError(`${what} has 1 to ${lengthMax} characters, none of them control characters.`);
  }
  return text;
}
