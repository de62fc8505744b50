import Type from 'typebox';

import { ApiError } from '../../platform/errors.ts';
import { centsText } from '../../platform/dollars.ts';
import { startOfUtcMonth } from '../../platform/calendar/months.ts';
import type { Payments, TopupInput } from '../../billing/payments/payments.ts';
import { PaymentError } from '../../billing/payments/provider.ts';
import type { AutoTopup } from '../../store/repositories/auto-topups.ts';
import type { Topup } from '../../store/repositories/payments.ts';
import { actorOf } from '../api.ts';
import { notThere } from '../input.ts';
import { everyRole, mayPay, route } from '../route.ts';
import type { AccountRoute, Call, Principal } from '../route.ts';
import type { AccountServices } from '../services.ts';
import {
  centsOf,
  listOf,
  listSchema,
  microcentsPerCent,
  nullable,
  pageLimit,
  pageQuery,
  secondsOf,
  wholeOf,
} from '../wire.ts';
import { receiptIds, shownTopup, topupSchema } from '../topup-object.ts';
import { ledgerRoute } from './ledger.ts';

const autoTopupSchema = Type.Object({
  enabled: Type.Boolean(),
  state: Type.Enum(['off', 'on', 'stopped'], {
    description: '`stopped`: three charges in a row have failed. PUT turns it on again.',
  }),
  threshold_cents: nullable(
    Type.Integer({ description: 'A charge is made when the balance without holds falls below this.' }),
  ),
  amount_cents: nullable(Type.Integer()),
  monthly_cap_cents: nullable(Type.Integer({ description: 'The most that is charged in a calendar month, UTC.' })),
  charged_this_month_cents: Type.Integer(),
  failures: Type.Integer({ description: 'Failed charges in a row.' }),
  stop_reason: nullable(Type.String()),
  has_payment_method: Type.Boolean({ description: 'A paid checkout with `save_payment_method` saves it.' }),
  proposed_threshold_cents: Type.Integer({
    description:
      'Twice the largest recent hold of a request: with a lower threshold, a single request may be refused for lack of credit.',
  }),
});

const topupBody = Type.Object(
  {
    amount_cents: Type.Integer({ minimum: 1, maximum: 1_000_000_000 }),
    success_url: Type.Optional(Type.String({ minLength: 1, maxLength: 2000 })),
    cancel_url: Type.Optional(Type.String({ minLength: 1, maxLength: 2000 })),
    save_payment_method: Type.Optional(
      Type.Boolean({
        description: 'Keep the card for automatic top-ups. When left out, it is kept only if automatic top-up is on.',
      }),
    ),
  },
  { additionalProperties: false },
);

