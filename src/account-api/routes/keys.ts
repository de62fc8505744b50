import Type from 'typebox';
import type { Static } from 'typebox';

import { faultOfLimits, limitCentsMax, limitMax, listMax, readLimits } from '../../accounts/key-limits.ts';
import type { KeyLimits } from '../../accounts/key-limits.ts';
import { operate } from '../../accounts/operations.ts';
import { overlapMsMax } from '../../accounts/operations/keys.ts';
import { sessionKey } from '../../accounts/session-keys.ts';
import { isTag, tagRule, tagsMax } from '../../accounts/tags.ts';
import { ApiError } from '../../platform/errors.ts';
import type { ApiKey } from '../../store/repositories/keys.ts';
import { perMinute } from '../api.ts';
import { notThere } from '../input.ts';
import { keyObjects, keySchema } from '../key-object.ts';
import type { KeyObject } from '../key-object.ts';
import { budgetAskedFor, limitSettings, modelBudgetsAskedFor, modelBudgetSettings } from '../limit-object.ts';
import { operationsOf } from '../operations-of.ts';
import { checkModels, ratesAskedFor, rateSettings } from '../rate-fields.ts';
import { everyRole, mayMakeKeys, roles, route } from '../route.ts';
import type { AccountRoute, Call, Role } from '../route.ts';
import { tierSettings, tiersAskedFor } from '../tier-fields.ts';
import { listOf, listSchema, nullable, pageLimit, pageQuery, secondsOf } from '../wire.ts';

const keyId = Type.String({ pattern: '^key_[0-9A-Za-z]{1,64}$' });
const params = Type.Object({ id: keyId });
const name = Type.String({ minLength: 1, maxLength: 100 });
const rate = Type.Integer({ minimum: 1, maximum: limitMax });
const texts = (maxItems: number, what: string) =>
  Type.Array(Type.String({ minLength: 1, maxLength: 128 }), { maxItems, description: what });

/** The settings of an inference key, at its creation and later. */
const settings = {
  ...limitSettings,
  expires_at: Type.Optional(nullable(Type.Integer({ minimum: 0, description: 'Unix seconds; null: never.' }))),
  allowed_models: Type.Optional(nullable(texts(1000, 'Ids of models; null: all models that the account may use.'))),
  allowed_endpoints: Type.Optional(nullable(texts(listMax, 'Paths such as `/v1/messages`; null: all.'))),
  ip_ranges: Type.Optional(nullable(texts(listMax, 'Addresses, or ranges such as `10.0.0.0/8`; null: everywhere.'))),
  zdr_only: Type.Optional(Type.Boolean()),
  max_concurrency: Type.Optional(nullable(rate)),
  ...rateSettings,
  ...modelBudgetSettings,
  ...tierSettings,
  session_budget_cents: Type.Optional(
    nullable(
      Type.Integer({
        minimum: 1,
        maximum: limitCentsMax,
        description: 'What one conversation may cost; 402 beyond it.',
      }),
    ),
  ),
  tags: Type.Optional(texts(tagsMax, 'Tags of all requests of the key, in addition to the tags of a request itself.')),
};

const newKeyBody = Type.Object(
  {
    name,
    type: Type.Optional(Type.Enum(['serverless', 'plan', 'management'], { description: 'serverless when left out.' })),
    role: Type.Optional(
      Type.Enum([...roles], { description: 'For a management key; at most the role of its creator.' }),
    ),
    user_id: Type.Optional(
      nullable(
        Type.String({
          minLength: 1,
          maxLength: 100,
          description: 'The person it belongs to; null: it belongs to the account.',
        }),
      ),
    ),
    ...settings,
  },
  { additionalProperties: false },
);

const changeBody = Type.Object(
  {
    name: Type.Optional(name),
    type: Type.Optional(Type.Enum(['serverless', 'plan'])),
    disabled: Type.Optional(
      Type.Boolean({ description: 'true: all requests with the key are refused, and running ones are cut.' }),
    ),
    ...settings,
  },
  { additionalProperties: false },
);

const secretSchema = Type.Object({
  key: Type.String({ description: 'The secret. It is shown now, and never again.' }),
  data: keySchema,
});

