import { randomUUID } from 'node:crypto';

import type { Context } from './context.ts';
import { reading, writing } from './database.ts';
import { cents, table } from './output.ts';

export async function showCredits(context: Context): Promise<number> {
  const accounts = await reading(context, (desk) => desk.listAccounts({}));
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
      ['account', 'name', 'status', 'balance', 'microcents'],
      accounts.map((account) => [
        account.id,
        account.name,
        account.status,
        cents(account.balanceMicrocents),
        account.balanceMicrocents,
      ]),
    ),
  );
  return 0;
}

interface GrantOptions {
  /** In microcents, as the option's reader made it. */
  readonly cents: bigint;
  readonly account?: string;
  readonly reason?: string;
  readonly idempotencyKey?: string;
}

export async function grantCredit(context: Context, options: GrantOptions): Promise<number> {
  const answer = await writing(context, {
    kind: 'grant_credit',
    accountId: options.account,
    microcents: String(options.cents),
    reference: options.reason,
    idempotencyKey: options.idempotencyKey ?? `cli:${randomUUID()}`,
  });
  if (answer.kind !== 'granted') throw new Error('unexpected answer');
  const balance = BigInt(answer.balanceMicrocents);
  context.print.result(
    {
      account: answer.accountId,
      granted_microcents: answer.again ? 0n : BigInt(answer.microcents),
      balance_microcents: balance,
      again: answer.again,
    },
    [
      answer.again
        ? `This idempotency key had been used: nothing was added. ${answer.accountId} has ${cents(balance)}.`
        : `${cents(BigInt(answer.microcents))} added. ${answer.accountId} has ${cents(balance)}.`,
    ],
  );
  return 0;
}
