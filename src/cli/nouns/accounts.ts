import type { Config } from '../../config/config.ts';
import { dollars } from '../../platform/dollars.ts';
import { allowed, allowOptions, wantedModels } from '../allow.ts';
import type { AllowOptions } from '../allow.ts';
import { billingRow } from '../billing.ts';
import { accountBudget, budgetRow } from '../budgets.ts';
import { accountWord, changes, lists, meantAccount, option, word } from '../command-row.ts';
import type { CommandRow } from '../command-row.ts';
import type { Context } from '../context.ts';
import type { Reader } from '../database.ts';
import { collected, movedDollars, refused } from '../option.ts';
import { dayAndTime, timeText } from '../output.ts';
import { modelOption, orNone, rateOptions, ratesAsked, ratesOf, rateWords } from '../rate-options.ts';
import type { RateOptions } from '../rate-options.ts';

interface CreateOptions {
  readonly name?: string;
  readonly owner?: string;
  /** In microcents, from the option's reader. */
  readonly credit?: bigint;
  /** `true`: a key without a name. */
  readonly key?: string | true;
}
interface OfAccount {
  readonly account?: string;
}

export const accountCommands: readonly CommandRow[] = [
  lists({
    name: 'list',
    about: 'list accounts with their balances, plans and limits',
    takes: [],
    api: () => ({ path: '/v1/admin/accounts', limit: 1000 }),
    read: (reader) => accountsWithFigures(reader, 1000),
    columns: {
      id: ({ id }) => id,
      name: ({ name }) => name,
      status: ({ status }) => status,
      balance: ({ balance_microcents: balance }) => dollars(BigInt(balance)),
      plan: ({ plan_tier: plan }, config) =>
        plan === null || config === undefined || planNamed(plan, config) !== undefined
          ? (plan ?? '-')
          : `${plan} (not configured)`,
      'max requests': ({ max_concurrency: most, plan_tier: plan }, config) =>
        most ?? (config && (planNamed(plan, config)?.concurrencyMax ?? config.server.limits.concurrencyPerAccountMax)),
      models: ({ allowed_models: models }) => models?.join(' ') ?? 'all',
      budget: accountBudget,
      created: ({ created_at: at }) => dayAndTime(timeText(at)),
    },
  }),
  changes({
    name: 'create',
    about: 'create an account, optionally with owner, credit and key; all of it or nothing',
    takes: [
      word('[name]', 'name of the account'),
      option('--name <name>', 'the same'),
      option('--owner <address>', 'invite its owner; the link is printed, and mailed if mail is configured'),
      option('--credit <dollars>', 'free credit, for example 20.00', movedDollars),
      option('--key [name]', 'create a key; it is shown only once'),
    ],
    ask: async (options: CreateOptions, [named]: readonly [string | undefined]) => {
      if ((named === undefined) === (options.name === undefined))
        throw await refused('Name the account once: tokenhouse accounts create "Example Ltd"');
      return {
        kind: 'create_account',
        name: (named ?? options.name)!,
        ownerEmail: options.owner,
        creditMicrocents: options.credit === undefined ? undefined : String(options.credit),
        keyName: options.key === true ? 'first key' : options.key,
      };
    },
    done: async ({ accountId, name, key, invitation, creditMicrocents }, _options, _words, context) => {
      const { invite } = await import('../invite.ts');
      const owner = invitation === undefined ? undefined : await invite(context, accountId, invitation);
      const credit = creditMicrocents === undefined ? undefined : BigInt(creditMicrocents);
      const notes = [
        ...(key === undefined ? [] : ['The key is shown once; the database keeps only a keyed hash.']),
        ...(owner === undefined
          ? []
          : [
              `The link makes ${owner.email} the owner. It works once, within seven days. ${owner.is_mailed ? 'It is also sent by mail.' : 'It is not mailed: pass it on yourself.'}`,
            ]),
        ...(key === undefined && credit === undefined
          ? [
              `The account has no key and no credit yet: tokenhouse keys create --account ${accountId}, and tokenhouse credits grant --account ${accountId} --dollars 5.00`,
            ]
          : []),
      ];
      return {
        json: {
          id: accountId,
          name,
          credit_microcents: credit ?? 0n,
          key: key === undefined ? null : { id: key.keyId, key: key.key },
          owner: owner ?? null,
        },
        lines: [
          accountId,
          ...(credit === undefined ? [] : [`credit   ${dollars(credit)}`]),
          ...(key === undefined ? [] : [`key      ${key.key}`]),
          ...(owner === undefined ? [] : [`owner    ${owner.invitation_url}`]),
        ],
        notes,
      };
    },
  }),
  ...(
    [
      ['suspend', 'suspend_account', 'refuse all keys of an account at once; their running requests are cut'],
      ['revive', 'revive_account', 'accept the keys of a suspended account again'],
    ] as const
  ).map(([name, kind, about]) =>
    changes({
      name,
      about,
      takes: [accountWord, option('--reason <text>', 'reason, for the audit log')],
      ask: ({ reason }: { readonly reason?: string }, [accountId]) => ({ kind, accountId, reason }),
      done: ({ accountId, status }) => ({
        json: { id: accountId, status },
        lines: [
          status === 'suspended'
            ? `${accountId} is suspended: its keys are refused, and their running requests were cut.`
            : `${accountId} is active again.`,
        ],
      }),
    }),
  ),
  {
    name: 'export',
    about: 'print all data of an account, as JSON',
    takes: [accountWord],
    run: async (context: Context, _options: object, accountId: string) => {
      const [{ exportAccount }, { reading }] = await Promise.all([
        import('../../accounts/export-account.ts'),
        import('../database.ts'),
      ]);
      await reading(context, async ({ repositories }) => {
        const account = await repositories.getAccount({ accountId });
        if (account === undefined || account.isSystem)
          throw await refused(`There is no account ${accountId}. List them with: tokenhouse accounts list`);
        for await (const piece of exportAccount(accountId, repositories)) await context.print.raw(piece);
      });
      return 0;
    },
  },
  changes({
    name: 'delete',
    about: 'delete an account for good: its keys, people, files and names; the ledger stays',
    takes: [accountWord, option('--forfeit-credit', 'let its remaining credit expire')],
    ask: ({ forfeitCredit }: { readonly forfeitCredit?: boolean }, [accountId]) => ({
      kind: 'delete_account',
      accountId,
      forfeitCredit,
    }),
    done: ({ accountId, forfeitedMicrocents }) => ({
      json: { id: accountId, forfeited_microcents: Number(forfeitedMicrocents) },
      lines: [`${accountId} is deleted. Its ledger and usage stay, without names.`],
    }),
  }),
  changes({
    name: 'plan',
    about: 'set the plan of an account',
    takes: [word('[plan]', 'which plan'), meantAccount, option('--none', 'no plan')],
    ask: async (
      { account, none }: OfAccount & { readonly none?: boolean },
      [plan]: readonly [string | undefined],
      { config },
    ) => {
      if ((plan === undefined) === (none !== true)) throw await refused('Name a plan, or give --none.');
      if (plan !== undefined && planNamed(plan, config) === undefined) throw await noPlan(plan, config);
      return { kind: 'plan_account', accountId: account, plan };
    },
    done: ({ accountId, plan }) => ({
      json: { account: accountId, plan },
      lines: [
        plan === null
          ? `${accountId} has no plan from now on; running requests continue.`
          : `${accountId} has the plan ${plan} from now on; running requests continue. Create keys that it pays for with: tokenhouse keys create --plan`,
      ],
    }),
  }),
  changes({
    name: 'limit',
    about: 'change the limits of an account; none: those of its plan or of the configuration apply',
    takes: [meantAccount, modelOption, ...rateOptions(orNone)],
    ask: async (options: OfAccount & RateOptions<number | 'none'> & { readonly model?: string }, _words, context) => {
      const { account, concurrency } = options;
      if ([concurrency, ...Object.values(ratesOf(options))].every((limit) => limit === undefined))
        throw await refused('Give at least one limit: tokenhouse accounts limit --help lists them.');
      const concurrencyMax = concurrency === 'none' ? null : concurrency;
      const limits = { concurrencyMax, ...(await ratesAsked(options, context)) };
      return { kind: 'limit_account', accountId: account, limits };
    },
    done: ({ accountId, limits }) => ({
      json: { account: accountId, limits },
      lines: [
        `${accountId} has the limits ${rateWords(limits).join('; ') || 'of its plan and the configuration'} from now on; running requests continue.`,
      ],
    }),
  }),
  changes({
    name: 'tier',
    about: 'set the service tiers of an account',
    takes: [
      option('--default <tier>', 'of requests that name none: priority, default or flex'),
      option(
        '--allow <tier>',
        'a tier that it may use besides default; repeatable; none: no other; all when left out',
        collected,
      ),
      meantAccount,
    ],
    ask: ({
      account,
      default: tier,
      allow,
    }: OfAccount & { readonly default?: string; readonly allow?: readonly string[] }) => ({
      kind: 'tier_account',
      accountId: account,
      tier,
      tiers: allow?.join() === 'none' ? [] : allow,
    }),
    done: ({ accountId, tier, tiers }) => ({
      json: { account: accountId, service_tier: tier, service_tiers: tiers },
      lines: [
        `${accountId} is served in the tier ${tier ?? 'default'} where its requests name none, and may use ${
          tiers === null ? 'all tiers' : ['default', ...tiers.filter((each) => each !== 'default')].join(', ')
        }.`,
      ],
    }),
  }),
  changes({
    name: 'zdr',
    about: 'make every request of an account one with zero data retention',
    takes: [
      word('<whether>', 'required: of every request; optional: of those that ask for it').choices([
        'required',
        'optional',
      ]),
      meantAccount,
    ],
    ask: ({ account }: OfAccount, [whether]) => ({
      kind: 'zdr_account',
      accountId: account,
      required: whether === 'required',
    }),
    done: ({ accountId, required }) => ({
      json: { account: accountId, zdr_required: required },
      lines: [
        required
          ? `${accountId} requires zero data retention from now on: only backends that retain nothing serve its requests; running requests continue.`
          : `${accountId} leaves zero data retention to each request from now on; running requests continue.`,
      ],
    }),
  }),
  changes({
    name: 'alias',
    about: 'give a model another name, for the requests of one account alone',
    takes: [
      word('<name>', 'the name in requests'),
      word('[model]', 'the id of the model'),
      option('--listed', "the account's list of models has a card of this name"),
      option('--answers <what>', 'what answers to requests of this name say')
        .choices(['model', 'alias'])
        .default('model'),
      option('--none', 'remove the name'),
      meantAccount,
    ],
    ask: aliasesAsked,
    done: ({ accountId, aliases }) => ({
      json: { account: accountId, aliases },
      lines: [
        aliases.length === 0
          ? `${accountId} has no names of its own for models from now on.`
          : `${accountId} has these names of its own for models: ${aliases.map(({ name, model }) => `${name} (${model})`).join(', ')}.`,
      ],
    }),
  }),
  billingRow,
  budgetRow('account', 'set the budget of an account for a period, for all its keys together', [
    option(
      '--member <address>',
      'instead of one of its members, by address or id, for all keys in their name together',
    ),
  ]),
  changes({
    name: 'allow',
    about: 'set the models that the keys of an account may use',
    takes: [meantAccount, ...allowOptions],
    ask: async (options: OfAccount & AllowOptions, _words, context) => ({
      kind: 'allow_account',
      accountId: options.account,
      models: await wantedModels(context, options),
    }),
    done: allowed,
  }),
];

