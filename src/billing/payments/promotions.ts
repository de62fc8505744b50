import { uuidText } from '../../platform/ids/uuid.ts';
import { systemAccounts } from '../../store/ledger.ts';
import type { Ledger } from '../../store/ledger.ts';
import type { Repositories } from '../../store/repositories/repositories.ts';
import { spendable } from './spendable.ts';

export interface PromotionServices {
  readonly ledger: Pick<Ledger, 'transfer'>;
  readonly repositories: Repositories;
  readonly now: () => number;
  readonly newId: () => Uint8Array;
}

/** Delay after its end before a promotion is closed: by then every replica has recorded what ended before it. */
export const closingGraceMs = 600_000;
const batchMax = 100;

/**
 * Closes promotions that have ended: takes back the unused part, as far as the account has it free of holds. The amount taken is recorded
 * in the same transaction, so two processes, or one that is killed, take it once. Resolves with whether there may be more.
 */
export async function closePromotions({ ledger, repositories, now, newId }: PromotionServices): Promise<boolean> {
  const due = await repositories.duePromotions({ expiredBefore: now() - closingGraceMs, limit: batchMax });
  for (const { transferId, accountId, expiresAt } of due) {
    const unused = await repositories.promotionUnused({ accountId, transferId });
    await spendable(repositories, accountId, unused, async (taken) => {
      const at = now();
      if (taken === 0n) {
        await repositories.closePromotion({ transferId, at, unusedMicrocents: unused });
        return false;
      }
      return await ledger.transfer({
        id: newId(),
        debitAccount: accountId,
        creditAccount: systemAccounts.promo,
        amountMicrocents: taken,
        kind: 'expiry',
        idempotencyKey: `expiry:${uuidText(transferId)}`,
        reference: `ended ${new Date(expiresAt).toISOString()}`,
        by: 'system',
        at,
        recording: [{ name: 'promotion_closed', values: [at, unused, taken, transferId] }],
      });
    });
  }
  return due.length === batchMax;
}
