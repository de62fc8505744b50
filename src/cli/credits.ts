import { randomUUID } from 'node:crypto';

import { accountMeant } from '../accounts/operation.ts';
import type { Moved, Movement } from '../accounts/operations/credit.ts';
import { dollars } from '../platform/dollars.ts';
import { uuidText } from '../platform/ids/uuid.ts';
import { CommandFailure } from './command-failure.ts';
import type { Context } from './context.ts';
import { reading, writing } from './database.ts';
import { exitCodes } from './failure.ts';
import { table } from './output.ts';

export async function showCredits(context: Context): Promise<number> {
  const accounts = await reading(context, (repositories) => repositories.listAccounts({}));
  context.print.result(
    accounts.map((account) => ({
      account: account.id,
      name: account.name,
      status: account.status,
      models: account.models,
      balance_microcents: account.balanceMicrocents,
      credit_limit_microcents: account.creditLimitMicrocents,
    })),
    table(
      ['account', 'name', 'status', 'balance'],
      accounts.map((account) => [account.id, account.name, account.status, dollars(account.balanceMicrocents)]),
    ),
  );
  return 0;
}

/** An amount as entered, in microcents, from the options' readers. */
interface Amount {
  readonly dollars?: bigint;
  readonly cents?: bigint;
}

/** Giving both is refused earlier. */
function amountOf({ dollars: inDollars, cents: inCents }: Amount): bigint {
  const microcents = inDollars ?? inCents;
  if (microcents !== undefined) return microcents;
  throw new CommandFailure({
    what: ['The amount is missing.'],
    why: 'a movement of credit needs an amount',
    repair: ['--dollars 5.00, or --cents 500'],
    exitCode: exitCodes.usage,
  });
}

interface MoveOptions extends Amount {
  readonly account?: string;
  readonly reason?: string;
  readonly idempotencyKey?: string;
  /** Id or number. */
  readonly receipt?: string;
  /** Milliseconds. */
  readonly expires?: number;
}

/** A movement of credit, with its description of the amount, which is displayed without its sign. */
const done: Readonly<Record<Movement, (amount: string) => string>> = {
  grant: (amount) => `${amount} added`,
  topup: (amount) => `a payment of ${amount} recorded`,
  payback: (amount) => `a payment of ${amount} recorded as returned`,
  chargeback: (amount) => `a payment of ${amount} recorded as taken back`,
  expire: (amount) => `${amount} of promotional credit expired`,
  adjust_up: (amount) => `${amount} added`,
  adjust_down: (amount) => `${amount} taken away`,
};

export async function moveCredit(context: Context, movement: Movement, options: MoveOptions): Promise<number> {
  const answer = await writing(context, {
    kind: 'move_credit',
    movement,
    accountId: options.account,
    microcents: String(amountOf(options)),
    reference: options.reason,
    idempotencyKey: options.idempotencyKey ?? `cli:${randomUUID()}`,
    receipt: options.receipt,
    expiresAfterMs: options.expires,
  });
  const note = options.receipt === undefined ? '' : ', with a credit note for its receipt';
  return showMoved(context, answer, (amount) => done[movement](amount) + note);
}

/** An adjustment, in either direction. */
export function adjustCredit(context: Context, options: MoveOptions): Promise<number> {
  const microcents = amountOf(options);
  return microcents < 0n
    ? moveCredit(context, 'adjust_down', { ...options, dollars: -microcents })
    : moveCredit(context, 'adjust_up', options);
}

interface RefundOptions extends Amount {
  readonly account?: string;
  readonly reason?: string;
}

/** Refunds the cost of a request, or a part of it. */
export async function refundRequest(context: Context, options: RefundOptions, requestId: string): Promise<number> {
  const part = options.dollars ?? options.cents;
  const answer = await writing(context, {
    kind: 'refund_request',
    accountId: options.account,
    requestId,
    microcents: part === undefined ? undefined : String(part),
    reference: options.reason,
  });
  return showMoved(context, answer, (amount) => `${amount} refunded for ${requestId}`);
}

