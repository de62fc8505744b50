import Type from 'typebox';

import type { Topup } from '../store/repositories/payments.ts';
import type { Call } from './route.ts';
import { centsOf, nullable, secondsOf, secondsOrNull } from './wire.ts';

export const topupSchema = Type.Object({
  id: Type.String({ description: '`top_…`' }),
  object: Type.Literal('topup'),
  amount_cents: Type.Integer(),
  currency: Type.String(),
  status: Type.Enum(['pending', 'paid', 'failed', 'expired', 'refunded', 'disputed'], {
    description: '`paid` also when a part was refunded. The credit is available as soon as the status is `paid`.',
  }),
  origin: Type.Enum(['checkout', 'auto'], { description: '`auto`: charged by automatic top-up.' }),
  checkout_url: nullable(Type.String({ description: 'The payment page, while the top-up is pending.' })),
  refunded_cents: Type.Integer({ description: 'The sum of refunds and disputes.' }),
  created_at: Type.Integer(),
  paid_at: nullable(Type.Integer()),
  receipt_id: nullable(Type.String({ description: 'Number of its receipt, available shortly after the payment.' })),
});

/** Receipt ids by top-up. */
export async function receiptIds(
  { account, services }: Pick<Call, 'account' | 'services'>,
  topups: readonly Topup[],
): Promise<ReadonlyMap<string, string>> {
  const topupIds = topups.map(({ id }) => id);
  const rows = await services.operations.repositories.receiptsOfTopups({ accountId: account.id, topupIds });
  return new Map(rows.map(({ topupId, id }) => [topupId, id]));
}

export const shownTopup = (topup: Topup, currency: string, receiptId: string | null) => ({
  id: topup.id,
  object: 'topup',
  amount_cents: centsOf(topup.amountMicrocents),
  currency,
  status: topup.status,
  origin: topup.origin,
  checkout_url: topup.status === 'pending' && topup.origin === 'checkout' ? topup.checkoutUrl : null,
  refunded_cents: centsOf(topup.returnedMicrocents),
  created_at: secondsOf(topup.createdAt),
  paid_at: secondsOrNull(topup.paidAt),
  receipt_id: receiptId,
});
