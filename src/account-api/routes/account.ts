import Type from 'typebox';

import { viewActions } from '../../accounts/account-views.ts';
import { auditId } from '../../accounts/audit.ts';
import { exportAccount } from '../../accounts/export-account.ts';
import { operate } from '../../accounts/operations.ts';
import { ApiError } from '../../platform/errors.ts';
import { firstIdOf, timeOfUuid } from '../../platform/ids/uuid.ts';
import type { AuditEntry } from '../../store/repositories/audit.ts';
import type { BillingDetails } from '../../store/repositories/accounts.ts';
import {
  accountObjects,
  accountSchema,
  spendIntervals,
  spendLimits,
  spendLimitSchema,
  zdrRequiredText,
} from '../account-object.ts';
import type { AccountObject } from '../account-object.ts';
import { auditObject, auditQuery, auditRequest, auditSchema, earlier } from '../audit-object.ts';
import { billingChange, billingInput } from '../billing-input.ts';
import { modelBudgetsAskedFor, modelBudgetSettings } from '../limit-object.ts';
import { checkModels } from '../rate-fields.ts';
import { notThere } from '../input.ts';
import { operationsOf } from '../operations-of.ts';
import { everyRole, mayManage, mayPay, Reply, route } from '../route.ts';
import type { AccountRoute, Call } from '../route.ts';
import { centsMax, exactAmount, listOf, listSchema, nullable, page, wholeOf } from '../wire.ts';

export const deletionQuery = Type.Object({ forfeit_credit: Type.Optional(Type.Boolean()) });
export const deletedSchema = Type.Object({
  id: Type.String(),
  object: Type.Literal('account.deleted'),
  deleted: Type.Literal(true),
  forfeited_microcents: Type.Integer(),
});

const line = Type.String({ minLength: 1, maxLength: 100 });

