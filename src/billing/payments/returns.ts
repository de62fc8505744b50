import { uuidText } from '../../platform/ids/uuid.ts';
import { noticeRecording } from '../../store/recordings.ts';
import type { Reversal, Reversed } from '../../store/ledger.ts';
import type { EventToRecord, PaymentReturn, PaymentRow } from '../../store/repositories/payments.ts';
import { StoreError } from '../../store/store-error.ts';
import { recordingOf } from './payment-services.ts';
import type { EventOutcome, PaymentServices } from './payment-services.ts';

export interface PaymentTaken {
  readonly kind: 'refund' | 'dispute';
  /** Id of the refund or the dispute, at the provider. */
  readonly id: string;
  readonly payment: PaymentRow;
  readonly amountMicrocents: bigint;
}

/** Maximum calls to take what other processes have idle; the rest is taken later. */
const takingTriesMax = 3;
/** Maximum tries while another event of the return, or a concurrent collection of it, is faster. */
const conflictTriesMax = 10;
const owedAtOnce = 1000;

/**
 * Takes back a payment or part of it: the account's free credit now and its held credit as holds end, never below its credit limit; what
 * was already spent is the operator's loss (`house_bad_debt`). Never takes more than was paid, even if refunds and disputes exceed it.
 */
export async function reverse(
  services: PaymentServices,
  { kind, id, payment, amountMicrocents }: PaymentTaken,
  event: EventToRecord,
): Promise<EventOutcome> {
  const { repositories, log } = services;
  const { accountId, topupId, id: paymentId } = payment;
  const refused = { ...event, outcome: 'refused: more is returned than was paid' };
  const taken = await take(services, {
    returnId: id,
    accountId,
    decision: {
      kind,
      paymentId,
      topupId,
      amountMicrocents,
      recording: [recordingOf(event)],
      recordingIfBeyond: [recordingOf(refused)],
    },
  });
  if (!taken.isNew) {
    await repositories.recordPaymentEvent({ ...event, outcome: 'again' });
    return 'again';
  }
  const about = { account: accountId, topup: topupId };
  if (taken.beyondMicrocents > 0n) {
    const microcents = String(taken.beyondMicrocents);
    log('error', 'payment_event_contradicts', {
      ...{ id: event.id, type: event.kind, subject: id },
      ...{ reason: 'more is returned than was paid', microcents },
    });
  }
  tellLoss(services, about, taken);
  if (taken.owedMicrocents > 0n)
    log('warn', 'payment_taken_back_later', { ...about, microcents: String(taken.owedMicrocents) });
  if (taken.beyondMicrocents === amountMicrocents) return 'refused';
  log(kind === 'dispute' ? 'error' : 'info', `topup_${kind}`, { ...about, id });
  return 'applied';
}

/** Collects what accounts owe, as far as their credit has become free. Resolves with whether anything was taken. */
export async function collectOwed(services: PaymentServices, signal: AbortSignal): Promise<boolean> {
  const { repositories, provider } = services;
  let hasTaken = false;
  for (const { provider: by, id, accountId, topupId } of await repositories.owedReturns({ limit: owedAtOnce })) {
    if (signal.aborted) break;
    if (by !== provider.name) continue;
    const taken = await take(services, { returnId: id, accountId });
    tellLoss(services, { account: accountId, topup: topupId }, taken);
    hasTaken ||= taken.takenMicrocents > 0n;
  }
  return hasTaken;
}

function tellLoss(
  { log }: PaymentServices,
  about: { readonly account: string; readonly topup: string },
  { lostMicrocents }: Reversed,
): void {
  if (lostMicrocents > 0n) log('error', 'payment_taken_back_unpaid', { ...about, microcents: String(lostMicrocents) });
}

