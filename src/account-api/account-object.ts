import Type from 'typebox';
import type { Static } from 'typebox';

import { readAccountLimits } from '../accounts/key-limits.ts';
import type { Repositories } from '../store/repositories/repositories.ts';
import type { Account, BillingDetails } from '../store/repositories/accounts.ts';
import { taxStatuses } from '../tax/tax.ts';
import { modelBudgetsSchema, modelBudgetsShown } from './limit-object.ts';
import { rateSchema, ratesShown } from './rate-fields.ts';
import { tierSchema, tiersShown } from './tier-fields.ts';
import { centsOf, nullable, secondsOf, secondsOrNull, wholeOf } from './wire.ts';

const billingSchema = Type.Object({
  legal_name: nullable(Type.String()),
  address_lines: nullable(Type.Array(Type.String())),
  country: nullable(Type.String({ description: 'ISO 3166-1, such as `DE`: its tax rate applies to purchases.' })),
  tax_id: nullable(Type.String()),
  tax_status: Type.Enum([...taxStatuses], {
    description:
      '`exempt`: from tax, set by an operator. `reverse_charge`: the customer accounts for the tax, with a tax id of another country than the seller.',
  }),
  invoice_email: nullable(Type.String()),
});

export const spendIntervals = ['day', 'week', 'month'] as const;

export const spendLimitSchema = Type.Object({
  object: Type.Literal('spend_limit'),
  threshold_amount: Type.Integer({ description: 'The most that may be spent in an interval, in cents.' }),
  threshold_microcents: Type.Integer({ description: 'The same, exactly.' }),
  currency: Type.Literal('USD'),
  interval: nullable(
    Type.Enum([...spendIntervals], {
      description: 'In UTC, weeks begin on Monday; null: the limit is for the whole life of the account.',
    }),
  ),
  enforcement: Type.Literal('hard', {
    description: 'Requests beyond the limit are refused, and running answers end when they reach it.',
  }),
  spent_microcents: Type.Integer({ description: 'In the current interval.' }),
  held_microcents: Type.Integer({ description: 'By running requests.' }),
  resets_at: nullable(Type.Integer({ description: 'Unix seconds; null: never.' })),
});

export const aliasSchema = Type.Object({
  name: Type.String({ minLength: 1, maxLength: 128 }),
  model: Type.String({ minLength: 1, maxLength: 128, description: 'The id of the model.' }),
  listed: Type.Boolean({ description: 'Whether the list of models that the account gets has a card of this name.' }),
  answers: Type.Enum(['model', 'alias'], {
    description: 'What answers to requests of this name say: the id of the model, or the name.',
  }),
});

export const zdrRequiredText =
  'Every request of the account is one with `Service-ZDR: required`, whatever its key and its header say: only backends that retain nothing serve it, and nothing of it is stored.';

export const accountSchema = Type.Object({
  id: Type.String(),
  object: Type.Literal('account'),
  name: Type.String(),
  status: Type.Enum(['active', 'suspended', 'deleted']),
  plan_tier: nullable(Type.String({ description: 'The account’s plan; null: it has none.' })),
  balance_cents: Type.Integer(),
  balance_microcents: Type.Integer({ description: 'Credit minus charges.' }),
  held_microcents: Type.Integer({ description: 'The part of it that running requests hold.' }),
  credit_limit_cents: Type.Integer({ description: 'How far below zero the balance may go.' }),
  max_concurrency: nullable(Type.Integer({ description: 'null: the limit of its plan, or of the server.' })),
  ...rateSchema,
  ...modelBudgetsSchema,
  aliases: Type.Array(aliasSchema, { description: 'Names that only this account has for models.' }),
  ...tierSchema,
  zdr_required: Type.Boolean({ description: zdrRequiredText }),
  allowed_models: nullable(Type.Array(Type.String(), { description: 'null: all.' })),
  spend_limit: nullable(spendLimitSchema),
  billing: billingSchema,
  time_zone: Type.String({
    description: 'Decides where the days of reports and the months of invoices begin and end.',
  }),
  created_at: Type.Integer({ description: 'Unix seconds.' }),
  deleted_at: nullable(Type.Integer()),
});
export type AccountObject = Static<typeof accountSchema>;

