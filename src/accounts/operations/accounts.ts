import Type from 'typebox';

import { memberSubject } from '../../store/budget.ts';
import { timeZoneNamed } from '../../platform/calendar/time-zone.ts';
import { taxStatuses } from '../../tax/tax.ts';
import { madeAccount, theAccount, theMember } from '../audit-subjects.ts';
import { checkedBilling } from '../billing-details.ts';
import { accountAliasSchema, faultOfAliases } from '../account-aliases.ts';
import { budgetSchema, ofModel, setBudget } from '../budget.ts';
import { checkedChange, checkedModels, checkedName } from '../checks.ts';
import { createAccount, newAccountSchema } from '../create-account.ts';
import { deleteAccount } from '../delete-account.ts';
import { accountRatesSchema } from '../key-limits-schema.ts';
import { faultOfRates, faultOfTiers, readAccountLimits } from '../key-limits.ts';
import type { AccountLimitsChange } from '../key-limits.ts';
import { accountMeant, checkedText, OperationError } from '../operation.ts';
import type { OperationServices } from '../operation.ts';
import { operation } from '../perform.ts';
import { ofAccount, orNull, text, texts } from '../request-schema.ts';

const planLengthMax = 64;
const reasonLengthMax = 1000;

/** The reason is for readers of the audit log. */
const statusSchema = Type.Object({ accountId: text, reason: Type.Optional(text) });