interface AliasOptions extends OfAccount {
  readonly listed?: boolean;
  readonly answers: 'model' | 'alias';
  readonly none?: boolean;
}

async function aliasesAsked(
  { account, listed, answers, none }: AliasOptions,
  [name, model]: readonly [string, string?],
  context: Context,
) {
  const [{ conflictOfAliases }, { accountMeant }, { reading }, { readAccountLimits }] = await Promise.all([
    import('../../accounts/account-aliases.ts'),
    import('../../accounts/operation.ts'),
    import('../database.ts'),
    import('../../accounts/key-limits.ts'),
  ]);
  if ((model === undefined) !== (none === true)) throw await refused('Give the id of the model, or --none.');
  const known = await reading(context, async ({ repositories }) => {
    const accountId = await accountMeant(account, repositories);
    return readAccountLimits((await repositories.getAccount({ accountId }))?.limits ?? null).aliases ?? [];
  });
  const others = known.filter((alias) => alias.name.toLowerCase() !== name.toLowerCase());
  if (model === undefined) return { kind: 'alias_account', accountId: account, aliases: others } as const;
  const set = { name, model, listed: listed === true, answers };
  const conflict = conflictOfAliases([set], context.config.models);
  if (conflict !== undefined) throw await refused(conflict.fault);
  return { kind: 'alias_account', accountId: account, aliases: [...others, set] } as const;
}

/** Accounts in the form of GET /v1/admin/accounts. */
export async function accountsWithFigures({ repositories, now }: Reader, limit: number) {
  const { accountsOfServer } = await import('../../account-api/account-object.ts');
  return await accountsOfServer(await repositories.listAccounts({ limit }), repositories, now);
}

const planNamed = (name: string | null, { plans }: Pick<Config, 'plans'>) => plans.find((plan) => plan.name === name);

async function noPlan(name: string, { plans }: Config): Promise<Error> {
  const { suggestion } = await import('../../config/suggestion.ts');
  const names = plans.map((plan) => plan.name);
  const near = suggestion(name, names);
  return await refused(
    `The configuration has no plan ${name}${near === undefined ? '' : `; did you mean ${near}?`}. Its plans: ${names.join(', ') || 'none'}.`,
  );
}
