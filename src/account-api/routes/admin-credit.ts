import { createHash } from 'node:crypto';

import Type from 'typebox';

import { operate } from '../../accounts/operations.ts';
import type { Operation } from '../../accounts/operations.ts';
import type { Movement } from '../../accounts/operations/credit.ts';
import { ApiError } from '../../platform/errors.ts';
import { operationsOf } from '../operations-of.ts';
import { route } from '../route.ts';
import { accountId, liveAccount, reason } from '../server-account.ts';
import { centsMax, exactAmount, wholeOf } from '../wire.ts';

const movementsOfType = {
  grant: 'grant',
  topup: 'topup',
  expire: 'expire',
  payback: 'payback',
  chargeback: 'chargeback',
} as const satisfies Readonly<Record<string, Movement>>;

/** Moves credit on behalf of operators. */
export const moveCreditRoute = route({
  method: 'post',
  path: '/v1/admin/credits',
  operationId: 'moveCredit',
  tag: 'Server',
  summary: 'Move credit',
  description:
    'Once for each `Idempotency-Key`, which is required. `adjust` takes a negative amount too. Running requests keep their holds: an amount above the free balance is refused with 409.',
  access: 'operator',
  stepUp: true,
  body: Type.Object(
    {
      account_id: accountId,
      type: Type.Enum(['grant', 'topup', 'adjust', 'expire', 'payback', 'chargeback', 'refund_request']),
      amount_cents: Type.Optional(Type.Integer({ minimum: -centsMax, maximum: centsMax })),
      amount_microcents: Type.Optional(
        Type.Integer({ minimum: -Number.MAX_SAFE_INTEGER, maximum: Number.MAX_SAFE_INTEGER }),
      ),
      request_id: Type.Optional(
        Type.String({ minLength: 1, maxLength: 128, description: 'Id of the request that is refunded.' }),
      ),
      receipt_id: Type.Optional(
        Type.String({
          minLength: 1,
          maxLength: 64,
          description:
            'For `payback` and `chargeback`: id or number of the receipt of the payment, which gets a credit note.',
        }),
      ),
      reason: Type.Optional(reason),
    },
    { additionalProperties: false },
  ),
  answers: [
    {
      status: 200,
      description: 'The movement of credit.',
      schema: Type.Object({
        object: Type.Literal('credit'),
        account_id: Type.String(),
        moved_microcents: Type.Integer({ description: 'Below zero: taken away.' }),
        balance_microcents: Type.Integer(),
        again: Type.Boolean({ description: 'The movement was made before with the same key; nothing moved now.' }),
      }),
    },
  ],
  errors: ['http_409'],
  handle: async (call) => {
    const key = call.idempotencyKey;
    if (key === undefined)
      throw new ApiError('unsupported_value', 'Send an Idempotency-Key: it makes sure that credit moves only once.', {
        param: 'Idempotency-Key',
      });
    const account = await liveAccount(call, call.body.account_id);
    const answer = await operate(creditInput(call.body, account, key), operationsOf(call));
    return {
      object: 'credit',
      account_id: account,
      moved_microcents: wholeOf(BigInt(answer.microcents)),
      balance_microcents: wholeOf(BigInt(answer.balanceMicrocents)),
      again: answer.again,
    };
  },
});

interface CreditBody {
  readonly type: keyof typeof movementsOfType | 'adjust' | 'refund_request';
  readonly amount_cents?: number;
  readonly amount_microcents?: number;
  readonly request_id?: string;
  readonly receipt_id?: string;
  readonly reason?: string;
}

function creditInput(
  body: CreditBody,
  account: string,
  idempotencyKey: string,
): Operation<'move_credit' | 'refund_request'> {
  const { type, reason: reference, request_id: requestId, receipt_id: receipt } = body;
  const amount = exactAmount(body, 'amount_cents', 'amount_microcents') ?? undefined;
  if (receipt !== undefined && type !== 'payback' && type !== 'chargeback')
    throw new ApiError('unsupported_value', 'Only payback and chargeback take a receipt.', { param: 'receipt_id' });
  if (type === 'refund_request') {
    if (requestId === undefined)
      throw new ApiError('unsupported_value', 'Give the id of the request to refund.', { param: 'request_id' });
    const microcents = amount === undefined ? undefined : String(amount);
    return { kind: 'refund_request', accountId: account, requestId, microcents, reference };
  }
  if (requestId !== undefined)
    throw new ApiError('unsupported_value', 'Only kind refund_request takes a request id.', { param: 'request_id' });
  if (amount === undefined || amount === 0n || (amount < 0n && type !== 'adjust'))
    throw new ApiError('unsupported_value', 'The amount must be above zero; only `adjust` takes a negative one.', {
      param: body.amount_microcents !== undefined ? 'amount_microcents' : 'amount_cents',
    });
  const movement = type === 'adjust' ? (amount > 0n ? 'adjust_up' : 'adjust_down') : movementsOfType[type];
  return {
    kind: 'move_credit',
    movement,
    accountId: account,
    microcents: String(amount < 0n ? -amount : amount),
    reference,
    receipt,
    // Distinct from those of the command line and of payments, and within their maximum length.
    idempotencyKey: `operator:${createHash('sha256').update(idempotencyKey).digest('hex')}`,
  };
}
