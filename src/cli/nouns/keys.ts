import type { KeyObject } from '../../account-api/key-object.ts';
import type { KeyLimits } from '../../accounts/key-limits.ts';
import type { Role } from '../../accounts/role.ts';
import type { BudgetPeriod } from '../../store/budget.ts';
import type { AllowOptions } from '../allow.ts';
import { allowed, allowOptions, wantedModels } from '../allow.ts';
import { budgetRow, inputOf, keyBudget, periodOption } from '../budgets.ts';
import { changes, keyWord, lists, onlyAccount, option } from '../command-row.ts';
import type { CommandRow } from '../command-row.ts';
import { collected, dollarsToMicrocents, duration, durationOrNever, refused } from '../option.ts';
import { centsText } from '../../platform/dollars.ts';
import { timeText } from '../output.ts';
import {
  modelOption,
  orNone,
  rateOptions,
  ratesAsked,
  ratesOf,
  ratesShownIn,
  rateWords,
  sessionOption,
} from '../rate-options.ts';
import type { RateOptions } from '../rate-options.ts';

const keyRoles: readonly Role[] = ['owner', 'admin', 'billing', 'developer', 'viewer'];

interface LimitOptions<Rate> extends RateOptions<Rate> {
  readonly sessionBudget?: Rate;
  readonly endpoint?: readonly string[];
  readonly ip?: readonly string[];
  readonly zdrOnly?: boolean;
  readonly plan?: boolean;
  readonly tier?: string;
  readonly allowTier?: readonly string[];
}
const limitsOf = <Rate>(options: LimitOptions<Rate>) => ({
  endpoints: options.endpoint,
  addresses: options.ip,
  zdrOnly: options.zdrOnly,
  planKey: options.plan,
  tier: options.tier,
  tiers: options.allowTier,
  concurrencyMax: options.concurrency,
  sessionCents: options.sessionBudget,
  ...ratesOf(options),
});
/** They may be of one model instead. */
const withoutRates = ratesOf<undefined>({});
const tierOptions = [
  option('--tier <tier>', 'service tier of requests that name none: priority, default or flex'),
  option('--allow-tier <tier>', 'service tier that it may use besides default; repeatable', collected),
];

interface CreateOptions extends LimitOptions<number> {
  readonly account?: string;
  readonly name: string;
  readonly user?: string;
  readonly expires?: number;
  readonly model?: readonly string[];
  readonly budget?: bigint;
  readonly budgetPer: BudgetPeriod;
  readonly tag?: readonly string[];
  readonly role?: Role;
  readonly operator?: boolean;
}

interface EditOptions {
  readonly name?: string;
  readonly expires?: number | 'never';
  readonly tag?: readonly string[];
}

/** A service elsewhere lists one account's keys, whose objects do not name the account. */
type ListedKey = KeyObject & { readonly account_id?: string };

