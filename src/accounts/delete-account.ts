import { setTimeout as sleep } from 'node:timers/promises';

import { dollars } from '../platform/dollars.ts';
import { systemAccounts } from '../store/ledger.ts';
import { StoreError } from '../store/store-error.ts';
import { accountMeant, OperationError } from './operation.ts';
import type { OperationServices } from './operation.ts';

/** Cut requests take a moment to settle, and leases of other processes take a moment to be returned. */
const forfeitTriesMax = 60;
const forfeitPauseMs = 250;

/**
 * Suspends the account, which cuts its running requests, then removes its credit, then erases it. Each step can be repeated: a deletion
 * interrupted by a crash leaves a suspended account, and the same request continues from there. Throws OperationError.
 */
export async function deleteAccount(
  input: { readonly accountId: string; readonly forfeitCredit?: boolean | undefined },
  services: OperationServices,
): Promise<{ readonly accountId: string; readonly forfeitedMicrocents: string }> {
  const { ledger, repositories, followed, newId, now } = services;
  const accountId = await accountMeant(input.accountId, repositories);
  const balance = await balanceOf(accountId, services);
  if (balance > 0n && input.forfeitCredit !== true)
    throw conflict(`The account has ${dollars(balance)} of credit: refund it first, or forfeit it.`);
  if (balance < 0n) throw conflict(`The account owes ${dollars(-balance)}: settle the debt first.`);

  await ledger.setAccountStatus(accountId, 'suspended', now(), newId());
  await followed?.([{ kind: 'account_status', ref: accountId }]);
  for (;;) {
    const keys = await repositories.listAccountKeys({ accountId, limit: 100 });
    if (keys.length === 0) break;
    for (const { id } of keys) await repositories.revokeKey({ keyId: id, at: now(), changeId: newId() });
    await followed?.(keys.map(({ id }) => ({ kind: 'key_revoked', ref: id })));
  }
  const forfeited = await forfeit(accountId, services);
  if (!(await repositories.eraseAccount({ accountId, at: now(), changeId: newId() })))
    throw conflict('The account was changed meanwhile. Check it, and try again.');
  return { accountId, forfeitedMicrocents: String(forfeited) };
}

async function forfeit(accountId: string, services: OperationServices): Promise<bigint> {
  const { ledger, newId, now, actor } = services;
  let forfeited = 0n;
  for (let tries = 0; tries <= forfeitTriesMax; tries++) {
    const balance = await balanceOf(accountId, services);
    const running = (await services.repositories.heldByAccounts({ accountIds: [accountId] })).length > 0;
    if (balance <= 0n && !running) return forfeited;
    if (balance > 0n && !running) {
      try {
        const moved = await ledger.transfer({
          id: newId(),
          debitAccount: accountId,
          creditAccount: systemAccounts.promo,
          amountMicrocents: balance,
          kind: 'expiry',
          // If an earlier try moved anything, the balance shows it, and this one cannot exceed it.
          idempotencyKey: `deleted:${accountId}:${Buffer.from(newId()).toString('hex')}`,
          reference: 'account deleted',
          by: actor?.id ?? actor?.kind ?? 'system',
          at: now(),
        });
        if (moved) forfeited += balance;
        continue;
      } catch (error) {
        if (!(error instanceof StoreError) || error.code !== 'insufficient') throw error;
      }
    }
    await sleep(forfeitPauseMs);
  }
  throw conflict('Requests of the account are still being settled. It is suspended; try again in a minute.');
}

async function balanceOf(accountId: string, { repositories }: OperationServices): Promise<bigint> {
  return (await repositories.getAccount({ accountId }))?.balanceMicrocents ?? 0n;
}

const conflict = (message: string): OperationError =>
  new OperationError(message, { cause: new StoreError('conflict', message) });
