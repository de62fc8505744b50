import { readLimits } from '../accounts/key-limits.ts';
import { OperationError } from '../accounts/operation.ts';
import type { KeyLimits } from '../accounts/key-limits.ts';
import type { Role } from '../accounts/role.ts';
import type { BudgetPeriod } from '../store/budget.ts';
import type { ApiKey } from '../store/repositories/keys.ts';
import { configuredModels } from './configured-model.ts';
import { budgetCell, budgetJson, readBudgets, inputOf } from './budgets.ts';
import type { Context } from './context.ts';
import { reading, writing } from './database.ts';
import { table } from './output.ts';

export async function createKey(
  context: Context,
  options: {
    readonly account?: string;
    readonly name: string;
    readonly user?: string;
    readonly expires?: number;
    readonly model?: readonly string[];
    readonly endpoint?: readonly string[];
    readonly ip?: readonly string[];
    readonly zdrOnly?: boolean;
    readonly plan?: boolean;
    readonly concurrency?: number;
    readonly requestsPerMinute?: number;
    readonly tokensPerMinute?: number;
    readonly budget?: bigint;
    readonly budgetPer: BudgetPeriod;
    readonly tag?: readonly string[];
    readonly role?: Role;
    readonly operator?: boolean;
  },
): Promise<number> {
  const answer = await writing(context, {
    kind: 'create_key',
    accountId: options.account,
    name: options.name,
    userId: options.user,
    expiresAt: undefined,
    expiresAfterMs: options.expires,
    models: options.model === undefined ? undefined : configuredModels(context, options.model),
    limits: {
      endpoints: options.endpoint,
      addresses: options.ip,
      zdrOnly: options.zdrOnly,
      planKey: options.plan,
      concurrencyMax: options.concurrency,
      requestsPerMinute: options.requestsPerMinute,
      tokensPerMinute: options.tokensPerMinute,
    },
    budget: options.budget === undefined ? undefined : inputOf(options.budget, options.budgetPer),
    tags: options.tag,
    role: options.role,
    isOperator: options.operator,
  });
  // Only the secret on standard output, so that it can be piped.
  context.print.result({ id: answer.keyId, account: answer.accountId, name: answer.name, key: answer.key }, [
    answer.key,
  ]);
  if (!context.print.json)
    context.print.say(
      `${answer.keyId} for ${answer.accountId}. The key is shown only once; the database keeps only a keyed hash.`,
    );
  return 0;
}

export async function listKeys(context: Context, options: { readonly account?: string }): Promise<number> {
  const [keys, budgets] = await reading(context, async (repositories, _db, now) => {
    const found = await repositories.listKeys(options.account === undefined ? {} : { accountId: options.account });
    return [found, await readBudgets(repositories, found, await now())] as const;
  });
  context.print.result(
    keys.map((key) => ({
      id: key.id,
      account: key.accountId,
      name: key.name,
      key: key.display,
      user: key.userId,
      status: statusOf(key),
      role: key.role,
      operator: key.isOperator,
      tags: key.tags,
      models: key.models,
      limits: readLimits(key.limits),
      budget: budgetJson(budgets.get(key.id)),
      created_at: time(key.createdAt),
      expires_at: key.expiresAt === null ? null : time(key.expiresAt),
      revoked_at: key.revokedAt === null ? null : time(key.revokedAt),
      previous_ends_at: key.previousEndsAt === null ? null : time(key.previousEndsAt),
    })),
    table(
      ['id', 'account', 'name', 'key', 'user', 'status', 'models', 'kept to', 'budget', 'created', 'expires'],
      keys.map((key) => [
        key.id,
        key.accountId,
        key.name,
        key.display,
        key.userId ?? '-',
        statusOf(key),
        key.role !== null
          ? `none: ${key.role}${key.isOperator ? ', operator' : ''}`
          : key.models === null
            ? 'all'
            : key.models.join(' '),
        shownLimits(readLimits(key.limits)),
        budgetCell(budgets.get(key.id)),
        time(key.createdAt),
        key.expiresAt === null ? 'never' : time(key.expiresAt),
      ]),
    ),
  );
  return 0;
}

const statusOf = ({ status, disabledAt }: ApiKey): string =>
  status === 'active' && disabledAt !== null ? 'paused' : status;

/** Gives a key another secret; the earlier one works on for a while, or not. */
export async function rotateKey(
  context: Context,
  { overlap = 0 }: { readonly overlap?: number },
  keyId: string,
): Promise<number> {
  const answer = await writing(context, { kind: 'rotate_key', keyId, overlapMs: overlap });
  const ends = answer.previousEndsAt === null ? null : time(answer.previousEndsAt);
  context.print.result(
    { id: answer.keyId, account: answer.accountId, name: answer.name, key: answer.key, previous_ends_at: ends },
    [answer.key],
  );
  if (!context.print.json)
    context.print.say(
      `${answer.keyId} has this secret from now on; it is shown only once. The earlier one ${ends === null ? 'no longer works' : `works until ${ends}`}.`,
    );
  return 0;
}

