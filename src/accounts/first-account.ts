import { operate } from './operations.ts';
import type { OperationServices } from './operation.ts';

export interface FirstAccount {
  readonly accountId: string;
  /** Displayed once. */
  readonly key: string;
  readonly creditMicrocents: bigint;
}

/** Creates an account, its first credit and its first key on an empty database. undefined if there is already an account. */
export async function createFirstAccount(
  services: OperationServices,
  creditMicrocents: bigint,
): Promise<FirstAccount | undefined> {
  const [known] = await services.repositories.listAccounts({ limit: 1 });
  if (known !== undefined && !(await isIncomplete(services.repositories))) return undefined;
  const accountId = known?.id ?? (await newAccount(services));
  if (creditMicrocents > 0n) {
    const idempotencyKey = `first-credit:${accountId}`;
    const [reference, microcents] = ['first credit', String(creditMicrocents)];
    await operate(
      { kind: 'move_credit', movement: 'grant', accountId, microcents, reference, idempotencyKey },
      services,
    );
  }
  // The key belongs to the owner, so it can upload files (specification §5.5).
  const { key } = await operate({ kind: 'create_key', accountId, name: 'first key', userId: 'owner' }, services);
  return { accountId, key, creditMicrocents };
}

async function newAccount(services: OperationServices): Promise<string> {
  return (await operate({ kind: 'create_account', name: 'first account' }, services)).accountId;
}

/** An earlier start that was killed midway left its account without a key. Accounts that an operator makes before are theirs alone. */
async function isIncomplete(repositories: OperationServices['repositories']): Promise<boolean> {
  if ((await repositories.listKeys({ limit: 1 })).length > 0) return false;
  const [newest] = await repositories.listAudit({ actions: ['account.create'], limit: 1 });
  return newest?.actor.kind === 'system';
}