/** The same for the operator, with the account's spending. */
export const accountOfServerSchema = Type.Object({
  ...accountSchema.properties,
  available_microcents: Type.Integer({
    description: 'The balance less what running requests hold, without the credit limit.',
  }),
  held_requests: Type.Integer({
    description: 'Running requests that hold credit, once they have run for a quarter of a second.',
  }),
  spent_microcents: Type.Integer({
    description: 'In all: everything credited, less what was taken back, less the balance.',
  }),
});
type SpendLimit = Static<typeof spendLimitSchema>;

/** The spending limits of these accounts, omitting those without a limit. */
export async function spendLimits(
  ids: readonly string[],
  repositories: Repositories,
  now: number,
): Promise<ReadonlyMap<string, SpendLimit>> {
  const budgets = await repositories.budgetsOf({ subjects: ids, at: now });
  return new Map(
    budgets.map((budget) => [
      budget.balance.subject,
      {
        object: 'spend_limit',
        threshold_amount: centsOf(budget.amountMicrocents),
        threshold_microcents: wholeOf(budget.amountMicrocents),
        currency: 'USD',
        interval: budget.per === 'total' ? null : budget.per,
        enforcement: 'hard',
        spent_microcents: wholeOf(budget.spentMicrocents),
        held_microcents: wholeOf(budget.heldMicrocents),
        resets_at: secondsOrNull(budget.balance.endsAt),
      },
    ]),
  );
}

export async function accountObjects(
  accounts: readonly Account[],
  repositories: Repositories,
  now: number,
): Promise<readonly AccountObject[]> {
  const ids = accounts.map(({ id }) => id);
  const held = new Map(
    (await repositories.heldByAccounts({ accountIds: ids })).map(({ accountId, microcents }) => [
      accountId,
      microcents,
    ]),
  );
  const spending = await spendLimits(ids, repositories, now);
  const modelBudgets = await modelBudgetsShown(ids, repositories, now);
  return accounts.map((account): AccountObject => {
    const limits = readAccountLimits(account.limits);
    const { concurrencyMax = null, zdrRequired = false } = limits;
    return {
      id: account.id,
      object: 'account',
      name: account.name,
      status: account.deletedAt === null ? account.status : 'deleted',
      plan_tier: account.plan,
      balance_cents: centsOf(account.balanceMicrocents),
      balance_microcents: wholeOf(account.balanceMicrocents),
      held_microcents: wholeOf(held.get(account.id) ?? 0n),
      credit_limit_cents: centsOf(account.creditLimitMicrocents),
      max_concurrency: concurrencyMax,
      ...ratesShown(limits),
      ...modelBudgets(account.id),
      aliases: (limits.aliases ?? []).map((alias) => ({ ...alias })),
      ...tiersShown(limits),
      zdr_required: zdrRequired,
      allowed_models: account.models === null ? null : [...account.models],
      spend_limit: spending.get(account.id) ?? null,
      billing: billingObject(account.billing),
      time_zone: account.timeZone,
      created_at: secondsOf(account.createdAt),
      deleted_at: secondsOrNull(account.deletedAt),
    };
  });
}

export async function accountsOfServer(
  accounts: readonly Account[],
  repositories: Repositories,
  now: number,
): Promise<readonly Static<typeof accountOfServerSchema>[]> {
  const shown = await accountObjects(accounts, repositories, now);
  const spent = await repositories.spentByAccounts({ accountIds: accounts.map(({ id }) => id) });
  const spentOf = new Map(spent.map((row) => [row.accountId, row]));
  return shown.map((account) => ({
    ...account,
    available_microcents: account.balance_microcents - account.held_microcents,
    held_requests: spentOf.get(account.id)?.heldRequests ?? 0,
    spent_microcents: wholeOf(spentOf.get(account.id)?.microcents ?? 0n),
  }));
}

/** The party that documents are made out to, and its tax status. */
export const billingObject = (billing: BillingDetails): Static<typeof billingSchema> => ({
  legal_name: billing.legalName,
  address_lines: billing.addressLines === null ? null : [...billing.addressLines],
  country: billing.country,
  tax_id: billing.taxId,
  tax_status: billing.taxStatus,
  invoice_email: billing.invoiceEmail,
});