export const keyCommands: readonly CommandRow[] = [
  changes({
    name: 'create',
    about: 'create a key; it is shown only once',
    takes: [
      option('--account <account-id>', 'account of the key (default: the only account)'),
      option('--name <name>', 'name of the key', undefined, 'unnamed'),
      option('--user <name>', 'user that the key belongs to; only keys of users can upload files'),
      option('--expires <duration>', 'for example 12h or 30d', duration),
      option('--model <model>', 'allowed model; repeatable (default: all)', collected),
      option('--endpoint <path>', 'allowed path, such as /v1/messages; repeatable (default: all)', collected),
      option('--ip <range>', 'allowed client address or range; repeatable (default: all)', collected),
      option('--zdr-only', 'only for requests with Service-ZDR: required'),
      option('--tag <tag>', 'tag of all its requests; repeatable', collected),
      option('--role <role>', 'create a management key with this role').choices(keyRoles),
      option('--operator', 'create a management key that may also do what the operator of the server may'),
      option('--plan', "requests are paid by the account's plan, and count against its included requests"),
      ...rateOptions((read) => read),
      sessionOption((read) => read),
      ...tierOptions,
      option('--budget <dollars>', 'budget for a period, for example 10.00 (default: no budget)', dollarsToMicrocents),
      periodOption('--budget-per <period>'),
    ],
    ask: async (options: CreateOptions, _words, context) => ({
      kind: 'create_key',
      accountId: options.account,
      name: options.name,
      userId: options.user,
      expiresAt: undefined,
      expiresAfterMs: options.expires,
      models: options.model === undefined ? undefined : await wantedModels(context, { model: options.model }),
      limits: limitsOf(options),
      budget: options.budget === undefined ? undefined : inputOf(options.budget, options.budgetPer),
      tags: options.tag,
      role: options.role,
      isOperator: options.operator,
    }),
    // Only the secret goes to standard output, so that it can be piped.
    done: (answer) => ({
      json: { id: answer.keyId, account: answer.accountId, name: answer.name, key: answer.key },
      lines: [answer.key],
      notes: [
        `${answer.keyId} for ${answer.accountId}. The key is shown only once; the database keeps only a keyed hash.`,
      ],
    }),
  }),
  lists({
    name: 'list',
    about: 'list keys',
    takes: [onlyAccount],
    api: ({ account }: { readonly account?: string }) => ({
      path: '/v1/keys',
      query: { include_disabled: true },
      account,
      limit: 100,
    }),
    read: async ({ repositories, now }, { account: accountId }: { readonly account?: string }) => {
      const { keyObjects } = await import('../../account-api/key-object.ts');
      const keys = await repositories.listKeys(accountId === undefined ? {} : { accountId });
      const objects = new Map<string, ListedKey>();
      for (const id of new Set(keys.map((key) => key.accountId))) {
        const own = keys.filter((key) => key.accountId === id);
        for (const key of await keyObjects(id, own, repositories, now)) objects.set(key.id, { account_id: id, ...key });
      }
      return keys.map(({ id }) => objects.get(id)!);
    },
    columns: {
      id: ({ id }) => id,
      account: ({ account_id: account }) => account,
      name: ({ name }) => name,
      key: ({ label }) => label,
      user: ({ user_id: user }) => user ?? '-',
      status: (key) => (key.revoked_at !== null ? 'revoked' : key.disabled ? 'paused' : 'active'),
      models: ({ role, is_operator: isOperator, allowed_models: models }) =>
        role !== null ? `none: ${role}${isOperator ? ', operator' : ''}` : (models?.join(' ') ?? 'all'),
      'kept to': (key) =>
        limitsText({
          endpoints: key.allowed_endpoints ?? [],
          addresses: key.ip_ranges ?? [],
          zdrOnly: key.zdr_only,
          planKey: key.type === 'plan',
          ...ratesShownIn(key),
          ...(key.session_budget_cents === null ? {} : { sessionCents: key.session_budget_cents }),
        }),
      budget: keyBudget,
      created: ({ created_at: at }) => timeText(at),
      expires: ({ expires_at: at }) => (at === null ? 'never' : timeText(at)),
    },
  }),
  changes({
    name: 'revoke',
    about: 'revoke a key at once; its running requests are cut',
    takes: [keyWord],
    ask: (_options, [keyId]) => ({ kind: 'revoke_key', keyId }),
    done: ({ keyId, accountId, name }) => ({
      json: { id: keyId, account: accountId, name, status: 'revoked' },
      lines: [`${keyId} (${name}) is revoked. Requests with it are refused from now on; running ones were cut.`],
    }),
  }),
  changes({
    name: 'rotate',
    about: 'rotate the secret of a key; the new one is shown only once, and the key keeps its id',
    takes: [
      keyWord,
      option(
        '--overlap <duration>',
        'how long the earlier secret stays valid, at most 7d (default: not at all)',
        duration,
      ),
    ],
    ask: ({ overlap = 0 }: { readonly overlap?: number }, [keyId]) => ({
      kind: 'rotate_key',
      keyId,
      overlapMs: overlap,
    }),
    done: (answer) => {
      const ends = answer.previousEndsAt === null ? null : time(answer.previousEndsAt);
      return {
        json: {
          id: answer.keyId,
          account: answer.accountId,
          name: answer.name,
          key: answer.key,
          previous_ends_at: ends,
        },
        lines: [answer.key],
        notes: [
          `${answer.keyId} has this secret from now on; it is shown only once. The earlier one ${ends === null ? 'no longer works' : `works until ${ends}`}.`,
        ],
      };
    },
  }),
  ...(
    [
      ['pause', true, 'refuse a key until it is resumed; its running requests are cut'],
      ['resume', false, 'accept a paused key again'],
    ] as const
  ).map(([name, disabled, about]) =>
    changes({
      name,
      about,
      takes: [keyWord],
      ask: (_options, [keyId]) => ({ kind: 'edit_key', keyId, disabled }),
      done: (answer) => ({
        json: { id: answer.keyId, name: answer.name, status: disabled ? 'paused' : 'active' },
        lines: [
          disabled
            ? `${answer.keyId} (${answer.name}) is paused. Requests with it are refused; running ones were cut.`
            : `${answer.keyId} (${answer.name}) works again.`,
        ],
      }),
    }),
  ),
  changes({
    name: 'allow',
    about: 'set the models that a key may use, among those of its account',
    takes: [keyWord, ...allowOptions],
    ask: async (options: AllowOptions, [keyId], context) => ({
      kind: 'allow_key',
      keyId,
      models: await wantedModels(context, options),
    }),
    done: allowed,
  }),
  changes({
    name: 'limit',
    about: 'change the limits of a key, in addition to those of its account; none removes a limit',
    takes: [
      keyWord,
      modelOption,
      ...rateOptions(orNone),
      sessionOption(orNone),
      ...tierOptions,
      option('--endpoint <path>', 'allowed path, replacing the earlier ones; repeatable; none allows all', collected),
      option(
        '--ip <range>',
        'allowed client address or range, replacing the earlier ones; repeatable; none allows all',
        collected,
      ),
      option('--zdr-only', 'only for requests with Service-ZDR: required'),
      option('--no-zdr-only', 'for requests with any header'),
      option('--plan', "paid by the account's plan"),
      option('--no-plan', 'paid from credit'),
    ],
    ask: async (options: LimitOptions<number | 'none'> & { readonly model?: string }, [keyId], context) => {
      const given = limitsOf(options);
      const limits = { ...orNull({ ...given, ...withoutRates }), ...(await ratesAsked(options, context)) };
      if (Object.values(given).every((limit) => limit === undefined))
        throw await refused('Give at least one limit: tokenhouse keys limit --help lists them.');
      return { kind: 'limit_key', keyId, limits };
    },
    done: ({ keyId, limits }) => ({
      json: { id: keyId, limits },
      lines: [`${keyId} has the limits ${limitsText(limits)} from now on; running requests continue.`],
    }),
  }),
  changes({
    name: 'edit',
    about: 'rename a key, or change its expiry or its tags',
    takes: [
      keyWord,
      option('--name <name>', 'name of the key'),
      option('--expires <duration>', 'time from now, for example 12h or 30d, or never', durationOrNever),
      option('--tag <tag>', 'tag, replacing the earlier ones; repeatable; none removes all', collected),
    ],
    ask: async ({ name, expires, tag }: EditOptions, [keyId]) => {
      if (name === undefined && expires === undefined && tag === undefined)
        throw await refused('Give at least one change: --name, --expires or --tag.');
      const tags = isNone(tag) ? [] : tag;
      const end = expires === 'never' ? { expiresAt: null } : { expiresAfterMs: expires };
      return { kind: 'edit_key', keyId, name, tags, ...end };
    },
    done: (answer) => {
      const ends = answer.expiresAt === null ? null : time(answer.expiresAt);
      return {
        json: { id: answer.keyId, name: answer.name, expires_at: ends },
        lines: [`${answer.keyId} (${answer.name}) ${ends === null ? 'does not expire' : `expires at ${ends}`}.`],
      };
    },
  }),
  budgetRow('key', 'set the budget of a key for a period'),
];

const isNone = (given: unknown): boolean =>
  given === 'none' || given === false || (Array.isArray(given) && given.join() === 'none');
/** `none`, or an option that is turned off, removes a limit. */
const orNull = <Limits extends object>(limits: Limits) =>
  Object.fromEntries(Object.entries(limits).map(([name, given]) => [name, isNone(given) ? null : given])) as {
    readonly [Limit in keyof Limits]: Exclude<Limits[Limit], 'none' | false> | null;
  };

function limitsText(limits: KeyLimits): string {
  const { endpoints = [], addresses = [], zdrOnly, planKey, tier, tiers, sessionCents } = limits;
  const words = [
    ...endpoints,
    ...addresses,
    ...(zdrOnly === true ? ['zero data retention'] : []),
    ...(planKey === true ? ['paid by the plan'] : []),
    ...(tier === undefined ? [] : [`tier ${tier}`]),
    ...(tiers === undefined ? [] : [`may use ${['default', ...tiers].join('/')}`]),
    ...rateWords(limits),
    ...(sessionCents === undefined ? [] : [`${centsText(sessionCents)} a conversation`]),
  ];
  return words.join(' ') || '–';
}

const time = (ms: number): string => new Date(ms).toISOString();
