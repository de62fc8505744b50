import Type from 'typebox';

import { auditId } from '../../accounts/audit.ts';
import { readAccountLimits } from '../../accounts/key-limits.ts';
import type { AccountLimits } from '../../accounts/key-limits.ts';
import { operate } from '../../accounts/operations.ts';
import type { Operation } from '../../accounts/operations.ts';
import { defaultsOnCard } from '../../catalog/model-defaults.ts';
import type { ModelConfig } from '../../config/config.ts';
import { ApiError } from '../../platform/errors.ts';
import { accountOfServerSchema, accountsOfServer, aliasSchema } from '../account-object.ts';
import { auditObject, auditQuery, auditRequest, auditSchema } from '../audit-object.ts';
import { billingChange, billingInput } from '../billing-input.ts';
import { operationsOf } from '../operations-of.ts';
import { aliasesMax, conflictOfAliases, faultOfAliases, type AccountAlias } from '../../accounts/account-aliases.ts';
import { modelBudgetsAskedFor, modelBudgetSettings } from '../limit-object.ts';
import { checkModels, ratesAskedFor, rateSettings } from '../rate-fields.ts';
import { tierSettings, tiersAskedFor } from '../tier-fields.ts';
import { releasedObject, releasedSchema } from '../released-object.ts';
import { route } from '../route.ts';
import { accountId, liveAccount, reason } from '../server-account.ts';
import type { AccountRoute, Call } from '../route.ts';
import {
  centsMax,
  listOf,
  listSchema,
  microcentsPerCent,
  nullable,
  page,
  pageLimit,
  pageQuery,
  wholeListSchema,
  wholeOf,
} from '../wire.ts';
import { addedBackendRoutes } from './added-backends.ts';
import { moveCreditRoute } from './admin-credit.ts';
import { accountName, customerRoutes, shownAccount } from './admin-customers.ts';
import { accountPriceRoutes } from './admin-prices.ts';
import { requestOfServerRoute } from './admin-requests.ts';
import { membersPage, membersQuery, memberSchema } from './members.ts';
import { entrySchema, ledgerPage, ledgerQuery } from './ledger.ts';
import { email } from './sign-in.ts';
import { billingOf, deletedAccount, deletedSchema, deletionQuery, exportReply } from './account.ts';

const params = Type.Object({ id: accountId });

