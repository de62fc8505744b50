import { uuidText } from '../../platform/ids/uuid.ts';
import { noticeRecording } from '../../store/repositories/notices.ts';
import { systemAccounts } from '../../store/ledger.ts';
import type { EventToRecord, PaymentReturn, PaymentRow } from '../../store/repositories/payments.ts';
import type { Recording } from '../../store/recordings.ts';
import { StoreError } from '../../store/store-error.ts';
import { recordingOf } from './payment-services.ts';
import type { EventOutcome, PaymentServices } from './payment-services.ts';
import { spendable } from './spendable.ts';

export interface PaymentTaken {
  readonly kind: 'refund' | 'dispute';
  /** Id of the refund or the dispute, at the provider. */
  readonly id: string;
  readonly payment: PaymentRow;
  readonly amountMicrocents: bigint;
}

/**
 * Takes back a payment or a part of it: from the account what it has free of holds, never below its credit limit; the rest is at
 * once the operator's loss (`house_bad_debt`). How much the account had is decided once, in the transaction that takes it; a second
 * caller, or a retry after a kill, finds the decision and finishes it.
 */
export async function reverse(
  services: PaymentServices,
  { kind, id, payment, amountMicrocents }: PaymentTaken,
  event: EventToRecord,
): Promise<EventOutcome> {
  const { repositories, ledger, provider, now, newId, log } = services;
  const { accountId, topupId } = payment;
  const key = `${kind}:${provider.name}:${id}`;
  const decide = async (taken: bigint): Promise<boolean> => {
    const isAccount = taken > 0n;
    const at = now();
    const decision: Recording = {
      name: 'payment_return',
      values: [provider.name, id, kind, payment.id, topupId, accountId, amountMicrocents, taken, at],
    };
    const topup: Recording =
      kind === 'refund'
        ? { name: 'topup_refunded', values: [amountMicrocents, amountMicrocents, topupId] }
        : { name: 'topup_disputed', values: [amountMicrocents, topupId] };
    const isWhole = taken === amountMicrocents || taken === 0n;
    return await ledger.transfer({
      id: newId(),
      debitAccount: isAccount ? accountId : systemAccounts.badDebt,
      creditAccount: systemAccounts.cash,
      amountMicrocents: isAccount ? taken : amountMicrocents,
      kind: transferKinds[kind],
      idempotencyKey: isAccount ? key : `${key}:rest`,
      reference: topupId,
      by: 'system',
      at,
      recording: isWhole ? [decision, topup, recordingOf(event)] : [decision, topup],
    });
  };
  let decided = await repositories.findPaymentReturn({ provider: provider.name, id });
  const isNew = decided === undefined;
  if (decided === undefined) {
    await spendable(repositories, accountId, amountMicrocents, decide);
    decided = await repositories.findPaymentReturn({ provider: provider.name, id });
    if (decided === undefined) throw new StoreError('failed', `what became of ${key} is not known`);
  }
  if (decided.undoneAt !== null) {
    // The event that it failed, or was won, arrived first.
    await repositories.recordPaymentEvent({ ...event, outcome: 'again' });
    return 'again';
  }
  const missing = decided.amountMicrocents - decided.takenMicrocents;
  if (isNew && missing > 0n)
    log('error', 'payment_taken_back_unpaid', { account: accountId, topup: topupId, microcents: String(missing) });
  await takeRest(services, kind, decided);
  await repositories.recordPaymentEvent(event);
  log(kind === 'dispute' ? 'error' : 'info', `topup_${kind}`, { account: accountId, topup: topupId, id });
  return isNew ? 'applied' : 'again';
}

/**
 * A refund that has failed, or a dispute that was won: what was taken goes back to where it came from, with the event in one
 * transaction. A return that has taken nothing yet never will, so that the order of the events does not matter.
 */
