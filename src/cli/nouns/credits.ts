import { randomUUID } from 'node:crypto';

import type { Moved, Movement } from '../../accounts/operations/credit.ts';
import { demoOutcomes } from '../../billing/payments/demo-outcomes.ts';
import { dollars } from '../../platform/dollars.ts';
import { changes, limitOption, lists, loads, meantAccount, option, word } from '../command-row.ts';
import type { Context } from '../context.ts';
import type { CommandRow, Done, Listing } from '../command-row.ts';
import type { Reader } from '../database.ts';
import {
  centsToMicrocents,
  centsToMicrocentsOrNone,
  dollarsToMicrocents,
  duration,
  movedDollars,
  signedCentsToMicrocents,
  signedDollars,
} from '../option.ts';
import { dayAndTime } from '../output.ts';
import { accountsWithFigures } from './accounts.ts';

/** An amount as entered, in microcents, from the options' readers; giving both is refused by Commander. */
interface Amount {
  readonly dollars?: bigint;
  readonly cents?: bigint;
}
interface OfAccount {
  readonly account?: string;
}
interface MoveOptions extends Amount, OfAccount {
  readonly reason?: string;
  readonly idempotencyKey?: string;
  /** Id or number. */
  readonly receipt?: string;
  /** Milliseconds. */
  readonly expires?: number;
}

const amountOptions = (
  about: string,
  inDollars: (text: string) => bigint,
  inCents: (text: string) => bigint,
): CommandRow['takes'] => [
  option('--dollars <amount>', about, inDollars),
  option('--cents <amount>', 'the amount in cents, instead of dollars', inCents).conflicts('dollars'),
];
const reason = option('--reason <text>', 'note that is kept with the transfer');
const once = option('--idempotency-key <key>', 'idempotency key: the same key twice moves credit only once');

/** The name and description of each movement; amounts are displayed without their sign. */
const movements = [
  ['grant', 'add free credit to an account'],
  ['topup', 'record a payment that has arrived'],
  ['payback', 'record a payment that was refunded to its payer'],
  ['chargeback', 'record a payment that the bank has charged back'],
  ['expire', 'let unused promotional credit expire'],
] as const satisfies readonly (readonly [Movement, string])[];
const said: Readonly<Record<Movement, (amount: string) => string>> = {
  grant: (amount) => `${amount} added`,
  topup: (amount) => `a payment of ${amount} recorded`,
  payback: (amount) => `a payment of ${amount} recorded as refunded`,
  chargeback: (amount) => `a payment of ${amount} recorded as charged back`,
  expire: (amount) => `${amount} of promotional credit expired`,
  adjust_up: (amount) => `${amount} added`,
  adjust_down: (amount) => `${amount} taken away`,
};
const moreOf: Partial<Readonly<Record<Movement, CommandRow['takes']>>> = {
  grant: [option('--expires <duration>', 'unused credit expires after this time, for example 30d', duration)],
  payback: [option('--receipt <number>', 'number or id of the receipt of the payment, which gets a credit note')],
  chargeback: [option('--receipt <number>', 'number or id of the receipt of the payment, which gets a credit note')],
};