export const adminRoutes: readonly AccountRoute[] = [
  route({
    method: 'get',
    path: '/v1/admin/accounts',
    operationId: 'listAccounts',
    tag: 'Server',
    summary: 'List accounts',
    description: 'Newest first, with their balances, holds and what they have spent.',
    access: 'operator',
    query: Type.Object({
      ...pageQuery,
      status: Type.Optional(Type.Enum(['active', 'suspended'])),
      include_deleted: Type.Optional(Type.Boolean()),
      search: Type.Optional(
        Type.String({
          minLength: 1,
          maxLength: 200,
          description: 'Part of an id or a name, or of the e-mail address of a member.',
        }),
      ),
    }),
    answers: [{ status: 200, description: 'A page of accounts.', schema: listSchema(accountOfServerSchema) }],
    handle: async ({ query, services }) => {
      const { repositories, now } = services.operations;
      const limit = pageLimit(query.limit);
      const accounts = await repositories.listCustomers({
        status: query.status,
        after: query.after,
        withDeleted: query.include_deleted,
        search: query.search,
        limit: limit + 1,
      });
      const shown = await accountsOfServer(accounts.slice(0, limit), repositories, now());
      const objects = new Map(shown.map((account) => [account.id, account]));
      return listOf(
        accounts,
        limit,
        ({ id }) => objects.get(id)!,
        ({ id }) => id,
      );
    },
  }),
  ...customerRoutes,
  route({
    method: 'get',
    path: '/v1/admin/accounts/{id}',
    operationId: 'getAccountOfServer',
    tag: 'Server',
    summary: 'One account',
    description: 'Deleted accounts too.',
    access: 'operator',
    params,
    answers: [{ status: 200, description: 'The account.', schema: accountOfServerSchema }],
    handle: async (call) => await shownAccount(call, call.params.id),
  }),
  route({
    method: 'patch',
    path: '/v1/admin/accounts/{id}',
    operationId: 'changeAccountOfServer',
    tag: 'Server',
    summary: 'Change the permissions of an account',
    description:
      'Fields that are left out stay; null removes a value. Each field is a change of its own in the audit log.',
    access: 'operator',
    stepUp: true,
    params,
    body: Type.Object(
      {
        name: Type.Optional(accountName),
        plan_tier: Type.Optional(nullable(Type.String({ minLength: 1, maxLength: 64 }))),
        max_concurrency: Type.Optional(nullable(Type.Integer({ minimum: 1, maximum: 1_000_000 }))),
        ...rateSettings,
        ...modelBudgetSettings,
        aliases: Type.Optional(
          Type.Array(Type.Object(aliasSchema.properties, { additionalProperties: false }), {
            maxItems: aliasesMax,
            description: 'Names that only this account has for models; replaces the earlier list.',
          }),
        ),
        ...tierSettings,
        credit_limit_cents: Type.Optional(Type.Integer({ minimum: 0, maximum: centsMax })),
        allowed_models: Type.Optional(
          nullable(Type.Array(Type.String({ minLength: 1, maxLength: 128 }), { maxItems: 1000 })),
        ),
        billing: Type.Optional(billingInput),
      },
      { additionalProperties: false },
    ),
    answers: [{ status: 200, description: 'The account as it is now.', schema: accountOfServerSchema }],
    errors: ['http_409'],
    handle: async (call) => {
      const { body } = call;
      const account = await liveAccount(call, call.params.id);
      const { plans } = call.services.config();
      const {
        plan_tier: plan,
        max_concurrency: concurrency,
        credit_limit_cents: credit,
        allowed_models: allowed,
      } = body;
      if (plan !== undefined && plan !== null && !plans.some((known) => known.name === plan))
        throw new ApiError('unsupported_value', 'The configuration has no plan of this name.', { param: 'plan_tier' });
      checkModels(body, call.services.config);
      if (body.aliases !== undefined) checkAliases(body.aliases, call.services.config().models);
      const inputs: Operation[] = [];
      // First the part that may be refused: a limit whose credit is in use.
      if (credit !== undefined)
        inputs.push({
          kind: 'limit_credit',
          accountId: account,
          microcents: String(BigInt(credit) * microcentsPerCent),
        });
      if (body.name !== undefined || body.billing !== undefined) {
        const billing =
          body.billing === undefined
            ? undefined
            : billingChange(body.billing, await billingOf(call, account), {
                by: 'operator',
                sellerCountry: call.services.config().invoices.tax.sellerCountry,
              });
        inputs.push({ kind: 'edit_account', accountId: account, name: body.name, billing });
      }
      if (plan !== undefined) inputs.push({ kind: 'plan_account', accountId: account, plan: plan ?? undefined });
      const known = await limitsOf(call, account);
      const rates = ratesAskedFor(body, known);
      const limits = { ...rates, ...(concurrency === undefined ? {} : { concurrencyMax: concurrency }) };
      if (Object.keys(limits).length > 0) inputs.push({ kind: 'limit_account', accountId: account, limits });
      const tiers = tiersAskedFor(body);
      if (Object.keys(tiers).length > 0) {
        const { tier = null, tiers: several = null } = { tier: known.tier, tiers: known.tiers, ...tiers };
        inputs.push({ kind: 'tier_account', accountId: account, tier: tier ?? undefined, tiers: several ?? undefined });
      }
      for (const change of await modelBudgetsAskedFor(body, account, call.services.operations))
        inputs.push({ kind: 'budget_account', accountId: account, ...change });
      if (body.aliases !== undefined) inputs.push({ kind: 'alias_account', accountId: account, aliases: body.aliases });
      if (allowed !== undefined)
        inputs.push({ kind: 'allow_account', accountId: account, models: allowed ?? undefined });
      for (const input of inputs) await operate(input, operationsOf(call));
      return await shownAccount(call, account);
    },
  }),
  route({
    method: 'get',
    path: '/v1/admin/accounts/{id}/ledger',
    operationId: 'listLedgerOfAccount',
    tag: 'Server',
    summary: 'List movements of an account’s credit',
    description: 'As `GET /v1/ledger`.',
    access: 'operator',
    params,
    query: ledgerQuery,
    answers: [{ status: 200, description: 'A page of movements.', schema: listSchema(entrySchema) }],
    handle: async (call) => await ledgerPage(call.services, (await shownAccount(call, call.params.id)).id, call.query),
  }),
  route({
    method: 'get',
    path: '/v1/admin/accounts/{id}/members',
    operationId: 'listMembersOfAccount',
    tag: 'Server',
    summary: 'List members of an account',
    description: 'Newest first: whom to ask, and who may need a second factor reset.',
    access: 'operator',
    params,
    query: membersQuery,
    answers: [{ status: 200, description: 'A page of members.', schema: listSchema(memberSchema) }],
    handle: async (call) =>
      await membersPage(call.services, (await shownAccount(call, call.params.id)).id, call.query, () => true),
  }),
  route({
    method: 'get',
    path: '/v1/admin/accounts/{id}/export',
    operationId: 'exportAccountOfServer',
    tag: 'Server',
    summary: 'Export all data of an account',
    description: 'As `GET /v1/account/export`.',
    access: 'operator',
    stepUp: true,
    params,
    answers: [{ status: 200, description: 'The export.', contentType: 'application/json' }],
    handle: async (call) => exportReply(call, (await shownAccount(call, call.params.id)).id),
  }),
  route({
    method: 'delete',
    path: '/v1/admin/accounts/{id}',
    operationId: 'deleteAccountOfServer',
    tag: 'Server',
    summary: 'Delete an account',
    description: 'As `DELETE /v1/account`.',
    access: 'operator',
    stepUp: true,
    params,
    query: deletionQuery,
    answers: [{ status: 200, description: 'It is gone.', schema: deletedSchema }],
    errors: ['http_409'],
    handle: async (call) =>
      await deletedAccount(call, await liveAccount(call, call.params.id), call.query.forfeit_credit),
  }),
  route({
    method: 'post',
    path: '/v1/admin/people/release',
    operationId: 'releasePerson',
    tag: 'Server',
    summary: 'Reset the second factor of a person',
    description:
      'Removes the codes and passkeys of a person and ends their sessions. They sign in with their password alone until they set up a second factor again, and are notified by mail. First make sure that the request really comes from them.',
    access: 'operator',
    stepUp: true,
    body: Type.Object({ email }, { additionalProperties: false }),
    answers: [
      {
        status: 200,
        description: 'What was removed.',
        schema: releasedSchema,
      },
    ],
    handle: async (call) => {
      return releasedObject(await operate({ kind: 'release_person', email: call.body.email }, operationsOf(call)));
    },
  }),
  route({
    method: 'get',
    path: '/v1/admin/suspensions',
    operationId: 'listSuspensions',
    tag: 'Server',
    summary: 'List suspensions',
    description: 'Suspensions and their ends, newest first, as the audit log has them.',
    access: 'operator',
    query: Type.Object({ ...pageQuery, account_id: Type.Optional(accountId) }),
    answers: [{ status: 200, description: 'A page of suspensions.', schema: listSchema(auditSchema) }],
    handle: async ({ query, services }) =>
      await auditPage(
        services,
        { ...auditRequest(query), actions: ['account.suspend', 'account.revive'] },
        query.account_id,
      ),
  }),
  route({
    method: 'post',
    path: '/v1/admin/suspensions',
    operationId: 'suspendAccount',
    tag: 'Server',
    summary: 'Suspend an account',
    description: 'All of its keys are refused within a second on every replica, and their running requests are cut.',
    access: 'operator',
    stepUp: true,
    body: Type.Object({ account_id: accountId, reason }, { additionalProperties: false }),
    answers: [{ status: 200, description: 'The account.', schema: accountOfServerSchema }],
    handle: async (call) => {
      const account = await liveAccount(call, call.body.account_id);
      await operate({ kind: 'suspend_account', accountId: account, reason: call.body.reason }, operationsOf(call));
      return await shownAccount(call, account);
    },
  }),
  route({
    method: 'delete',
    path: '/v1/admin/suspensions/{id}',
    operationId: 'reviveAccount',
    tag: 'Server',
    summary: 'End the suspension of an account',
    description: 'By the id of the account. Its keys work again.',
    access: 'operator',
    stepUp: true,
    params,
    query: Type.Object({ reason }),
    answers: [{ status: 200, description: 'The account.', schema: accountOfServerSchema }],
    handle: async (call) => {
      const account = await liveAccount(call, call.params.id);
      await operate({ kind: 'revive_account', accountId: account, reason: call.query.reason }, operationsOf(call));
      return await shownAccount(call, account);
    },
  }),
  moveCreditRoute,
  requestOfServerRoute,
  ...accountPriceRoutes,
  route({
    method: 'get',
    path: '/v1/admin/models',
    operationId: 'listModelsOfServer',
    tag: 'Server',
    summary: 'Models of the configuration',
    description: 'With their list prices. The home of the catalog is the configuration file.',
    access: 'operator',
    answers: [
      {
        status: 200,
        description: 'All models.',
        schema: wholeListSchema(
          Type.Object({
            id: Type.String(),
            object: Type.Literal('model'),
            display_name: Type.String(),
            context_length: Type.Integer(),
            max_output_tokens: nullable(Type.Integer()),
            deprecation_date: nullable(Type.String()),
            dedicated_to: Type.Array(
              Type.String({ description: 'Ids of accounts; empty: the model is for all accounts.' }),
            ),
            input_microcents_per_million: Type.Integer(),
            output_microcents_per_million: Type.Integer(),
            cache_read_microcents_per_million: Type.Integer(),
            defaults: Type.Object(
              {},
              {
                additionalProperties: Type.Union([Type.String(), Type.Number()]),
                description: 'What applies where a request says nothing, as on the card of the model.',
              },
            ),
            backends: Type.Array(Type.String()),
            written_backends: Type.Array(Type.Object({ name: Type.String(), disabled: Type.Boolean() }), {
              description: 'Entries of the configuration; one that finds its servers elsewhere is one of them.',
            }),
            description: nullable(Type.String()),
            aliases: Type.Array(
              Type.Object({
                name: Type.String(),
                listed: Type.Boolean(),
                answers: Type.Enum(['model', 'alias']),
              }),
            ),
            sampling: Type.Enum(['honor', 'ignore', 'fixed']),
            written_defaults: Type.Object(
              {},
              {
                additionalProperties: Type.Union([Type.String(), Type.Number()]),
                description: 'Those of the configuration alone, without those of a model file.',
              },
            ),
            adapter_of: nullable(
              Type.String({ description: 'The model whose fine-tuned adapter it is; it is written there.' }),
            ),
            successor: nullable(Type.String()),
            leads_to_successor: Type.Boolean(),
          }),
        ),
      },
    ],
    handle: ({ services }) =>
      Promise.resolve(
        page(
          services.config().models.map((model) => ({
            id: model.id,
            object: 'model',
            display_name: model.displayName,
            context_length: model.contextLength,
            max_output_tokens: model.maxOutputTokens,
            deprecation_date: model.deprecationDate ?? null,
            dedicated_to: [...model.dedicatedTo],
            input_microcents_per_million: wholeOf(model.pricing.input),
            output_microcents_per_million: wholeOf(model.pricing.output),
            cache_read_microcents_per_million: wholeOf(model.pricing.cacheRead),
            defaults: services.modelOf === undefined ? {} : defaultsOnCard(services.modelOf(model).defaults),
            backends: model.backends.map((backend) => backend.name),
            written_backends: writtenBackends(model),
            description: model.description ?? null,
            aliases: model.aliases.map(({ name, isListed, answers }) => ({ name, listed: isListed, answers })),
            sampling: model.sampling,
            written_defaults: defaultsOnCard(model.defaults),
            adapter_of: model.adapterOf ?? null,
            successor: model.successor ?? null,
            leads_to_successor: model.leadsToSuccessor,
          })),
        ),
      ),
  }),
  ...addedBackendRoutes,
  route({
    method: 'get',
    path: '/v1/admin/audit',
    operationId: 'listAudit',
    tag: 'Server',
    summary: 'List changes on this server',
    description: 'Changes of all accounts and of the server, newest first, with who made them and how.',
    access: 'operator',
    query: Type.Object({ ...auditQuery, account_id: Type.Optional(accountId) }),
    answers: [{ status: 200, description: 'A page of changes.', schema: listSchema(auditSchema) }],
    handle: async ({ query, services }) => await auditPage(services, auditRequest(query), query.account_id),
  }),
];

