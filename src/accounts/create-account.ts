import { newAccountId } from './base62.ts';
import { hashLinkToken, newLinkToken } from './link-token.ts';
import { checkedText, OperationError } from './operation.ts';
import type { OperationServices } from './operation.ts';
import type { AccountMade, NewAccountInput, Operation, OperationAnswer } from './operation-kinds.ts';
import { checkedMailAddress } from './mail-address.ts';

type Operate = (operation: Operation, services: OperationServices) => Promise<OperationAnswer>;

const invitedForMs = 7 * 86_400_000;
/** The same maximum as for a grant: 10¹² cents. */
const creditMax = 10n ** 18n;
const nameLengthMax = 100;

/**
 * Checks everything that can be refused before anything is made, so that no customer is created in part. `operate` makes the
 * credit and the key, each with its own entry in the audit log.
 */
export async function createAccount(
  input: NewAccountInput,
  services: OperationServices,
  operate: Operate,
): Promise<AccountMade> {
  const name = checkedText(input.name, 'A name', nameLengthMax);
  const email = input.ownerEmail === undefined ? undefined : checkedMailAddress(input.ownerEmail);
  const credit = checkedCredit(input.creditMicrocents);
  const keyName = input.keyName === undefined ? undefined : checkedText(input.keyName, 'A name', nameLengthMax);
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
    if (credit !== undefined) await giveCredit(accountId, credit, services, operate);
    const key = keyName === undefined ? undefined : await makeKey(accountId, keyName, services, operate);
    return {
      kind: 'account',
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
    throw new Error(`The account ${accountId} is there, and not all of what was to come with it.`, { cause: error });
  }
}

function checkedCredit(text: string | undefined): bigint | undefined {
  if (text === undefined) return undefined;
  const microcents = BigInt(text);
  if (microcents <= 0n || microcents > creditMax)
    throw new OperationError('Credit is more than nothing, and at most ten billion dollars.');
  return microcents;
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

async function giveCredit(
  accountId: string,
  microcents: bigint,
  services: OperationServices,
  operate: Operate,
): Promise<void> {
  await operate(
    {
      kind: 'move_credit',
      movement: 'grant',
      accountId,
      microcents: String(microcents),
      reference: 'first credit',
      idempotencyKey: `first-credit:${accountId}`,
    },
    services,
  );
}

async function makeKey(
  accountId: string,
  name: string,
  services: OperationServices,
  operate: Operate,
): Promise<{ readonly keyId: string; readonly key: string }> {
  const answer = await operate({ kind: 'create_key', accountId, name, expiresAt: undefined }, services);
  if (answer.kind !== 'key') throw new Error('creating a key answered something else');
  return { keyId: answer.keyId, key: answer.key };
}