export const ownAccountRoutes: readonly AccountRoute[] = [
  route({
    method: 'get',
    path: '/v1/account',
    operationId: 'getAccount',
    tag: 'Account',
    summary: 'The account',
    description: 'Its name, plan, balance, limits, time zone, and the recipient of its invoices.',
    access: everyRole,
    answers: [{ status: 200, description: 'The account.', schema: accountSchema }],
    handle: async (call) => await ownAccount(call),
  }),
  route({
    method: 'patch',
    path: '/v1/account',
    operationId: 'changeAccount',
    tag: 'Account',
    summary: 'Change the account',
    description:
      'Its name, the recipient and tax of its invoices, its time zone, what may be spent on single models, and whether it requires zero data retention, which only owners set. Fields that are left out stay; null removes a value.',
    access: ['owner', 'admin', 'billing'],
    body: Type.Object(
      {
        name: Type.Optional(line),
        time_zone: Type.Optional(
          Type.String({ minLength: 1, maxLength: 64, description: 'IANA name, such as `Europe/Berlin`.' }),
        ),
        billing: Type.Optional(billingInput),
        zdr_required: Type.Optional(Type.Boolean({ description: zdrRequiredText })),
        ...modelBudgetSettings,
      },
      { additionalProperties: false },
    ),
    answers: [{ status: 200, description: 'The account as it is now.', schema: accountSchema }],
    handle: async (call) => {
      const { name, billing, time_zone: timeZone, zdr_required: zdrRequired } = call.body;
      const { id: accountId, role } = call.account;
      if (name !== undefined && role === 'billing')
        throw new ApiError('http_403', 'Only owners and admins can rename the account.', { param: 'name' });
      if (zdrRequired !== undefined && role !== 'owner')
        throw new ApiError('http_403', 'Only owners decide whether the account requires zero data retention.', {
          param: 'zdr_required',
        });
      checkModels(call.body, call.services.config, accountId);
      if (name !== undefined || timeZone !== undefined || billing !== undefined) {
        const { sellerCountry } = call.services.config().invoices.tax;
        const checked =
          billing === undefined
            ? undefined
            : billingChange(billing, await billingOf(call, accountId), { by: 'customer', sellerCountry });
        await operate({ kind: 'edit_account', accountId, name, timeZone, billing: checked }, operationsOf(call));
      }
      if (zdrRequired !== undefined)
        await operate({ kind: 'zdr_account', accountId, required: zdrRequired }, operationsOf(call));
      for (const change of await modelBudgetsAskedFor(call.body, accountId, call.services.operations))
        await operate({ kind: 'budget_account', accountId, ...change }, operationsOf(call));
      return await ownAccount(call);
    },
  }),
  route({
    method: 'get',
    path: '/v1/spend_limit',
    operationId: 'getSpendLimit',
    tag: 'Account',
    summary: 'Get the spending limit of the account',
    description: 'With all of its keys together, in a period. 404: it has no limit.',
    access: everyRole,
    answers: [{ status: 200, description: 'The limit.', schema: spendLimitSchema }],
    handle: async (call) => await spendLimit(call),
  }),
  route({
    method: 'post',
    path: '/v1/spend_limit',
    operationId: 'setSpendLimit',
    tag: 'Account',
    summary: 'Set the spending limit of the account',
    description:
      'Replaces the earlier limit. What was spent in the current period counts; running requests continue. Charges and holds together never exceed it.',
    access: mayPay,
    body: Type.Object(
      {
        threshold_amount: Type.Optional(
          Type.Integer({ minimum: 0, maximum: centsMax, description: 'In cents. This or threshold_microcents.' }),
        ),
        threshold_microcents: Type.Optional(Type.Integer({ minimum: 0, maximum: Number.MAX_SAFE_INTEGER })),
        currency: Type.Optional(Type.Literal('USD')),
        interval: Type.Optional(
          nullable(
            Type.Enum([...spendIntervals], { description: 'month when left out; null: one limit for all time.' }),
          ),
        ),
        enforcement: Type.Optional(Type.Literal('hard')),
      },
      { additionalProperties: false },
    ),
    answers: [{ status: 200, description: 'The limit.', schema: spendLimitSchema }],
    handle: async (call) => {
      const { interval = 'month' } = call.body;
      const limit = exactAmount(call.body, 'threshold_amount', 'threshold_microcents') ?? undefined;
      if (limit === undefined)
        throw new ApiError('unsupported_value', 'Give threshold_amount, in cents.', { param: 'threshold_amount' });
      await operate(
        {
          kind: 'budget_account',
          accountId: call.account.id,
          budget: {
            microcents: String(limit),
            per: interval ?? 'total',
          },
        },
        operationsOf(call),
      );
      return await spendLimit(call);
    },
  }),
  route({
    method: 'delete',
    path: '/v1/spend_limit',
    operationId: 'deleteSpendLimit',
    tag: 'Account',
    summary: 'Remove the spending limit of the account',
    description: 'From the next request on, only the credit limits what it spends.',
    access: mayPay,
    answers: [
      {
        status: 200,
        description: 'The account has no limit.',
        schema: Type.Object({ object: Type.Literal('spend_limit.deleted'), deleted: Type.Literal(true) }),
      },
    ],
    handle: async (call) => {
      await operate({ kind: 'budget_account', accountId: call.account.id }, operationsOf(call));
      return { object: 'spend_limit.deleted', deleted: true };
    },
  }),
  route({
    method: 'get',
    path: '/v1/account/export',
    operationId: 'exportAccount',
    tag: 'Account',
    summary: 'Export all data of the account',
    description:
      'One JSON object, streamed: the account, members, keys without secrets, ledger, usage, invoices, facts about files, stored items, mail and changes. The export is complete when it is valid JSON.',
    access: ['owner'],
    stepUp: true,
    answers: [{ status: 200, description: 'The export.', contentType: 'application/json' }],
    handle: async (call) => exportReply(call, call.account.id),
  }),
  route({
    method: 'delete',
    path: '/v1/account',
    operationId: 'deleteAccount',
    tag: 'Account',
    summary: 'Delete the account',
    description:
      'Permanent, and only by an owner in person: running requests are cut, keys are revoked, and people, files, stored items, answers, mail and names are deleted at once. Ledger, usage, invoices and the audit log stay, without names. Credit must be zero, unless `forfeit_credit` is true: then it expires.',
    access: ['owner'],
    stepUp: true,
    // A deletion suspends first, and an interrupted one has to continue.
    evenSuspended: true,
    query: deletionQuery,
    answers: [{ status: 200, description: 'The account is deleted.', schema: deletedSchema }],
    errors: ['http_409'],
    handle: async (call) => {
      if (call.principal.kind !== 'user')
        throw new ApiError(
          'http_403',
          'Only an owner in person, or the operator of the server, can delete an account.',
        );
      return await deletedAccount(call, call.account.id, call.query.forfeit_credit);
    },
  }),
  route({
    method: 'get',
    path: '/v1/audit_logs',
    operationId: 'listAuditLogs',
    tag: 'Account',
    summary: 'List changes',
    description:
      'Changes of the account, and of the sign-in of its members, newest first. People who did not belong to the account when they made a change, such as the operator of the server, are shown without name and address.',
    access: mayManage,
    query: Type.Object(auditQuery),
    answers: [{ status: 200, description: 'A page of changes.', schema: listSchema(auditSchema) }],
    handle: async (call) => {
      const { query, account, services } = call;
      const { page: limit, ...request } = auditRequest(query);
      // Does not reveal what somebody did who does not, or no longer, belong to the account.
      const end = query.actor === undefined ? null : await endOf(call, query.actor);
      if (end === undefined) return page([]);
      const before = end === null ? request.before : earlier(request.before, firstIdOf(timeOfUuid(end) + 1));
      const entries = await services.operations.repositories.listAudit({ accountId: account.id, ...request, before });
      const isNamed = await namesOf(call, entries);
      return listOf(
        entries,
        limit,
        (entry) => {
          const shown = auditObject(entry);
          if (isNamed(entry)) return shown;
          // An operator who looks at an account is named to it; from where they look is their own affair.
          if (viewActions.includes(entry.action)) return { ...shown, address: null };
          return { ...shown, actor: { kind: shown.actor.kind, id: null, name: null }, address: null };
        },
        auditId,
      );
    },
  }),
];