export const paymentRoutes: readonly AccountRoute[] = [
  route({
    method: 'get',
    path: '/v1/credits',
    operationId: 'getCredits',
    tag: 'Credit',
    summary: 'Get the credit of the account',
    description:
      'The credited, used and remaining amounts at one moment. `held` is what running requests hold, on all processes of this service; requests younger than a quarter of a second are not included. `available` is the balance without holds; new requests may use it, and the credit limit.',
    access: everyRole,
    answers: [
      {
        status: 200,
        description: 'The credit.',
        schema: Type.Object({
          object: Type.Literal('credits'),
          total_credits_cents: Type.Integer({ description: 'Credited amounts minus reversals.' }),
          total_usage_cents: Type.Integer(),
          balance_cents: Type.Integer(),
          reserved_cents: Type.Integer({ description: 'As `held_microcents`.' }),
          balance_microcents: Type.Integer(),
          available_microcents: Type.Integer(),
          held_microcents: Type.Integer(),
          spent_microcents: Type.Integer(),
          held_requests: Type.Integer(),
          credit_limit_microcents: Type.Integer({ description: 'How far below zero the balance may go.' }),
          promotions: Type.Array(
            Type.Object({
              left_microcents: Type.Integer(),
              amount_microcents: Type.Integer(),
              expires_at: Type.Integer(),
            }),
            { description: 'Promotional credit that ends, the earliest end first. It is spent first.' },
          ),
        }),
      },
    ],
    handle: async ({ account, services }) => {
      const { repositories, now } = services.operations;
      const [credit, promotions] = await Promise.all([
        repositories.creditSummary({ accountId: account.id, now: now() }),
        repositories.listPromotions({ accountId: account.id }),
      ]);
      if (credit === undefined) throw notThere();
      const { balanceMicrocents, creditLimitMicrocents, creditedMicrocents, spentMicrocents, held } = credit;
      return {
        object: 'credits',
        total_credits_cents: centsOf(creditedMicrocents),
        total_usage_cents: centsOf(spentMicrocents),
        balance_cents: centsOf(balanceMicrocents),
        reserved_cents: centsOf(held.microcents),
        balance_microcents: wholeOf(balanceMicrocents),
        available_microcents: wholeOf(balanceMicrocents - held.microcents),
        held_microcents: wholeOf(held.microcents),
        spent_microcents: wholeOf(spentMicrocents),
        held_requests: held.requests,
        credit_limit_microcents: wholeOf(creditLimitMicrocents),
        promotions: promotions
          .filter(({ closedAt, expiresAt }) => closedAt === null && expiresAt > now())
          .map(({ leftMicrocents, amountMicrocents, expiresAt }) => ({
            left_microcents: wholeOf(leftMicrocents),
            amount_microcents: wholeOf(amountMicrocents),
            expires_at: secondsOf(expiresAt),
          })),
      };
    },
  }),
  route({
    method: 'post',
    path: '/v1/credits/topups',
    operationId: 'createTopup',
    tag: 'Credit',
    summary: 'Pay for credit',
    description:
      'Creates a top-up and its payment page (`checkout_url`). Credit is added when the payment provider has reported the payment, never before. Sending the same `Idempotency-Key` again returns the same top-up; with another amount the answer is 409.',
    access: mayPay,
    body: topupBody,
    answers: [{ status: 201, description: 'The top-up, pending.', schema: topupSchema }],
    errors: ['http_409'],
    handle: async (call) => {
      const { amount_cents: amountCents, success_url: successUrl, cancel_url: cancelUrl } = call.body;
      const payments = paymentsOf(call.services);
      const topup = await begin(call, payments, amountCents, {
        keepsCard: call.body.save_payment_method,
        successUrl: returnUrl(successUrl, 'success_url', call.services),
        cancelUrl: returnUrl(cancelUrl, 'cancel_url', call.services),
        idempotencyKey: call.idempotencyKey,
      });
      return shownTopup(topup, payments.currency, (await receiptIds(call, [topup])).get(topup.id) ?? null);
    },
  }),
  route({
    method: 'get',
    path: '/v1/credits/topups',
    operationId: 'listTopups',
    tag: 'Credit',
    summary: 'List top-ups',
    description: 'Newest first.',
    access: everyRole,
    query: Type.Object(pageQuery, { additionalProperties: false }),
    answers: [{ status: 200, description: 'A page of top-ups.', schema: listSchema(topupSchema) }],
    handle: async ({ account, query, services }) => {
      const limit = pageLimit(query.limit);
      const { currency } = services.config().payments;
      const rows = await services.operations.repositories.listTopups({
        accountId: account.id,
        limit: limit + 1,
        ...(query.after === undefined ? {} : { after: query.after }),
      });
      const receipts = await receiptIds({ account, services }, rows);
      return listOf(
        rows,
        limit,
        (topup) => shownTopup(topup, currency, receipts.get(topup.id) ?? null),
        ({ id }) => id,
      );
    },
  }),
  route({
    method: 'get',
    path: '/v1/credits/topups/{id}',
    operationId: 'getTopup',
    tag: 'Credit',
    summary: 'Read a top-up',
    description: 'Shows the state of a top-up after the return from the payment page.',
    access: everyRole,
    params: Type.Object({ id: Type.String({ pattern: '^top_[0-9a-f]{32}$' }) }),
    answers: [{ status: 200, description: 'The top-up.', schema: topupSchema }],
    handle: async ({ account, params, services }) => {
      const topup = await services.operations.repositories.getTopup({ id: params.id, accountId: account.id });
      if (topup === undefined) throw notThere();
      const receipts = await receiptIds({ account, services }, [topup]);
      return shownTopup(topup, services.config().payments.currency, receipts.get(topup.id) ?? null);
    },
  }),
  route({
    method: 'post',
    path: '/v1/webhooks/payments',
    operationId: 'receivePaymentEvent',
    tag: 'Credit',
    summary: 'Called by the payment provider',
    description:
      'Takes an event, signed as Stripe signs (`Stripe-Signature: t=…,v1=…`), within five minutes. Each event, and each payment, counts once. 409: the event is about a payment of this service that has not been seen yet; send it again. Events of other products are ignored.',
    access: 'anyone',
    // A provider has few addresses and reports events of every customer; a forged one costs one HMAC.
    perMinute: 6_000,
    body: 'raw',
    answers: [
      {
        status: 200,
        description: 'The event is recorded.',
        schema: Type.Object({
          received: Type.Literal(true),
          outcome: Type.Enum(['applied', 'again', 'ignored', 'refused']),
        }),
      },
    ],
    errors: ['http_409'],
    handle: async ({ body, headers, services }) => {
      const payments = paymentsOf(services);
      const signature = headers['stripe-signature'];
      try {
        const outcome = await payments.receive(body, typeof signature === 'string' ? signature : undefined);
        return { received: true, outcome };
      } catch (error) {
        if (!(error instanceof PaymentError)) throw error;
        if (error.code === 'unavailable') throw new ApiError('http_409', error.message, { cause: error });
        throw new ApiError('unsupported_value', error.message, { cause: error });
      }
    },
  }),
  route({
    method: 'get',
    path: '/v1/credits/auto_topup',
    operationId: 'getAutoTopup',
    tag: 'Credit',
    summary: 'Automatic top-up',
    description: 'The settings and state of automatic top-up.',
    access: everyRole,
    answers: [{ status: 200, description: 'Automatic top-up.', schema: autoTopupSchema }],
    handle: shownAutoTopup,
  }),
  route({
    method: 'put',
    path: '/v1/credits/auto_topup',
    operationId: 'setAutoTopup',
    tag: 'Credit',
    summary: 'Set automatic top-up',
    description:
      'Charges the saved payment method when less is available than the threshold, up to the ceiling of a calendar month. It also restarts automatic top-up that has stopped after three failures.',
    access: mayPay,
    body: Type.Object(
      {
        enabled: Type.Boolean(),
        threshold_cents: Type.Integer({ minimum: 0, maximum: 1_000_000_000 }),
        amount_cents: Type.Integer({ minimum: 1, maximum: 1_000_000_000 }),
        monthly_cap_cents: Type.Integer({ minimum: 1, maximum: 1_000_000_000 }),
      },
      { additionalProperties: false },
    ),
    answers: [{ status: 200, description: 'Automatic top-up.', schema: autoTopupSchema }],
    errors: ['http_409'],
    handle: async (call) => {
      const { account, body, principal, services } = call;
      const { repositories, now } = services.operations;
      const payments = paymentsOf(services);
      checkAmount(body.amount_cents, services);
      if (body.monthly_cap_cents < body.amount_cents)
        throw new ApiError('unsupported_value', 'The monthly ceiling is below the amount of one charge; raise it.', {
          param: 'monthly_cap_cents',
        });
      const method = await repositories.getPaymentMethod({ accountId: account.id, provider: payments.provider.name });
      if (body.enabled && method === undefined)
        throw new ApiError(
          'http_409',
          'No payment method is saved: first pay once by POST /v1/credits/topups with save_payment_method.',
        );
      const before = await repositories.getAutoTopup({ accountId: account.id });
      await repositories.setAutoTopup({
        accountId: account.id,
        enabled: body.enabled,
        thresholdMicrocents: BigInt(body.threshold_cents) * microcentsPerCent,
        amountMicrocents: BigInt(body.amount_cents) * microcentsPerCent,
        monthlyCapMicrocents: BigInt(body.monthly_cap_cents) * microcentsPerCent,
        by: byOf(principal),
        at: now(),
      });
      await call.audit({
        action: 'auto_topup.set',
        target: account.id,
        ...(before === undefined ? {} : { before: settingsOf(before) }),
        after: body,
      });
      return await shownAutoTopup(call);
    },
  }),
  ledgerRoute,
  route({
    method: 'post',
    path: '/v1/admin/refunds',
    operationId: 'refundTopup',
    tag: 'Server',
    summary: 'Refund a top-up',
    description:
      'Asks the payment provider to refund a top-up, or a part of it. The credit is removed when the provider reports the refund. Sending the same `Idempotency-Key` again does not refund twice.',
    access: 'operator',
    stepUp: true,
    body: Type.Object(
      {
        topup_id: Type.String({ pattern: '^top_[0-9a-f]{32}$' }),
        amount_cents: Type.Optional(
          Type.Integer({ minimum: 1, maximum: 1_000_000_000, description: 'When left out: the whole amount.' }),
        ),
      },
      { additionalProperties: false },
    ),
    answers: [
      {
        status: 202,
        description: 'The provider has accepted the refund.',
        schema: Type.Object({
          id: Type.String({ description: "The provider's id of the refund." }),
          object: Type.Literal('refund'),
          topup_id: Type.String(),
          amount_cents: Type.Integer(),
        }),
      },
    ],
    errors: ['http_409'],
    handle: async (call) => {
      const { body, services, idempotencyKey, requestId } = call;
      const payments = paymentsOf(services);
      const topup = await services.operations.repositories.getTopup({ id: body.topup_id });
      if (topup === undefined) throw notThere();
      if (topup.paymentId === null || topup.provider !== payments.provider.name)
        throw new ApiError('http_409', `This top-up is ${topup.status}: it has no payment to refund.`);
      const amountCents = body.amount_cents ?? centsOf(topup.amountMicrocents);
      let id: string;
      try {
        id = await payments.provider.refund({
          paymentId: topup.paymentId,
          amountCents,
          idempotencyKey: `refund:${topup.id}:${amountCents}:${idempotencyKey ?? requestId}`,
        });
      } catch (error) {
        throw paymentFailure(error);
      }
      await call.audit({
        action: 'topup.refund',
        target: topup.id,
        after: { refund: id, amount_cents: amountCents },
        accountId: topup.accountId,
      });
      return { id, object: 'refund', topup_id: topup.id, amount_cents: amountCents };
    },
  }),
];

