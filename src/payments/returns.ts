import { houseAccounts } from '../store/ledger.ts';
import type { EventToRecord, PaymentRow } from '../store/payment-queries.ts';
import type { Recording } from '../store/recordings.ts';
import { StoreError } from '../store/store-error.ts';
import { recordingOf } from './payments.ts';
import type { EventOutcome, PaymentServices } from './payments.ts';
import { spendable } from './spendable.ts';

export interface PaymentTaken {
  readonly kind: 'refund' | 'dispute';
  /** Of the refund or the dispute, at the provider. */
  readonly id: string;
  readonly payment: PaymentRow;
  readonly amountMicrocents: bigint;
}

/**
 * Takes a payment back, or a part of it: from the account what it has and nothing that runs holds, never below its credit
 * limit; the rest is the house's loss, at once (`house_bad_debt`). How much it had is decided once, in the transaction
 * that takes it; whoever comes second, or after a kill, finds the decision and finishes it.
 */
export async function takeBack(
  services: PaymentServices,
  { kind, id, payment, amountMicrocents }: PaymentTaken,
  event: EventToRecord,
): Promise<EventOutcome> {
  const { desk, ledger, provider, now, newId, log } = services;
  const { accountId, topupId } = payment;
  const key = `${kind}:${provider.name}:${id}`;
  const transferKind = kind === 'refund' ? 'refund' : 'chargeback';
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
      debitAccount: isAccount ? accountId : houseAccounts.badDebt,
      creditAccount: houseAccounts.cash,
      amountMicrocents: isAccount ? taken : amountMicrocents,
      kind: transferKind,
      idempotencyKey: isAccount ? key : `${key}:rest`,
      reference: topupId,
      by: 'system',
      at,
      recording: isWhole ? [decision, topup, recordingOf(event)] : [decision, topup],
    });
  };
  let decided = await desk.findPaymentReturn({ provider: provider.name, id });
  const isNew = decided === undefined;
  if (decided === undefined) {
    await spendable(desk, accountId, amountMicrocents, decide);
    decided = await desk.findPaymentReturn({ provider: provider.name, id });
    if (decided === undefined) throw new StoreError('failed', `what became of ${key} is not known`);
  }
  const missing = decided.amountMicrocents - decided.takenMicrocents;
  if (missing > 0n) {
    if (isNew)
      log('error', 'payment_taken_back_unpaid', { account: accountId, topup: topupId, microcents: String(missing) });
    // Nothing where it was said in one with the decision, or by an earlier try.
    await ledger.transfer({
      id: newId(),
      debitAccount: houseAccounts.badDebt,
      creditAccount: houseAccounts.cash,
      amountMicrocents: missing,
      kind: transferKind,
      idempotencyKey: `${key}:rest`,
      reference: topupId,
      by: 'system',
      at: now(),
    });
  }
  await desk.recordPaymentEvent(event);
  log(kind === 'dispute' ? 'error' : 'info', `topup_${kind}`, { account: accountId, topup: topupId, id });
  return isNew ? 'applied' : 'again';
}

/** A dispute that was won: what was taken comes back, to whom it was taken from. */
export async function giveBackDispute(
  { desk, ledger, provider, now, newId }: PaymentServices,
  id: string,
  event: EventToRecord,
): Promise<EventOutcome> {
  const taken = await desk.findPaymentReturn({ provider: provider.name, id });
  if (taken === undefined) {
    // Won before it has taken anything: what takes it, if it still comes, is older news. A person looks at it.
    await desk.recordPaymentEvent({ ...event, outcome: 'refused: the dispute had taken nothing' });
    return 'refused';
  }
  const { accountId, topupId, amountMicrocents, takenMicrocents } = taken;
  const key = `dispute_won:${provider.name}:${id}`;
  const give = (creditAccount: string, microcents: bigint, idempotencyKey: string, recording: readonly Recording[]) =>
    ledger.transfer({
      id: newId(),
      debitAccount: houseAccounts.cash,
      creditAccount,
      amountMicrocents: microcents,
      kind: 'chargeback',
      idempotencyKey,
      reference: topupId,
      by: 'system',
      at: now(),
      recording,
    });
  const missing = amountMicrocents - takenMicrocents;
  const won: Recording = {
    name: 'topup_dispute_won',
    values: [amountMicrocents, amountMicrocents, topupId, amountMicrocents],
  };
  let isNew: boolean;
  if (takenMicrocents > 0n) {
    isNew = await give(accountId, takenMicrocents, key, [won]);
    if (missing > 0n) await give(houseAccounts.badDebt, missing, `${key}:rest`, []);
  } else isNew = await give(houseAccounts.badDebt, missing, `${key}:rest`, [won]);
  await desk.recordPaymentEvent(event);
  return isNew ? 'applied' : 'again';
}