/** Pauses a key, or resumes it. */
export async function pauseKey(context: Context, disabled: boolean, keyId: string): Promise<number> {
  const answer = await writing(context, { kind: 'edit_key', keyId, disabled });
  context.print.result({ id: answer.keyId, name: answer.name, status: disabled ? 'paused' : 'active' }, [
    disabled
      ? `${answer.keyId} (${answer.name}) is paused. Requests with it are refused; running ones were cut.`
      : `${answer.keyId} (${answer.name}) works again.`,
  ]);
  return 0;
}

export async function revokeKey(context: Context, keyId: string): Promise<number> {
  const answer = await writing(context, { kind: 'revoke_key', keyId });
  context.print.result({ id: answer.keyId, account: answer.accountId, name: answer.name, status: 'revoked' }, [
    `${answer.keyId} (${answer.name}) is revoked. Requests with it are refused from now on; running ones were cut.`,
  ]);
  return 0;
}

export interface KeyLimitOptions {
  readonly concurrency?: number | 'none';
  readonly requestsPerMinute?: number | 'none';
  readonly tokensPerMinute?: number | 'none';
  readonly endpoint?: readonly string[];
  readonly ip?: readonly string[];
  readonly zdrOnly?: boolean;
  readonly plan?: boolean;
}

/** Changes a key's restrictions; what is left out stays. */
export async function limitKey(context: Context, options: KeyLimitOptions, keyId: string): Promise<number> {
  const limits = {
    concurrencyMax: orNull(options.concurrency),
    requestsPerMinute: orNull(options.requestsPerMinute),
    tokensPerMinute: orNull(options.tokensPerMinute),
    endpoints: listOrNull(options.endpoint),
    addresses: listOrNull(options.ip),
    zdrOnly: trueOrNull(options.zdrOnly),
    planKey: trueOrNull(options.plan),
  };
  if (Object.values(limits).every((limit) => limit === undefined))
    throw new OperationError('Give at least one limit: tokenhouse keys limit --help lists them.');
  const answer = await writing(context, { kind: 'limit_key', keyId, limits });
  context.print.result({ id: answer.keyId, limits: answer.limits }, [
    `${answer.keyId} has the limits ${shownLimits(answer.limits)} from now on; running requests continue.`,
  ]);
  return 0;
}

const orNull = (given: number | 'none' | undefined) => (given === 'none' ? null : given);
const trueOrNull = (given: boolean | undefined) => (given === false ? null : given);
const listOrNull = (given: readonly string[] | undefined) =>
  given?.length === 1 && given[0] === 'none' ? null : given;

/** Renames a key, or moves its end. */
export async function editKey(
  context: Context,
  options: { readonly name?: string; readonly expires?: number | 'never'; readonly tag?: readonly string[] },
  keyId: string,
): Promise<number> {
  const { name, expires, tag } = options;
  if (name === undefined && expires === undefined && tag === undefined)
    throw new OperationError('Give at least one change: --name, --expires or --tag.');
  const tags = listOrNull(tag) === null ? [] : tag;
  const end = expires === 'never' ? { expiresAt: null } : { expiresAfterMs: expires };
  const answer = await writing(context, { kind: 'edit_key', keyId, name, tags, ...end });
  const ends = answer.expiresAt === null ? null : time(answer.expiresAt);
  context.print.result({ id: answer.keyId, name: answer.name, expires_at: ends }, [
    `${answer.keyId} (${answer.name}) ${ends === null ? 'does not expire' : `expires at ${ends}`}.`,
  ]);
  return 0;
}

function shownLimits(limits: KeyLimits): string {
  const { endpoints = [], addresses = [], zdrOnly, planKey } = limits;
  const { concurrencyMax, requestsPerMinute, tokensPerMinute } = limits;
  const words = [
    ...endpoints,
    ...addresses,
    ...(zdrOnly === true ? ['zero data retention'] : []),
    ...(planKey === true ? ['paid by the plan'] : []),
    ...(concurrencyMax === undefined ? [] : [`${concurrencyMax} at once`]),
    ...(requestsPerMinute === undefined ? [] : [`${requestsPerMinute} requests/min`]),
    ...(tokensPerMinute === undefined ? [] : [`${tokensPerMinute} tokens/min`]),
  ];
  return words.join(' ') || '–';
}

const time = (ms: number): string => new Date(ms).toISOString();