function paymentsOf({ payments }: AccountServices): Payments {
  if (payments === undefined)
    throw new ApiError(
      'http_409',
      'This server takes no payments: ask its operator to add credit (setting payments.provider).',
    );
  return payments;
}

/** Starts a top-up on behalf of the sender. */
async function begin(
  call: Pick<Call, 'account' | 'principal' | 'services' | 'audit'>,
  payments: Payments,
  amountCents: number,
  input: Pick<TopupInput, 'successUrl' | 'cancelUrl' | 'idempotencyKey' | 'keepsCard'>,
): Promise<Topup> {
  checkAmount(amountCents, call.services);
  try {
    const topup = await payments.createTopup({
      accountId: call.account.id,
      amountCents,
      email: await payerEmail(call),
      by: byOf(call.principal),
      ...input,
    });
    const { keepsCard } = input;
    await call.audit({
      action: 'topup.create',
      target: topup.id,
      after: { amount_cents: amountCents, ...(keepsCard === undefined ? {} : { save_payment_method: keepsCard }) },
    });
    return topup;
  } catch (error) {
    throw paymentFailure(error);
  }
}

/** The address that the provider fills in for the payer: the account's invoice address, or else the signed-in user's. */
async function payerEmail({ account, principal, services }: Pick<Call, 'account' | 'principal' | 'services'>) {
  const { repositories } = services.operations;
  const { invoiceEmail } = (await repositories.getAccount({ accountId: account.id }))?.billing ?? {};
  return invoiceEmail ?? (principal.kind === 'user' ? principal.email : undefined);
}

