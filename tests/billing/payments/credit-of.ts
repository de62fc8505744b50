import { systemAccounts, type Transfer } from '../../../src/store/ledger.ts';
import { uuid } from '../../store/fixture.ts';

/** The movement that credits a top-up of 500 cents, with the event, the payment and the top-up's new state. */
export function creditOf(accountId: string, topupId: string): Transfer {
  const [id, at, amount] = [uuid(), Date.now(), 500_000_000n];
  return {
    id,
    debitAccount: systemAccounts.cash,
    creditAccount: accountId,
    amountMicrocents: amount,
    kind: 'topup',
    idempotencyKey: `payment:demo:pi_${topupId}`,
    reference: topupId,
    by: 'test',
    at,
    recording: [
      { name: 'payment_event', values: ['demo', `evt_${topupId}`, 'test', topupId, 'applied', at, at] },
      { name: 'payment', values: ['demo', `pi_${topupId}`, topupId, accountId, amount, id, at] },
      { name: 'topup_paid', values: [`pi_${topupId}`, at, topupId] },
    ],
  };
}