async function take(
  { ledger, provider, now, newId }: PaymentServices,
  request: Pick<Reversal, 'returnId' | 'accountId' | 'decision'>,
): Promise<Reversed> {
  const call = async (): Promise<Reversed> => {
    for (let tries = 1; ; tries++) {
      try {
        return await ledger.reverse({ ...request, provider: provider.name, ids: [newId(), newId()], at: now() });
      } catch (error) {
        // A duplicate of the event, or the event of its failure, was faster: its decision is stored now.
        if (!(error instanceof StoreError && error.code === 'conflict') || tries >= conflictTriesMax) throw error;
      }
    }
  };
  let all = await call();
  for (let tries = 1; all.owedMicrocents > 0n && tries < takingTriesMax; tries++) {
    const { takenMicrocents, lostMicrocents, ...rest } = await call();
    all = {
      ...rest,
      isNew: all.isNew,
      takenMicrocents: all.takenMicrocents + takenMicrocents,
      lostMicrocents: all.lostMicrocents + lostMicrocents,
    };
  }
  return all;
}

/**
 * Undoes a return whose refund failed or whose dispute was won: what was taken goes back to where it came from, in one transaction with the
 * event. A return that has not taken anything yet never will, so the order of the events does not matter.
 */
export async function reinstate(
  services: PaymentServices,
  taken: PaymentTaken,
  event: EventToRecord,
): Promise<EventOutcome> {
  const { repositories, ledger, provider, now, newId, log } = services;
  const { kind, id, payment } = taken;
  const { topupId, accountId } = payment;
  const about = { account: accountId, topup: topupId, id };
  for (let tries = 1; ; tries++) {
    const decided = await repositories.findPaymentReturn({ provider: provider.name, id });
    const at = now();
    const notice = noticeOf(taken, decided, { newId, at });
    if (decided === undefined) {
      const { amountMicrocents } = taken;
      const undone = { provider: provider.name, id, kind, paymentId: payment.id, topupId, accountId, amountMicrocents };
      // Otherwise another process has decided it meanwhile.
      if (!(await repositories.recordUndoneReturn({ undone, event, notice, at }))) continue;
      log(kind === 'refund' ? 'error' : 'warn', undoneEvents[kind], about);
      return 'applied';
    }
    if (decided.undoneAt !== null) break;
    const { takenMicrocents } = decided;
    const recording = [recordingOf(event), ...(notice === null ? [] : [noticeRecording(notice)])];
    const undo = { provider: provider.name, returnId: id, accountId, takenMicrocents, at, recording };
    try {
      const given = await ledger.reinstate({ ...undo, ids: [newId(), newId()] });
      if (given?.isNew !== true) continue;
      log(kind === 'refund' ? 'error' : 'warn', undoneEvents[kind], { ...about, microcents: String(takenMicrocents) });
      for (const returnId of given.dueAgain) tellLoss(services, about, await take(services, { returnId, accountId }));
      return 'applied';
    } catch (error) {
      // More was taken meanwhile, or a duplicate of this event was faster.
      if (!(error instanceof StoreError && error.code === 'conflict') || tries >= conflictTriesMax) throw error;
    }
  }
  await repositories.recordPaymentEvent({ ...event, outcome: 'again' });
  return 'again';
}

/** The notice of a failed refund, for owners and billing members. */
function noticeOf(
  { kind, id, payment: { accountId, topupId }, amountMicrocents }: PaymentTaken,
  decided: PaymentReturn | undefined,
  { newId, at }: { readonly newId: PaymentServices['newId']; readonly at: number },
) {
  if (kind === 'dispute') return null;
  const data = {
    topup_id: topupId,
    refund_id: id,
    amount_microcents: Number(decided?.amountMicrocents ?? amountMicrocents),
    given_back_microcents: Number(decided?.takenMicrocents ?? 0n),
  };
  return {
    id: `evt_${uuidText(newId())}`,
    accountId,
    type: 'refund.failed',
    data: JSON.stringify(data),
    recipients: { members: [], addresses: [] },
    isWebhook: true,
    at,
  };
}

const undoneEvents = { refund: 'refund_failed', dispute: 'dispute_won' } as const;