export const keyRoutes: readonly AccountRoute[] = [
  route({
    method: 'get',
    path: '/v1/key',
    operationId: 'getPresentedKey',
    tag: 'Keys',
    summary: 'Get the management key of this request',
    description: 'The management key that the request carries, and its permissions. People have no key, and get 403.',
    access: everyRole,
    answers: [
      {
        status: 200,
        description: 'The key.',
        schema: Type.Object({
          ...keySchema.properties,
          rate_limit: Type.Object({ requests: Type.Integer(), interval: Type.String() }),
        }),
      },
    ],
    handle: async (call) => {
      const { principal } = call;
      if (principal.kind !== 'key')
        throw new ApiError(
          'http_403',
          'This route describes the management key of the request: send one, or use GET /v1/keys.',
        );
      const key = await shownKey(call, await keyThere(call, principal.keyId));
      return { ...key, rate_limit: { requests: perMinute.sender, interval: '1m' } };
    },
  }),
  route({
    method: 'get',
    path: '/v1/keys',
    operationId: 'listKeys',
    tag: 'Keys',
    summary: 'List keys',
    description:
      'Keys that are not deleted, newest first. Developers see only their own. Paused keys are left out unless `include_disabled`. With `ids`, these keys, deleted and paused ones too, so that usage can show their names.',
    access: everyRole,
    query: Type.Object({
      ...pageQuery,
      include_disabled: Type.Optional(Type.Boolean()),
      ids: Type.Optional(
        Type.Array(keyId, { minItems: 1, maxItems: 100, description: 'Those of other accounts are left out.' }),
      ),
    }),
    answers: [{ status: 200, description: 'A page of keys.', schema: listSchema(keySchema) }],
    handle: async (call) => {
      const { query, account } = call;
      const { repositories, now } = call.services.operations;
      const limit = pageLimit(query.limit);
      const keys = await repositories.listAccountKeys({
        accountId: account.id,
        ...ownOnly(call),
        after: query.after,
        isEnabled: query.include_disabled === true || query.ids !== undefined ? undefined : true,
        ids: query.ids,
        isListed: query.ids === undefined,
        limit: limit + 1,
      });
      const shown = await keyObjects(account.id, keys.slice(0, limit), repositories, now());
      const objects = new Map(shown.map((key) => [key.id, key]));
      return listOf(
        keys,
        limit,
        ({ id }) => objects.get(id)!,
        ({ id }) => id,
      );
    },
  }),
  route({
    method: 'post',
    path: '/v1/keys',
    operationId: 'createKey',
    tag: 'Keys',
    summary: 'Create a key',
    description:
      'The secret is in this answer only, and is never shown again. Only an owner or admin in person can create a management key. An account has at most 1,000 live keys.',
    access: mayMakeKeys,
    stepUp: true,
    body: newKeyBody,
    answers: [{ status: 201, description: 'The key with its secret.', schema: secretSchema }],
    errors: ['http_409'],
    handle: async (call) => {
      const { body, account } = call;
      const { type = 'serverless', role } = body;
      if (type === 'management') {
        checkMayGrant(call, role);
        if (body.budgets_by_model !== undefined)
          throw new ApiError('unsupported_value', 'A management key makes no requests: it has no budgets.', {
            param: 'budgets_by_model',
          });
      }
      if (type !== 'management' && role !== undefined)
        throw new ApiError('unsupported_value', 'Only a management key has a role.', { param: 'role' });
      const input = readSettings(call, body, type === 'management' ? undefined : type, {});
      const answer = await operate(
        {
          kind: 'create_key',
          accountId: account.id,
          name: body.name,
          userId: await userOfNewKey(call, body.user_id, type),
          expiresAt: input.expiresAt ?? undefined,
          models: input.models ?? undefined,
          limits: input.limits === undefined ? undefined : withoutNulls(input.limits),
          budget:
            body.limit_cents === undefined && body.limit_microcents === undefined
              ? undefined
              : (budgetAskedFor(body, null) ?? undefined),
          tags: input.tags,
          role: type === 'management' ? role : undefined,
        },
        operationsOf(call),
      );
      await setModelBudgets(call, answer.keyId);
      return { key: answer.key, data: await shownKey(call, await keyThere(call, answer.keyId)) };
    },
  }),
  route({
    method: 'post',
    path: '/v1/keys/session',
    operationId: 'createSessionKey',
    tag: 'Keys',
    summary: 'The key of this session',
    description:
      'For the pages that call models themselves. A session has one key for each account: no list shows it, it can spend one dollar, and it ends with the session, after eight hours at the latest. Asked for again, it gets another secret, and the one before works for another hour. For people who are signed in.',
    access: mayMakeKeys,
    answers: [
      {
        status: 201,
        description: 'The secret, which is in this answer only.',
        schema: Type.Object({
          object: Type.Literal('session_key'),
          id: Type.String(),
          key: Type.String(),
          expires_at: Type.Integer({ description: 'Unix seconds.' }),
        }),
      },
    ],
    errors: ['http_403', 'http_409'],
    handle: async (call) => {
      const { principal, account } = call;
      if (principal.kind !== 'user') throw new ApiError('http_403', 'Only the session of a person has such a key.');
      const { userId, sessionId } = principal;
      const made = await sessionKey({ accountId: account.id, userId, sessionId }, operationsOf(call));
      return { object: 'session_key', id: made.keyId, key: made.key, expires_at: secondsOf(made.expiresAt) };
    },
  }),
  route({
    method: 'get',
    path: '/v1/keys/{id}',
    operationId: 'getKey',
    tag: 'Keys',
    summary: 'One key',
    description: 'Deleted keys too, so that usage can show their names.',
    access: everyRole,
    params,
    answers: [{ status: 200, description: 'The key.', schema: keySchema }],
    handle: async (call) => shownKey(call, await keyThere(call, call.params.id)),
  }),
  route({
    method: 'patch',
    path: '/v1/keys/{id}',
    operationId: 'changeKey',
    tag: 'Keys',
    summary: 'Change a key',
    description:
      'Fields that are left out stay; null removes a value. Changes apply from the next request on, on every replica within a second; running requests continue, unless the key is paused.',
    access: mayMakeKeys,
    params,
    body: changeBody,
    answers: [{ status: 200, description: 'The key as it is now.', schema: keySchema }],
    handle: async (call) => {
      const { body } = call;
      const key = await liveKey(call);
      checkMayChange(call, key, { isOwnAllowed: false });
      if (key.role !== null && Object.keys(body).some((field) => !ofEveryKey.has(field)))
        throw new ApiError(
          'unsupported_value',
          'Only name, expires_at, ip_ranges and disabled of a management key can change.',
        );
      const input = readSettings(call, body, body.type, readLimits(key.limits));
      const { repositories } = call.services.operations;
      const budget = budgetAskedFor(body, await repositories.getBudget({ subject: key.id }));
      const services = operationsOf(call);
      const { expiresAt, models, limits, tags } = input;
      const edit = { name: body.name, expiresAt, models, limits, tags, disabled: body.disabled };
      if (Object.values(edit).some((value) => value !== undefined))
        await operate({ kind: 'edit_key', keyId: key.id, ...edit }, services);
      if (budget !== undefined)
        await operate({ kind: 'budget_key', keyId: key.id, budget: budget ?? undefined }, services);
      await setModelBudgets(call, key.id);
      return shownKey(call, await keyThere(call, key.id));
    },
  }),
  route({
    method: 'delete',
    path: '/v1/keys/{id}',
    operationId: 'deleteKey',
    tag: 'Keys',
    summary: 'Revoke a key permanently',
    description: 'Both of its secrets are refused within a second on every replica, and its running requests are cut.',
    access: mayMakeKeys,
    params,
    answers: [
      {
        status: 200,
        description: 'The key is revoked.',
        schema: Type.Object({
          id: Type.String(),
          object: Type.Literal('key.deleted'),
          deleted: Type.Literal(true),
        }),
      },
    ],
    handle: async (call) => {
      const key = await liveKey(call);
      checkMayChange(call, key, { isOwnAllowed: true });
      await operate({ kind: 'revoke_key', keyId: key.id }, operationsOf(call));
      return { id: key.id, object: 'key.deleted', deleted: true };
    },
  }),
  route({
    method: 'post',
    path: '/v1/keys/{id}/rotate',
    operationId: 'rotateKey',
    tag: 'Keys',
    summary: 'Rotate the secret of a key',
    description:
      'The key keeps its id, limits and usage. The old secret works for another `overlap_seconds`, by the clock of the database; a still older one ends now. Running requests continue.',
    access: mayMakeKeys,
    stepUp: true,
    params,
    body: Type.Object(
      {
        overlap_seconds: Type.Optional(
          Type.Integer({ minimum: 0, maximum: overlapMsMax / 1000, description: '0 when left out.' }),
        ),
      },
      { additionalProperties: false },
    ),
    answers: [{ status: 200, description: 'The key with its new secret.', schema: secretSchema }],
    handle: async (call) => {
      const key = await liveKey(call);
      checkMayChange(call, key, { isOwnAllowed: true });
      const overlapMs = (call.body.overlap_seconds ?? 0) * 1000;
      const answer = await operate({ kind: 'rotate_key', keyId: key.id, overlapMs }, operationsOf(call));
      return { key: answer.key, data: await shownKey(call, await keyThere(call, key.id)) };
    },
  }),
];

