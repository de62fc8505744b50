import { serviceItself } from '../../../src/accounts/actor.ts';
import { moveCredit } from '../../../src/accounts/operations/credit.ts';
import { uuid } from '../../store/fixture.ts';
import { receiptsOn } from '../invoices/receipts-on.ts';
import { event, input, openTill, say, session, type OpenLedger } from './claims.ts';

/**
 * Four payments of `acct_a`: one was returned by hand in part, one is refunded in part, one whose refund failed, one whose dispute was won. Each
 * with its papers.
 */
export async function payAndReturn(store: OpenLedger['store']): Promise<void> {
  const till = openTill({ store });
  const hear = (type: string, object: object) =>
    say(till, event(type, object, { created: Math.floor(store.now() / 1000) }), store.now());
  for (const name of ['held', 'refunded', 'failed', 'won']) {
    const topup = await till.payments.createTopup(input('acct_a', 500, name));
    await hear('checkout.session.completed', session(topup, `pi_${name}`));
  }
  const about = (name: string, status: string) => ({
    id: `return_${name}`,
    payment_intent: `pi_${name}`,
    amount: 200,
    currency: 'usd',
    status,
  });
  await hear('refund.created', about('refunded', 'succeeded'));
  await hear('refund.created', about('failed', 'succeeded'));
  const receipts = receiptsOn(store);
  await receipts.issueDue(AbortSignal.timeout(60_000));
  await hear('refund.failed', about('failed', 'failed'));
  await hear('charge.dispute.created', about('won', 'needs_response'));
  await hear('charge.dispute.closed', about('won', 'won'));
  await receipts.issueDue(AbortSignal.timeout(60_000));
  const { id: heldId } = await till.payments.createTopup(input('acct_a', 500, 'held'));
  const issued = await store.repositories.listReceipts({ limit: 100 });
  const receipt = issued.find(({ kind, topupId }) => kind === 'receipt' && topupId === heldId)!.id;
  const { ledger, repositories } = store;
  await moveCredit(
    {
      movement: 'payback',
      accountId: 'acct_a',
      microcents: '200000000',
      idempotencyKey: 'by hand',
      reference: 'cash',
      receipt,
    },
    { ledger, repositories, newId: uuid, now: () => store.now(), actor: { ...serviceItself, kind: 'cli' } } as never,
  );
  await receipts.issueDue(AbortSignal.timeout(60_000));
}
