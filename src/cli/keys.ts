import { readLimits } from '../accounts/key-limits.ts';
import { OperationError } from '../accounts/operations.ts';
import type { KeyLimits } from '../accounts/key-limits.ts';
import { configuredModels } from './configured-model.ts';
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
  });
  if (answer.kind !== 'key') throw new Error('unexpected answer');
  // The secret alone on standard output, so that it can be piped.
  context.print.result({ id: answer.keyId, account: answer.accountId, name: answer.name, key: answer.key }, [
    answer.key,
  ]);
  if (!context.print.json)
    context.print.say(
      `${answer.keyId} for ${answer.accountId}. It is shown once; the database keeps only a keyed hash.`,
    );
  return 0;
}

export async function listKeys(context: Context, options: { readonly account?: string }): Promise<number> {
  const keys = await reading(context, (desk) =>
    desk.listKeys(options.account === undefined ? {} : { accountId: options.account }),
  );
  context.print.result(
    keys.map((key) => ({
      id: key.id,
      account: key.accountId,
      name: key.name,
      key: key.display,
      user: key.userId,
      status: key.status,
      models: key.models,
      limits: readLimits(key.limits),
      created_at: time(key.createdAt),
      expires_at: key.expiresAt === null ? null : time(key.expiresAt),
      revoked_at: key.revokedAt === null ? null : time(key.revokedAt),
    })),
    table(
      ['id', 'account', 'name', 'key', 'user', 'status', 'models', 'kept to', 'created', 'expires'],
      keys.map((key) => [
        key.id,
        key.accountId,
        key.name,
        key.display,
        key.userId ?? '-',
        key.status,
        key.models === null ? 'all' : key.models.join(' '),
        shownLimits(readLimits(key.limits)),
        time(key.createdAt),
        key.expiresAt === null ? 'never' : time(key.expiresAt),
      ]),
    ),
  );
  return 0;
}

export async function revokeKey(context: Context, keyId: string): Promise<number> {
  const answer = await writing(context, { kind: 'revoke_key', keyId });
  if (answer.kind !== 'revoked') throw new Error('unexpected answer');
  context.print.result({ id: answer.keyId, account: answer.accountId, name: answer.name, status: 'revoked' }, [
    `${answer.keyId} (${answer.name}) is revoked. Requests with it are refused from now on; what ran on it has been cut.`,
  ]);
  return 0;
}

/** Changes limits of a key; those that are left out stay. */
export async function limitKey(
  context: Context,
  options: {
    readonly concurrency?: number | 'none';
    readonly requestsPerMinute?: number | 'none';
    readonly tokensPerMinute?: number | 'none';
  },
  keyId: string,
): Promise<number> {
  const { concurrency, requestsPerMinute, tokensPerMinute } = options;
  if (concurrency === undefined && requestsPerMinute === undefined && tokensPerMinute === undefined)
    throw new OperationError('Say what to change: --concurrency, --requests-per-minute or --tokens-per-minute.');
  const rateOf = (given: number | 'none' | undefined) => (given === 'none' ? null : given);
  const rates = {
    concurrencyMax: rateOf(concurrency),
    requestsPerMinute: rateOf(requestsPerMinute),
    tokensPerMinute: rateOf(tokensPerMinute),
  };
  const answer = await writing(context, { kind: 'limit_key', keyId, rates });
  if (answer.kind !== 'key_limited') throw new Error('unexpected answer');
  context.print.result({ id: answer.keyId, limits: answer.limits }, [
    `${answer.keyId} is kept to: ${shownLimits(answer.limits)} from now on; what runs goes on.`,
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