export const creditCommands: readonly CommandRow[] = [
  lists({
    name: 'show',
    about: 'list accounts with their balances',
    takes: [],
    api: () => ({ path: '/v1/admin/accounts', limit: 100 }),
    read: (reader) => accountsWithFigures(reader, 100),
    columns: {
      account: ({ id }) => id,
      name: ({ name }) => name,
      status: ({ status }) => status,
      balance: ({ balance_microcents: balance }) => dollars(BigInt(balance)),
    },
  }),
  ...movements.map(([name, about]) =>
    changes({
      name,
      about,
      takes: [
        ...amountOptions('the amount, for example 5.00', movedDollars, centsToMicrocents),
        meantAccount,
        reason,
        once,
        ...(moreOf[name] ?? []),
      ],
      ask: (options: MoveOptions) => movement(name, options),
      done: (answer, { receipt }) =>
        moved(answer, (amount) =>
          receipt === undefined ? said[name](amount) : `${said[name](amount)}, with a credit note for its receipt`,
        ),
    }),
  ),
  changes({
    name: 'adjust',
    about: 'correct a balance, up or down',
    takes: [
      ...amountOptions('the amount, for example 5.00 or -0.25', signedDollars, signedCentsToMicrocents),
      option('--reason <text>', 'note that is kept with the transfer').makeOptionMandatory(),
      meantAccount,
      once,
    ],
    ask: async (options: MoveOptions) => {
      const amount = await amountOf(options);
      return await movement(amount < 0n ? 'adjust_down' : 'adjust_up', {
        ...options,
        dollars: amount < 0n ? -amount : amount,
      });
    },
    done: (answer) => moved(answer, said[answer.microcents.startsWith('-') ? 'adjust_down' : 'adjust_up']),
  }),
  changes({
    name: 'refund',
    about: 'refund the cost of a request, or a part of it; possible once',
    takes: [
      word('<request-id>', 'id of the request, from usage or x-request-id'),
      ...amountOptions('the amount (default: the whole cost)', movedDollars, centsToMicrocents),
      option('--account <account-id>', 'account of the request (default: the one that sent it)'),
      reason,
    ],
    ask: async (options: MoveOptions, [requestId], context) => {
      const part = options.dollars ?? options.cents;
      return {
        kind: 'refund_request',
        accountId: options.account ?? (await senderOf(context, requestId)),
        requestId,
        microcents: part === undefined ? undefined : String(part),
        reference: options.reason,
      };
    },
    done: (answer, _options, [requestId]) => moved(answer, (amount) => `${amount} refunded for ${requestId}`),
  }),
  changes({
    name: 'limit',
    about: 'set how far below zero the balance of an account may go; 0 is prepaid',
    takes: [
      ...amountOptions('the limit, for example 100.00', dollarsToMicrocents, centsToMicrocentsOrNone),
      meantAccount,
    ],
    ask: async (options: Amount & OfAccount) => ({
      kind: 'limit_credit',
      accountId: options.account,
      microcents: String(await amountOf(options)),
    }),
    done: ({ accountId }, options) => {
      const microcents = options.dollars ?? options.cents ?? 0n;
      return {
        json: { account: accountId, credit_limit_microcents: microcents },
        lines: [
          microcents === 0n
            ? `${accountId} is prepaid: it may use only its credit.`
            : `${accountId} may owe ${dollars(microcents)} from now on.`,
        ],
      };
    },
  }),
  lists({
    name: 'history',
    about: 'list movements of credit other than charges of requests, newest first',
    takes: [meantAccount, limitOption(1000, 20)],
    read: async (reader, { account, limit }: Listing) => {
      const { uuidText } = await import('../../platform/ids/uuid.ts');
      const accountId = await meant(reader, account);
      return (await reader.repositories.listTransfers({ accountId, limit })).map((row) => ({
        id: uuidText(row.id),
        account: accountId,
        kind: row.kind,
        microcents: row.debitAccount === accountId ? -row.amountMicrocents : row.amountMicrocents,
        other: row.debitAccount === accountId ? row.creditAccount : row.debitAccount,
        reference: row.reference,
        by: row.by,
        at: new Date(row.at).toISOString(),
      }));
    },
    columns: {
      at: ({ at }) => dayAndTime(at),
      kind: ({ kind }) => kind,
      amount: ({ microcents }) => dollars(microcents),
      by: ({ by }) => by,
      reason: ({ reference }) => reference,
    },
  }),
  lists({
    name: 'topups',
    about: 'list requested payments, newest first',
    takes: [meantAccount, limitOption(100, 20)],
    read: async (reader, { account, limit }: Listing) => {
      const accountId = await meant(reader, account);
      return (await reader.repositories.listTopups({ accountId, limit })).map((topup) => ({
        id: topup.id,
        account: topup.accountId,
        microcents: topup.amountMicrocents,
        status: topup.status,
        origin: topup.origin,
        provider: topup.provider,
        payment: topup.paymentId,
        returned_microcents: topup.returnedMicrocents,
        checkout_url: topup.status === 'pending' ? topup.checkoutUrl : null,
        created_at: new Date(topup.createdAt).toISOString(),
        paid_at: topup.paidAt === null ? null : new Date(topup.paidAt).toISOString(),
        by: topup.by,
      }));
    },
    columns: {
      id: ({ id }) => id,
      at: ({ created_at: at }) => dayAndTime(at),
      amount: ({ microcents }) => dollars(microcents),
      status: ({ status }) => status,
      origin: ({ origin }) => origin,
      provider: ({ provider }) => provider,
      by: ({ by }) => by,
    },
  }),
];

export const payCommands: readonly CommandRow[] = [
  loads(
    'simulate',
    'play a payment at the built-in payment provider',
    [
      word('<topup-id>', 'id of the top-up, from credits topups'),
      option('--outcome <what>', 'outcome of the payment', undefined, 'success').choices(demoOutcomes),
    ],
    () => import('../pay.ts').then(({ simulatePayment }) => simulatePayment),
  ),
];

/** The account that sent a request; undefined where that is not certain. */
async function senderOf(context: Context, id: string): Promise<string | undefined> {
  const { reading } = await import('../database.ts');
  const [sender, other] = await reading(context, ({ repositories, now }) =>
    repositories.accountsOfRequest({ id, now }),
  );
  return other === undefined ? sender : undefined;
}

async function meant({ repositories }: Reader, account: string | undefined): Promise<string> {
  const { accountMeant } = await import('../../accounts/operation.ts');
  return await accountMeant(account, repositories);
}

const movement = async (kind: Movement, options: MoveOptions) =>
  ({
    kind: 'move_credit',
    movement: kind,
    accountId: options.account,
    microcents: String(await amountOf(options)),
    reference: options.reason,
    idempotencyKey: options.idempotencyKey ?? `cli:${randomUUID()}`,
    receipt: options.receipt,
    expiresAfterMs: options.expires,
  }) as const;

async function amountOf({ dollars: inDollars, cents }: Amount): Promise<bigint> {
  const microcents = inDollars ?? cents;
  if (microcents !== undefined) return microcents;
  const [{ CommandFailure }, { exitCodes }] = await Promise.all([
    import('../command-failure.ts'),
    import('../failure.ts'),
  ]);
  throw new CommandFailure({
    what: ['The amount is missing.'],
    why: 'a movement of credit needs an amount',
    repair: ['--dollars 5.00, or --cents 500'],
    exitCode: exitCodes.usage,
  });
}

function moved({ accountId, again, ...answer }: Moved, words: (amount: string) => string): Done {
  const microcents = BigInt(answer.microcents);
  const balance = BigInt(answer.balanceMicrocents);
  const what = words(dollars(microcents < 0n ? -microcents : microcents));
  return {
    json: {
      account: accountId,
      moved_microcents: again ? 0n : microcents,
      balance_microcents: balance,
      again,
    },
    lines: [
      again
        ? `This was done before with the same key, so nothing moved. ${accountId} has ${dollars(balance)}.`
        : `${what.charAt(0).toUpperCase()}${what.slice(1)}. ${accountId} has ${dollars(balance)}.`,
    ],
  };
}
