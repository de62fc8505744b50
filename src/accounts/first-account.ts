import { operate } from './operations.ts';
import type { OperationServices } from './operation.ts';

export interface FirstAccount {
  readonly accountId: string;
  /** Shown once. */
  readonly key: string;
  readonly creditMicrocents: bigint;
}

/** On an empty database: an account, its first credit and its first key. `undefined` when there is a key already. */
export async function createFirstAccount(
  services: OperationServices,
  creditMicrocents: bigint,
): Promise<FirstAccount | undefined> {
  const [known] = await services.repositories.listAccounts({ limit: 1 });
  // A start that was killed half-way left the account without a key: this one finishes it.
  if (known !== undefined && (await services.repositories.listKeys({ limit: 1 })).length > 0) return undefined;
  const accountId = known?.id ?? (await newAccount(services));
  if (creditMicrocents > 0n) {
    const idempotencyKey = `first-credit:${accountId}`;
    await operate(
      {
        kind: 'move_credit',
        movement: 'grant',
        accountId,
        microcents: String(creditMicrocents),
        reference: 'first credit',
        idempotencyKey,
      },
      services,
    );
  }
  // The key belongs to the owner, so it can upload files (specification §5.5).
  const answer = await operate(
    { kind: 'create_key', accountId, name: 'first key', userId: 'owner', expiresAt: undefined },
    services,
  );
  if (answer.kind !== 'key') throw new Error('creating a key answered something else');
  return { accountId, key: answer.key, creditMicrocents };
}

async function newAccount(services: OperationServices): Promise<string> {
  const answer = await operate({ kind: 'create_account', name: 'first account' }, services);
  if (answer.kind !== 'account') throw new Error('creating an account answered something else');
  return answer.accountId;
}