/** Those that a source lists are not in the file; the source is. */
const writtenBackends = ({ backends, sources, disabled }: ModelConfig) => [
  ...backends
    .filter(({ name }) => !sources.some((source) => name.startsWith(`${source.name} `)))
    .map(({ name }) => ({ name, disabled: false })),
  ...sources.map(({ name }) => ({ name, disabled: false })),
  ...disabled.map(({ name }) => ({ name, disabled: true })),
];

async function auditPage(
  { operations }: Call['services'],
  { page, ...request }: ReturnType<typeof auditRequest>,
  account: string | undefined,
) {
  const entries = await operations.repositories.listAudit({ accountId: account, ...request });
  return listOf(entries, page, auditObject, auditId);
}

function checkAliases(aliases: readonly AccountAlias[], models: Parameters<typeof conflictOfAliases>[1]): void {
  const fault = faultOfAliases(aliases);
  if (fault !== undefined) throw new ApiError('unsupported_value', fault, { param: 'aliases' });
  const conflict = conflictOfAliases(aliases, models);
  if (conflict !== undefined)
    throw new ApiError('unsupported_value', conflict.fault, { param: `aliases[${conflict.index}]` });
}

async function limitsOf({ services }: Pick<Call, 'services'>, accountId: string): Promise<AccountLimits> {
  const account = await services.operations.repositories.getAccount({ accountId });
  return readAccountLimits(account?.limits ?? null);
}