const ofEveryKey: ReadonlySet<string> = new Set(['name', 'expires_at', 'disabled', 'ip_ranges']);

type KeyCall = Pick<Call, 'account' | 'principal' | 'services' | 'requestId' | 'address'>;

/** Developers may use only their own keys; a management key with that role only those without a user. */
function isOwn({ account, principal }: KeyCall, key: ApiKey): boolean {
  if (account.role !== 'developer') return true;
  if (principal.kind === 'user') return key.role === null && key.userId === principal.userId;
  return principal.kind === 'key' && (key.id === principal.keyId || (key.role === null && key.userId === null));
}

const ownOnly = ({ account, principal }: KeyCall): { readonly userId?: string | null } => {
  if (account.role !== 'developer') return {};
  return { userId: principal.kind === 'user' ? principal.userId : null };
};

async function keyThere(call: KeyCall, keyId: string): Promise<ApiKey> {
  const key = await call.services.operations.repositories.getKey({ keyId, accountId: call.account.id });
  if (key === undefined || !isOwn(call, key)) throw notThere();
  return key;
}

async function liveKey(call: KeyCall & { readonly params: { readonly id: string } }): Promise<ApiKey> {
  const key = await keyThere(call, call.params.id);
  // Nobody makes more of a session's key than it was made with, without a second proof.
  if (key.status !== 'active' || key.sessionId !== null) throw notThere();
  return key;
}