export const accountOperations = {
  /** Creates an account and, if requested, its owner's invitation, first credit and first key. */
  create_account: operation({
    schema: newAccountSchema,
    audit: { action: 'account.create', subject: madeAccount, unwritten: ['ownerEmail'] },
    run: createAccount,
  }),

  /** Renames an account, or sets its billing details or time zone. Omitted fields stay, null removes one. */
  edit_account: operation({
    schema: Type.Object({
      ...ofAccount,
      name: Type.Optional(text),
      billing: Type.Optional(
        Type.Object({
          legalName: Type.Optional(orNull(text)),
          addressLines: Type.Optional(orNull(texts)),
          country: Type.Optional(orNull(text)),
          taxId: Type.Optional(orNull(text)),
          taxStatus: Type.Optional(Type.Enum([...taxStatuses])),
          invoiceEmail: Type.Optional(orNull(text)),
        }),
      ),
      /** IANA name, such as `Europe/Berlin`. */
      timeZone: Type.Optional(text),
    }),
    audit: { action: 'account.edit', subject: theAccount },
    run: async ({ accountId: named, name, billing, timeZone }, { repositories, now, newId }) => {
      const accountId = await accountMeant(named, repositories);
      const account = await repositories.editAccount({
        accountId,
        name: name === undefined ? undefined : checkedName(name),
        billing: billing === undefined ? undefined : checkedBilling(billing),
        timeZone: timeZone === undefined ? undefined : checkedTimeZone(timeZone),
        at: now(),
        changeId: newId(),
      });
      if (account === undefined) throw new OperationError(`There is no account ${accountId}.`);
      return { accountId, name: account.name };
    },
  }),

  /** Sets the models that an account may use; `models` omitted: all. */
  allow_account: operation({
    schema: Type.Object({ ...ofAccount, models: Type.Optional(texts) }),
    audit: { action: 'account.models', subject: theAccount },
    run: async ({ accountId: named, models: ids }, { repositories, now, newId }) => {
      const accountId = await accountMeant(named, repositories);
      const models = checkedModels(ids);
      await repositories.allowAccount({ accountId, models, at: now(), changeId: newId() });
      return { id: accountId, models };
    },
  }),

  /** Sets the plan of an account; `plan` omitted: removes it. */
  plan_account: operation({
    schema: Type.Object({ ...ofAccount, plan: Type.Optional(text) }),
    audit: { action: 'account.plan', subject: theAccount },
    run: async ({ accountId: named, plan: chosen }, { repositories, now, newId }) => {
      const accountId = await accountMeant(named, repositories);
      const plan = chosen === undefined ? null : checkedText(chosen, 'A plan', planLengthMax, 'plan');
      await repositories.planAccount({ accountId, plan, at: now(), changeId: newId() });
      return { accountId, plan };
    },
  }),

  /** Changes an account's limits; null: the limit of its plan or the configuration, omitted ones stay. */
  limit_account: operation({
    schema: Type.Object({ ...ofAccount, limits: accountRatesSchema }),
    audit: { action: 'account.limits', subject: theAccount },
    run: async ({ accountId: named, limits }, { repositories, now, newId }) => {
      const accountId = await accountMeant(named, repositories);
      const changed = checkedChange(limits, faultOfRates);
      const account = await repositories.limitAccount({ accountId, limits: changed, at: now(), changeId: newId() });
      return { accountId, limits: readAccountLimits(account?.limits ?? null) };
    },
  }),

  /** Sets the service tier of an account's requests that name none, and the tiers that they may use; omitted: `default`, and all. */
  tier_account: operation({
    schema: Type.Object({ ...ofAccount, tier: Type.Optional(text), tiers: Type.Optional(texts) }),
    audit: { action: 'account.tiers', subject: theAccount },
    run: async ({ accountId: named, tier, tiers }, { repositories, now, newId }) => {
      const accountId = await accountMeant(named, repositories);
      const fault = faultOfTiers({ tier, tiers });
      if (fault !== undefined) throw new OperationError(fault);
      const limits: AccountLimitsChange = { tier: tier ?? null, tiers: tiers ?? null };
      await repositories.limitAccount({ accountId, limits, at: now(), changeId: newId() });
      return { accountId, tier: tier ?? null, tiers: tiers ?? null };
    },
  }),

  /** Requires zero data retention for every request of an account, or leaves it to each request. */
  zdr_account: operation({
    schema: Type.Object({ ...ofAccount, required: Type.Boolean() }),
    audit: { action: 'account.zdr', subject: theAccount },
    run: async ({ accountId: named, required }, { repositories, now, newId }) => {
      const accountId = await accountMeant(named, repositories);
      const limits: AccountLimitsChange = { zdrRequired: required ? true : null };
      await repositories.limitAccount({ accountId, limits, at: now(), changeId: newId() });
      return { accountId, required };
    },
  }),

  /** Sets an account's own names for models; the list replaces the earlier one. */
  alias_account: operation({
    schema: Type.Object({ ...ofAccount, aliases: Type.Array(accountAliasSchema) }),
    audit: { action: 'account.aliases', subject: theAccount },
    run: async ({ accountId: named, aliases }, { repositories, now, newId }) => {
      const accountId = await accountMeant(named, repositories);
      const fault = faultOfAliases(aliases);
      if (fault !== undefined) throw new OperationError(fault);
      const limits: AccountLimitsChange = { aliases: aliases.length === 0 ? null : aliases };
      await repositories.limitAccount({ accountId, limits, at: now(), changeId: newId() });
      return { accountId, aliases };
    },
  }),

  /** Sets, replaces or removes the budget shared by all keys of an account. */
  budget_account: operation({
    schema: Type.Object({ ...ofAccount, ...ofModel, budget: Type.Optional(budgetSchema) }),
    audit: { action: 'account.budget', subject: theAccount },
    run: async ({ accountId, ...input }, services) =>
      setBudget('account', await accountMeant(accountId, services.repositories), input, services),
  }),

  /** Sets, replaces or removes the budget shared by all keys of one person in one account. */
  budget_member: operation({
    schema: Type.Object({ ...ofAccount, userId: text, budget: Type.Optional(budgetSchema) }),
    audit: { action: 'member.budget', subject: theMember },
    run: async ({ accountId: named, userId, budget }, services) => {
      const accountId = await accountMeant(named, services.repositories);
      return await setBudget('member', memberSubject(accountId, userId), { budget }, services);
    },
  }),

  /** Refuses the account's keys, and cuts their running requests. */
  suspend_account: operation({
    schema: statusSchema,
    audit: { action: 'account.suspend', subject: theAccount },
    run: (input, services) => setStatus('suspended', input, services),
  }),

  revive_account: operation({
    schema: statusSchema,
    audit: { action: 'account.revive', subject: theAccount },
    run: (input, services) => setStatus('active', input, services),
  }),

  /** Ends an account: nothing of it works any more, and no data of its users remains (docs/operator.md). */
  delete_account: operation({
    schema: Type.Object({
      accountId: text,
      /** Lets its remaining credit expire; omitted: there must be none left. */
      forfeitCredit: Type.Optional(Type.Boolean()),
    }),
    audit: { action: 'account.delete', subject: theAccount },
    run: deleteAccount,
  }),
};

async function setStatus(
  status: 'active' | 'suspended',
  { accountId, reason }: { readonly accountId: string; readonly reason?: string | undefined },
  { ledger, repositories, now, newId }: OperationServices,
) {
  if (reason !== undefined) checkedText(reason, 'A reason', reasonLengthMax, 'reason');
  await accountMeant(accountId, repositories);
  await ledger.setAccountStatus(accountId, status, now(), newId());
  return { accountId, status };
}

function checkedTimeZone(name: string): string {
  const zone = timeZoneNamed(name);
  if (zone === undefined)
    throw new OperationError('Unknown time zone; write an IANA name, such as Europe/Berlin or UTC.');
  return zone;
}