export async function reinstate(
  services: PaymentServices,
  { kind, id, payment, amountMicrocents }: PaymentTaken,
  event: EventToRecord,
): Promise<EventOutcome> {
  const { repositories, ledger, provider, now, newId, log } = services;
  const decided = await repositories.findPaymentReturn({ provider: provider.name, id });
  const { topupId, accountId } = decided ?? payment;
  const at = now();
  const amount = decided?.amountMicrocents ?? amountMicrocents;
  const taken = decided?.takenMicrocents ?? 0n;
  const notice =
    kind === 'dispute'
      ? null
      : {
          id: `evt_${uuidText(newId())}`,
          accountId,
          type: 'refund.failed',
          data: JSON.stringify({
            topup_id: topupId,
            refund_id: id,
            amount_microcents: Number(amount),
            given_back_microcents: Number(taken),
          }),
          recipients: { members: [], addresses: [] },
          isWebhook: true,
          at,
        };
  if (decided === undefined) {
    const undone = { provider: provider.name, id, kind, paymentId: payment.id, topupId, accountId, amountMicrocents };
    if (await repositories.recordUndoneReturn({ undone, event, notice, at })) {
      log(kind === 'refund' ? 'error' : 'warn', undoneEvents[kind], { account: accountId, topup: topupId, id });
      return 'applied';
    }
    // Another process has decided it meanwhile.
    return await reinstate(services, { kind, id, payment, amountMicrocents }, event);
  }
  if (decided.undoneAt !== null) {
    await repositories.recordPaymentEvent({ ...event, outcome: 'again' });
    return 'again';
  }
  const key = `${kind === 'refund' ? 'refund_failed' : 'dispute_won'}:${provider.name}:${id}`;
  const give = (creditAccount: string, microcents: bigint, idempotencyKey: string, recording: readonly Recording[]) =>
    ledger.transfer({
      id: newId(),
      debitAccount: systemAccounts.cash,
      creditAccount,
      amountMicrocents: microcents,
      kind: transferKinds[kind],
      idempotencyKey,
      reference: topupId,
      by: 'system',
      at,
      recording,
    });
  const all: Recording[] = [
    { name: 'payment_return_undone', values: [at, provider.name, id] },
    kind === 'refund'
      ? { name: 'topup_refund_failed', values: [amount, amount, topupId, amount] }
      : { name: 'topup_dispute_won', values: [amount, amount, topupId, amount] },
    recordingOf(event),
    ...(notice === null ? [] : [noticeRecording(notice)]),
  ];
  const rest = amount - taken;
  // Its taking may not have got this far.
  await takeRest(services, kind, decided);
  if (rest > 0n && taken > 0n) await give(systemAccounts.badDebt, rest, `${key}:rest`, []);
  const isNew =
    taken > 0n ? await give(accountId, taken, key, all) : await give(systemAccounts.badDebt, rest, `${key}:rest`, all);
  if (isNew)
    log(kind === 'refund' ? 'error' : 'warn', undoneEvents[kind], {
      account: accountId,
      topup: topupId,
      id,
      microcents: String(taken),
    });
  else await repositories.recordPaymentEvent({ ...event, outcome: 'again' });
  return isNew ? 'applied' : 'again';
}

/** The part of a return that the account did not have is the operator's loss; does nothing where it was recorded before. */
async function takeRest(
  { ledger, provider, now, newId }: PaymentServices,
  kind: PaymentTaken['kind'],
  { id, topupId, amountMicrocents, takenMicrocents }: PaymentReturn,
): Promise<void> {
  if (amountMicrocents === takenMicrocents) return;
  await ledger.transfer({
    id: newId(),
    debitAccount: systemAccounts.badDebt,
    creditAccount: systemAccounts.cash,
    amountMicrocents: amountMicrocents - takenMicrocents,
    kind: transferKinds[kind],
    idempotencyKey: `${kind}:${provider.name}:${id}:rest`,
    reference: topupId,
    by: 'system',
    at: now(),
  });
}

const transferKinds = { refund: 'refund', dispute: 'chargeback' } as const;
const undoneEvents = { refund: 'refund_failed', dispute: 'dispute_won' } as const;