async function shownKey({ account, services }: KeyCall, key: ApiKey): Promise<KeyObject> {
  const { repositories, now } = services.operations;
  const [shown] = await keyObjects(account.id, [key], repositories, now());
  return shown!;
}

const isAtMost = (role: Role, own: Role): boolean => roles.indexOf(role) >= roles.indexOf(own);

/** To create a management key, or to become able to use one, the sender must have its rights. Throws `http_403`. */
function checkMayGrant({ account, principal }: KeyCall, role: Role | undefined): void {
  if (principal.kind !== 'user' || (account.role !== 'owner' && account.role !== 'admin'))
    throw new ApiError('http_403', 'Only an owner or admin who is signed in can create a management key.');
  if (role === undefined)
    throw new ApiError('unsupported_value', 'Give the role of the management key.', { param: 'role' });
  if (!isAtMost(role, account.role))
    throw new ApiError('http_403', `Your role is ${account.role}; a key can have no higher one.`, { param: 'role' });
}

/** A change of the secret hands it out, so its rules are those of creating a key. Throws `http_403`. */
function checkMayChange(
  { account, principal }: KeyCall,
  key: ApiKey,
  { isOwnAllowed }: { isOwnAllowed: boolean },
): void {
  if (key.role === null) return;
  if (principal.kind === 'key') {
    if (isOwnAllowed && principal.keyId === key.id) return;
    throw new ApiError('http_403', 'A management key can change only inference keys; it can rotate or delete itself.');
  }
  const role = roles.find((known) => known === key.role);
  const isAllowed =
    (account.role === 'owner' || account.role === 'admin') &&
    role !== undefined &&
    isAtMost(role, account.role) &&
    (!key.isOperator || (principal.kind === 'user' && principal.isOperator));
  if (!isAllowed) throw new ApiError('http_403', 'This management key has a higher role than you.');
}

