import Type from 'typebox';

import { newAccountId } from './base62.ts';
import { checkedName } from './checks.ts';
import { hashLinkToken, newLinkToken } from './link-token.ts';
import { checkedMailAddress } from './mail-address.ts';
import { OperationError } from './operation.ts';
import type { OperationServices } from './operation.ts';
import { creditOperations } from './operations/credit.ts';
import { keyOperations } from './operations/keys.ts';
import { perform } from './perform.ts';
import { microcents, text } from './request-schema.ts';
import type { Input } from './request-schema.ts';

export const newAccountSchema = Type.Object({
  name: text,
  /** The email address invited to own it. */
  ownerEmail: Type.Optional(text),
  /** A grant, above 0. */
  creditMicrocents: Type.Optional(microcents),
  /** Name of its first key. */
  keyName: Type.Optional(text),
});

export interface AccountMade {
  readonly accountId: string;
  readonly name: string;
  /** The token is not stored. */
  readonly invitation?: { readonly email: string; readonly token: string; readonly expiresAt: number };
  readonly creditMicrocents?: string;
  /** Displayed once and not stored. */
  readonly key?: { readonly keyId: string; readonly key: string };
}

const invitedForMs = 7 * 86_400_000;
/** The maximum, as for a grant: 10¹² cents. */
const creditMax = 10n ** 18n;

/**
 * Checks everything that can be refused before creating anything, so that no customer is created in part. The credit and the key are
 * separate operations, each with its own entry in the audit log.
 */
export async function createAccount(
  input: Input<typeof newAccountSchema>,
  services: OperationServices,
): Promise<AccountMade> {
  const name = checkedName(input.name);
  const email = input.ownerEmail === undefined ? undefined : checkedMailAddress(input.ownerEmail);
  const credit = checkedCredit(input.creditMicrocents);
  const keyName = input.keyName === undefined ? undefined : checkedName(input.keyName);
  const accountId = newAccountId();
  const at = services.now();
  const invitation = email === undefined ? undefined : { email, ...newLinkToken(), expiresAt: at + invitedForMs };
  await services.ledger.createAccount({
    id: accountId,
    name,
    creditLimitMicrocents: 0n,
    at,
    changeId: services.newId(),
    ...(invitation === undefined ? {} : { recording: [recordingOf(invitation, accountId, at, services)] }),
  });
  try {
    if (credit !== undefined) await giveCredit(accountId, credit, services);
    const key = keyName === undefined ? undefined : await makeKey(accountId, keyName, services);
    return {
      accountId,
      name,
      ...(invitation === undefined
        ? {}
        : { invitation: { email: invitation.email, token: invitation.text, expiresAt: invitation.expiresAt } }),
      ...(credit === undefined ? {} : { creditMicrocents: String(credit) }),
      ...(key === undefined ? {} : { key }),
    };
  } catch (error) {
    // The input is valid, so the disk or the database has failed: the caller must not create a second account.
    throw new Error(`The account ${accountId} exists already, but its owner, credit or key is incomplete.`, {
      cause: error,
    });
  }
}

function checkedCredit(asked: string | undefined): bigint | undefined {
  if (asked === undefined) return undefined;
  const amount = BigInt(asked);
  if (amount <= 0n || amount > creditMax)
    throw new OperationError('Credit must be more than 0 and at most ten billion dollars.');
  return amount;
}

function recordingOf(
  invitation: { readonly email: string; readonly text: string; readonly expiresAt: number },
  accountId: string,
  at: number,
  { newId }: OperationServices,
) {
  const { email, text, expiresAt } = invitation;
  const id = `inv_${Buffer.from(newId()).toString('hex')}`;
  return {
    name: 'invitation' as const,
    values: [id, accountId, email, 'owner', hashLinkToken(text), '', at, expiresAt],
  };
}

async function giveCredit(accountId: string, amount: bigint, services: OperationServices): Promise<void> {
  const reference = 'first credit';
  const idempotencyKey = `first-credit:${accountId}`;
  await perform(
    creditOperations,
    { kind: 'move_credit', movement: 'grant', accountId, microcents: String(amount), reference, idempotencyKey },
    services,
  );
}

async function makeKey(accountId: string, name: string, services: OperationServices) {
  const { keyId, key } = await perform(keyOperations, { kind: 'create_key', accountId, name }, services);
  return { keyId, key };
}