function checkAmount(amountCents: number, { config }: AccountServices): void {
  const { topupCentsMin, topupCentsMax } = config().payments;
  if (amountCents < topupCentsMin || amountCents > topupCentsMax)
    throw new ApiError(
      'unsupported_value',
      `A payment is from ${centsText(topupCentsMin)} to ${centsText(topupCentsMax)} (${topupCentsMin} to ${topupCentsMax} cents).`,
      { param: 'amount_cents' },
    );
}

/** Where users return to after paying: the page they came from, over HTTP(S), or this host. */
function returnUrl(text: string | undefined, param: string, { accountUrl }: AccountServices): string {
  if (text === undefined) return `${accountUrl()}/topup`;
  if (!/^https?:\/\//i.test(text) || !URL.canParse(text))
    throw new ApiError('unsupported_value', 'The return address must begin with https:// or http://.', { param });
  return text;
}

function paymentFailure(error: unknown): unknown {
  if (!(error instanceof PaymentError)) return error;
  return error.code === 'declined'
    ? new ApiError('http_409', error.message, { cause: error })
    : new ApiError(
        'internal_error',
        'The payment provider does not answer. Send the same request again with the same Idempotency-Key.',
        {
          retryAfterSeconds: 5,
          cause: error,
        },
      );
}

const byOf = (principal: Principal): string => actorOf(principal).id ?? 'system';

async function shownAutoTopup({ account, services }: Pick<Call, 'account' | 'services'>) {
  const { repositories, now } = services.operations;
  const provider = services.payments?.provider.name;
  const [auto, charged, credit, method] = await Promise.all([
    repositories.getAutoTopup({ accountId: account.id }),
    repositories.chargedSince({ accountId: account.id, from: startOfUtcMonth(now()) }),
    repositories.creditSummary({ accountId: account.id, now: now() }),
    provider === undefined ? undefined : repositories.getPaymentMethod({ accountId: account.id, provider }),
  ]);
  const largest = credit?.largestHoldMicrocents ?? 0n;
  return {
    state: auto === undefined || !auto.enabled ? 'off' : auto.stoppedAt === null ? 'on' : 'stopped',
    ...(auto === undefined
      ? { enabled: false, threshold_cents: null, amount_cents: null, monthly_cap_cents: null }
      : settingsOf(auto)),
    charged_this_month_cents: centsOf(charged),
    failures: auto?.failures ?? 0,
    stop_reason: auto?.stopReason ?? null,
    has_payment_method: method !== undefined,
    proposed_threshold_cents: wholeOf((2n * largest + microcentsPerCent - 1n) / microcentsPerCent),
  };
}

const settingsOf = (auto: AutoTopup) => ({
  enabled: auto.enabled,
  threshold_cents: centsOf(auto.thresholdMicrocents),
  amount_cents: centsOf(auto.amountMicrocents),
  monthly_cap_cents: centsOf(auto.monthlyCapMicrocents),
});