/** The user of a new key: a member of the account. */
async function userOfNewKey(
  { account, principal, services }: KeyCall,
  asked: string | null | undefined,
  type: 'serverless' | 'plan' | 'management',
): Promise<string | undefined> {
  if (type === 'management') {
    if (asked !== undefined && asked !== null)
      throw new ApiError('unsupported_value', 'A management key belongs to the account: leave user_id out.', {
        param: 'user_id',
      });
    return undefined;
  }
  const own = principal.kind === 'user' ? principal.userId : undefined;
  if (account.role === 'developer' && asked !== undefined && asked !== (own ?? null))
    throw new ApiError('http_403', 'Developers can create keys only for themselves.', { param: 'user_id' });
  if (asked === undefined) return own;
  if (asked === null || asked === own) return asked ?? undefined;
  const member = await services.users.membership(asked, account.id);
  if (member === undefined)
    throw new ApiError('unsupported_value', 'No member of the account has this id.', { param: 'user_id' });
  return asked;
}

type Settings = { -readonly [Field in keyof typeof settings]?: Static<(typeof settings)[Field]> };

async function setModelBudgets(call: KeyCall & { readonly body: Settings }, keyId: string): Promise<void> {
  const services = operationsOf(call);
  for (const change of await modelBudgetsAskedFor(call.body, keyId, services))
    await operate({ kind: 'budget_key', keyId, ...change }, services);
}

interface ReadSettings {
  readonly expiresAt: number | null | undefined;
  readonly models: readonly string[] | null | undefined;
  readonly limits: { readonly [Limit in keyof KeyLimits]?: KeyLimits[Limit] | null } | undefined;
  readonly tags: readonly string[] | undefined;
}

/** Reads the settings; throws `unsupported_value` with the faulty field. */
function readSettings(
  { account, services }: KeyCall,
  body: Settings,
  type: 'serverless' | 'plan' | undefined,
  known: KeyLimits,
): ReadSettings {
  const { expires_at: expires, allowed_models: models, tags } = body;
  if (expires !== undefined && expires !== null && expires * 1000 <= services.operations.now())
    throw new ApiError('unsupported_value', 'expires_at must be in the future.', { param: 'expires_at' });
  checkModels(body, services.config, account.id);
  if (tags !== undefined && !tags.every(isTag)) throw new ApiError('unsupported_value', tagRule, { param: 'tags' });
  const limits = {
    ...(body.allowed_endpoints === undefined ? {} : { endpoints: body.allowed_endpoints }),
    ...(body.ip_ranges === undefined ? {} : { addresses: body.ip_ranges }),
    ...(body.zdr_only === undefined ? {} : { zdrOnly: body.zdr_only ? true : null }),
    ...(type === undefined ? {} : { planKey: type === 'plan' ? true : null }),
    ...(body.max_concurrency === undefined ? {} : { concurrencyMax: body.max_concurrency }),
    ...ratesAskedFor(body, known),
    ...tiersAskedFor(body),
    ...(body.session_budget_cents === undefined ? {} : { sessionCents: body.session_budget_cents }),
  };
  for (const [field, each] of [
    ['allowed_endpoints', { endpoints: body.allowed_endpoints ?? undefined }],
    ['ip_ranges', { addresses: body.ip_ranges ?? undefined }],
  ] as const) {
    const fault = faultOfLimits(each);
    if (fault !== undefined) throw new ApiError('unsupported_value', fault, { param: field });
  }
  return {
    expiresAt: expires === undefined || expires === null ? expires : expires * 1000,
    models,
    limits: Object.keys(limits).length === 0 ? undefined : limits,
    tags,
  };
}

const withoutNulls = (limits: object): KeyLimits =>
  Object.fromEntries(Object.entries(limits).filter(([, value]) => value !== null)) as KeyLimits;
