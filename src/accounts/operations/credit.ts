import Type from 'typebox';

import { dollars } from '../../platform/dollars.ts';
import { systemAccounts } from '../../store/ledger.ts';
import type { Transfer, TransferKind } from '../../store/ledger.ts';
import type { Recording } from '../../store/recordings.ts';
import { StoreError } from '../../store/store-error.ts';
import { theAccount, theCredit, theRequest } from '../audit-subjects.ts';
import { accountMeant, checkedText, olderThanKept, OperationError } from '../operation.ts';
import type { OperationServices } from '../operation.ts';
import { operation } from '../perform.ts';
import { duration, microcents, ofAccount, text } from '../request-schema.ts';
import type { Input } from '../request-schema.ts';

/**
 * Reasons to move credit, other than requests (money.md, "Tables": every movement is one row of `transfer`, with both sides). A customer is
 * debited only as far as the balance is free of holds.
 */
export const movements = {
  /** A gift. */
  grant: { systemAccount: systemAccounts.promo, kind: 'grant', gives: true },
  /** A payment that has arrived. */
  topup: { systemAccount: systemAccounts.cash, kind: 'topup', gives: true },
  /** A payment that was returned to the customer. */
  payback: { systemAccount: systemAccounts.cash, kind: 'refund', gives: false },
  /** A payment that the customer's bank has reversed. */
  chargeback: { systemAccount: systemAccounts.cash, kind: 'chargeback', gives: false },
  /** The expiry of an unused gift. */
  expire: { systemAccount: systemAccounts.promo, kind: 'expiry', gives: false },
  /** The correction of a mistake, in either direction. */
  adjust_up: { systemAccount: systemAccounts.revenue, kind: 'adjust', gives: true },
  adjust_down: { systemAccount: systemAccounts.revenue, kind: 'adjust', gives: false },
} as const satisfies Readonly<
  Record<string, { readonly systemAccount: string; readonly kind: TransferKind; readonly gives: boolean }>
>;

export type Movement = keyof typeof movements;

const moveSchema = Type.Object({
  ...ofAccount,
  movement: Type.Enum(Object.keys(movements) as Movement[]),
  /** Above 0. */
  microcents,
  reference: Type.Optional(text),
  /** Two movements with the same key move credit once. */
  idempotencyKey: text,
  /** For a returned payment: the id or number of its receipt, which gets a credit note. */
  receipt: Type.Optional(text),
  /** For a grant: what is not used within this time is taken back (docs/payments.md). */
  expiresAfterMs: Type.Optional(duration),
});

const refundSchema = Type.Object({
  ...ofAccount,
  /** As displayed by the client or the list of requests: `req_…`, or the whole id. */
  requestId: text,
  /** Omitted: all of it. */
  microcents: Type.Optional(microcents),
  reference: Type.Optional(text),
});

export const creditOperations = {
  move_credit: operation({
    schema: moveSchema,
    audit: { action: 'credit.move', subject: theCredit },
    run: moveCredit,
  }),

  /** Refunds the cost of a request, or part of it, once. */
  refund_request: operation({
    schema: refundSchema,
    audit: { action: 'credit.refund_request', subject: theRequest },
    run: refundRequest,
  }),

  /** Sets how far below zero an account may go; applies immediately to new requests. */
  limit_credit: operation({
    schema: Type.Object({ ...ofAccount, microcents }),
    audit: { action: 'account.credit_limit', subject: theAccount },
    run: async ({ accountId: named, microcents: limit }, { ledger, repositories, newId, now }) => {
      const accountId = await accountMeant(named, repositories);
      await ledger.setCreditLimit(accountId, BigInt(limit), now(), newId());
      return { accountId, microcents: limit };
    },
  }),
};

export interface Moved {
  readonly accountId: string;
  /** The amount moved; below 0 if it was taken away. */
  readonly microcents: string;
  readonly balanceMicrocents: string;
  /** Whether the key had already been used for the same movement, so nothing moved now. */
  readonly again: boolean;
}

/** Throws OperationError; StoreError `insufficient` when the balance is too low, `conflict` for a key of another movement. */
export async function moveCredit(input: Input<typeof moveSchema>, services: OperationServices): Promise<Moved> {
  const accountId = await accountMeant(input.accountId, services.repositories);
  const amountMicrocents = BigInt(input.microcents);
  if (amountMicrocents <= 0n) throw new OperationError('The amount must be more than 0.');
  const { systemAccount, kind, gives } = movements[input.movement];
  const { expiresAfterMs } = input;
  if (expiresAfterMs !== undefined && input.movement !== 'grant')
    throw new OperationError('Only a grant can have an expiry.');
  const transfer = {
    debitAccount: gives ? systemAccount : accountId,
    creditAccount: gives ? accountId : systemAccount,
    amountMicrocents,
    kind,
    idempotencyKey: checkedText(input.idempotencyKey, 'An idempotency key', idempotencyKeyLengthMax),
    reference: checkedReference(input.reference),
  };
  const { receipt } = input;
  if (receipt === undefined) return move(services, accountId, { ...transfer, expiresAfterMs });
  if (input.movement !== 'payback' && input.movement !== 'chargeback')
    throw new OperationError('Only a payment that was returned can name a receipt.');
  return moveBack(services, accountId, { ...transfer, receipt, returned: returnKinds[input.movement] });
}