function showMoved({ print }: Context, answer: Moved, words: (amount: string) => string): number {
  const { accountId, again } = answer;
  const microcents = BigInt(answer.microcents);
  const balance = BigInt(answer.balanceMicrocents);
  const what = words(dollars(microcents < 0n ? -microcents : microcents));
  print.result(
    {
      account: accountId,
      moved_microcents: again ? 0n : microcents,
      balance_microcents: balance,
      again,
    },
    [
      again
        ? `This was done before with the same key, so nothing moved. ${accountId} has ${dollars(balance)}.`
        : `${what.charAt(0).toUpperCase()}${what.slice(1)}. ${accountId} has ${dollars(balance)}.`,
    ],
  );
  return 0;
}

/** Movements besides the charges of requests, the newest first. */
export async function listMovements(
  context: Context,
  options: { readonly account?: string; readonly limit: number },
): Promise<number> {
  const transfers = await reading(context, async (repositories) => {
    const accountId = await accountMeant(options.account, repositories);
    const rows = await repositories.listTransfers({ accountId, limit: options.limit });
    return rows.map((row) => ({
      id: uuidText(row.id),
      account: accountId,
      kind: row.kind,
      microcents: row.debitAccount === accountId ? -row.amountMicrocents : row.amountMicrocents,
      other: row.debitAccount === accountId ? row.creditAccount : row.debitAccount,
      reference: row.reference,
      by: row.by,
      at: new Date(row.at).toISOString(),
    }));
  });
  context.print.result(
    transfers,
    table(
      ['at', 'kind', 'amount', 'by', 'reason'],
      transfers.map(({ at, kind, microcents, by, reference }) => [
        at.slice(0, 19).replace('T', ' '),
        kind,
        dollars(microcents),
        by,
        reference,
      ]),
    ),
  );
  return 0;
}

/** Requested payments, the newest first. */
export async function listTopups(
  context: Context,
  options: { readonly account?: string; readonly limit: number },
): Promise<number> {
  const topups = await reading(context, async (repositories) =>
    repositories.listTopups({ accountId: await accountMeant(options.account, repositories), limit: options.limit }),
  );
  const time = (ms: number): string => new Date(ms).toISOString();
  context.print.result(
    topups.map((topup) => ({
      id: topup.id,
      account: topup.accountId,
      microcents: topup.amountMicrocents,
      status: topup.status,
      origin: topup.origin,
      provider: topup.provider,
      payment: topup.paymentId,
      returned_microcents: topup.returnedMicrocents,
      checkout_url: topup.status === 'pending' ? topup.checkoutUrl : null,
      created_at: time(topup.createdAt),
      paid_at: topup.paidAt === null ? null : time(topup.paidAt),
      by: topup.by,
    })),
    table(
      ['id', 'at', 'amount', 'status', 'origin', 'provider', 'by'],
      topups.map((topup) => [
        topup.id,
        time(topup.createdAt).slice(0, 19).replace('T', ' '),
        dollars(topup.amountMicrocents),
        topup.status,
        topup.origin,
        topup.provider,
        topup.by,
      ]),
    ),
  );
  return 0;
}

/** Sets how far below zero an account may go. */
export async function limitCredit(context: Context, options: Amount & { readonly account?: string }): Promise<number> {
  const microcents = amountOf(options);
  const answer = await writing(context, {
    kind: 'limit_credit',
    accountId: options.account,
    microcents: String(microcents),
  });
  const { accountId } = answer;
  context.print.result({ account: accountId, credit_limit_microcents: microcents }, [
    microcents === 0n
      ? `${accountId} is prepaid: it may use only its credit.`
      : `${accountId} may owe ${dollars(microcents)} from now on.`,
  ]);
  return 0;
}