export function exportReply({ services }: Pick<Call, 'services'>, id: string): Reply {
  return new Reply(
    200,
    {
      'content-type': 'application/json',
      'content-disposition': `attachment; filename="${id}.json"`,
    },
    exportAccount(id, services.operations.repositories),
  );
}

export async function deletedAccount(
  call: Pick<Call, 'principal' | 'requestId' | 'address' | 'services'>,
  id: string,
  forfeitCredit: boolean | undefined,
) {
  const answer = await operate({ kind: 'delete_account', accountId: id, forfeitCredit }, operationsOf(call));
  return {
    id,
    object: 'account.deleted',
    deleted: true,
    forfeited_microcents: wholeOf(BigInt(answer.forfeitedMicrocents)),
  };
}

/** Whether to name the author of a change: only if they belong to the account, or did when they made it. */
async function namesOf(call: AccountCall, entries: readonly AuditEntry[]): Promise<(entry: AuditEntry) => boolean> {
  const ends = new Map<string, Uint8Array | null | undefined>();
  for (const { actor } of entries)
    if (actor.id !== null && !ends.has(actor.id)) ends.set(actor.id, await endOf(call, actor.id));
  return ({ id, actor }) => {
    const end = actor.id === null ? null : ends.get(actor.id);
    return end === null || (end !== undefined && Buffer.compare(id, end) <= 0);
  };
}

/** null for a person or a key of the account; else the entry that records their removal; undefined if they never belonged to it. */
async function endOf({ account, services }: AccountCall, id: string): Promise<Uint8Array | null | undefined> {
  const { repositories } = services.operations;
  if ((await services.users.membership(id, account.id)) !== undefined) return null;
  if ((await repositories.getKey({ keyId: id, accountId: account.id })) !== undefined) return null;
  const removal = { accountId: account.id, target: id, actions: ['member.remove'], limit: 1 };
  return (await repositories.listAudit(removal))[0]?.id;
}

/** Throws `http_404` for an unknown account. */
export async function billingOf({ services }: Pick<Call, 'services'>, accountId: string): Promise<BillingDetails> {
  const account = await services.operations.repositories.getAccount({ accountId });
  if (account === undefined) throw notThere();
  return account.billing;
}

type AccountCall = Pick<Call, 'account' | 'services'>;

async function ownAccount({ account, services }: AccountCall): Promise<AccountObject> {
  const { repositories, now } = services.operations;
  const found = await repositories.getAccount({ accountId: account.id });
  if (found === undefined) throw notThere();
  const [shown] = await accountObjects([found], repositories, now());
  return shown!;
}

async function spendLimit({ account, services }: AccountCall) {
  const { repositories, now } = services.operations;
  const limit = (await spendLimits([account.id], repositories, now())).get(account.id);
  if (limit === undefined) throw notThere();
  return limit;
}