const returnKinds = { payback: 'refund', chargeback: 'dispute' } as const;

/** Moves back a returned payment, up to the amount of its receipt, which gets a credit note. Throws OperationError. */
async function moveBack(
  services: OperationServices,
  accountId: string,
  {
    receipt: named,
    returned,
    ...transfer
  }: Omit<Movable, 'recording'> & { readonly receipt: string; readonly returned: 'refund' | 'dispute' },
): Promise<Moved> {
  const { repositories, now } = services;
  const receipt = await repositories.unreturnedOf({ accountId, id: named });
  if (receipt === undefined)
    throw new OperationError(
      `${accountId} has no receipt ${named} of a payment. List them with: tokenhouse receipts list`,
    );
  const { idempotencyKey: key, amountMicrocents: amount } = transfer;
  const values = [key, returned, amount, amount, now(), receipt.id, accountId, amount];
  try {
    return await move(services, accountId, { ...transfer, recording: [{ name: 'recorded_return', values }] });
  } catch (error) {
    if (!(error instanceof StoreError) || error.code !== 'conflict' || amount <= receipt.microcents) throw error;
    throw new OperationError(
      `Of the payment of receipt ${receipt.number}, ${dollars(receipt.microcents)} has not been returned yet; no more can be.`,
      { cause: error },
    );
  }
}

export async function refundRequest(input: Input<typeof refundSchema>, services: OperationServices): Promise<Moved> {
  const accountId = await accountMeant(input.accountId, services.repositories);
  const found = await services.repositories.findUsage({ accountId, id: input.requestId });
  const [request] = found;
  if (request === undefined)
    throw new OperationError(
      `${accountId} has no request ${input.requestId}${await olderThanKept(services.repositories)}. List them with: tokenhouse usage --account ${accountId}`,
    );
  if (found.length > 1)
    throw new OperationError(
      `${found.length} requests have the id ${input.requestId}: give the full ledger id, which tokenhouse usage --json shows.`,
    );
  const amountMicrocents = input.microcents === undefined ? request.costMicrocents : BigInt(input.microcents);
  if (request.costMicrocents === 0n)
    throw new OperationError('This request was not charged, so nothing can be refunded.');
  if (amountMicrocents <= 0n || amountMicrocents > request.costMicrocents)
    throw new OperationError(`This request cost ${dollars(request.costMicrocents)}; the refund cannot be larger.`);
  const id = Buffer.from(request.requestId).toString('hex');
  try {
    return await move(services, accountId, {
      debitAccount: systemAccounts.revenue,
      creditAccount: accountId,
      amountMicrocents,
      kind: 'refund',
      // Uses the same key as the service's own repairs, so that only one of them refunds a request.
      idempotencyKey: `refund:${id}`,
      reference: checkedReference(input.reference) ?? id,
    });
  } catch (error) {
    if (!(error instanceof StoreError) || error.code !== 'conflict') throw error;
    throw new OperationError('A part of this request has been refunded already; a request can be refunded only once.', {
      cause: error,
    });
  }
}

type Movable = Omit<Transfer, 'id' | 'by' | 'at'>;

async function move(
  { ledger, repositories, newId, now, actor }: OperationServices,
  accountId: string,
  { expiresAfterMs, ...transfer }: Movable & { readonly expiresAfterMs?: number | undefined },
): Promise<Moved> {
  const [id, at] = [newId(), now()];
  const promotion = (ms: number): Recording => ({
    name: 'promotion',
    values: [id, accountId, transfer.amountMicrocents, at, at + ms],
  });
  const moved = await ledger.transfer({
    ...transfer,
    id,
    by: actor?.id ?? actor?.kind ?? 'system',
    at,
    ...(expiresAfterMs === undefined ? {} : { recording: [promotion(expiresAfterMs)] }),
  });
  const account = await repositories.getAccount({ accountId });
  const isDebit = transfer.debitAccount === accountId;
  return {
    accountId,
    microcents: String(isDebit ? -transfer.amountMicrocents : transfer.amountMicrocents),
    balanceMicrocents: String(account?.balanceMicrocents ?? 0n),
    again: !moved,
  };
}

const idempotencyKeyLengthMax = 255;
const referenceLengthMax = 1000;

const checkedReference = (text: string | undefined): string | null =>
  text === undefined ? null : checkedText(text, 'A reason', referenceLengthMax, 'reason');
