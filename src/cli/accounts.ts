import type { AccountMade } from '../accounts/create-account.ts';
import { exportAccount } from '../accounts/export-account.ts';
import { readAccountLimits } from '../accounts/key-limits.ts';
import { OperationError } from '../accounts/operation.ts';
import { dollars } from '../platform/dollars.ts';
import { publicUrl } from '../config/public-url.ts';
import { suggestion } from '../config/suggestion.ts';
import { askForStatus, askService } from '../app/control/control-client.ts';
import { controlSocketPath } from '../app/control/socket-path.ts';
import { budgetCell, budgetJson, readBudgets } from './budgets.ts';
import type { Context } from './context.ts';
import { reading, writing } from './database.ts';
import { table } from './output.ts';

export async function listAccounts(context: Context): Promise<number> {
  const [accounts, budgets] = await reading(context, async (repositories, _db, now) => {
    const found = await repositories.listAccounts({ limit: 1000 });
    return [found, await readBudgets(repositories, found, await now())] as const;
  });
  const { concurrencyPerAccountMax } = context.config.server.limits;
  const planOf = (name: string | null) => context.config.plans.find((plan) => plan.name === name);
  context.print.result(
    accounts.map(({ id, name, status, plan, limits, models, createdAt }) => ({
      id,
      name,
      status,
      plan,
      limits: {
        max_concurrency: readAccountLimits(limits).concurrencyMax ?? null,
        zdr_required: readAccountLimits(limits).zdrRequired ?? false,
      },
      budget: budgetJson(budgets.get(id)),
      models,
      created_at: new Date(createdAt).toISOString(),
    })),
    table(
      ['id', 'name', 'status', 'plan', 'may run', 'models', 'budget', 'created'],
      accounts.map(({ id, name, status, plan, limits, models, createdAt }) => [
        id,
        name,
        status,
        plan === null ? '-' : planOf(plan) === undefined ? `${plan} (not configured)` : plan,
        readAccountLimits(limits).concurrencyMax ?? planOf(plan)?.concurrencyMax ?? concurrencyPerAccountMax,
        models === null ? 'all' : models.join(' '),
        budgetCell(budgets.get(id)),
        new Date(createdAt).toISOString(),
      ]),
    ),
  );
  return 0;
}

interface CreateOptions {
  readonly name?: string;
  readonly owner?: string;
  /** In microcents, from the option's reader. */
  readonly credit?: bigint;
  /** true: without a name. */
  readonly key?: string | true;
}

/** Creates a customer who can begin: everything requested or, when a part of it is refused, nothing. */
export async function createAccount(context: Context, options: CreateOptions, named?: string): Promise<number> {
  const { print } = context;
  if ((named === undefined) === (options.name === undefined))
    throw new OperationError('Name the account once: tokenhouse accounts create "Example Ltd"');
  const answer = await writing(context, {
    kind: 'create_account',
    name: (named ?? options.name)!,
    ownerEmail: options.owner,
    creditMicrocents: options.credit === undefined ? undefined : String(options.credit),
    keyName: options.key === true ? 'first key' : options.key,
  });
  const { accountId, name, key, invitation } = answer;
  const owner = invitation === undefined ? undefined : await invite(context, accountId, invitation);
  const credit = answer.creditMicrocents === undefined ? undefined : BigInt(answer.creditMicrocents);
  print.result(
    {
      id: accountId,
      name,
      credit_microcents: credit ?? 0n,
      key: key === undefined ? null : { id: key.keyId, key: key.key },
      owner: owner ?? null,
    },
    [
      accountId,
      ...(credit === undefined ? [] : [`credit   ${dollars(credit)}`]),
      ...(key === undefined ? [] : [`key      ${key.key}`]),
      ...(owner === undefined ? [] : [`owner    ${owner.invitation_url}`]),
    ],
  );
  if (print.json) return 0;
  if (key !== undefined) print.say('The key is shown once; the database keeps only a keyed hash.');
  if (owner !== undefined)
    print.say(
      `The link makes ${owner.email} the owner. It works once, within seven days. ${owner.is_mailed ? 'It is also sent by mail.' : 'It is not mailed: pass it on yourself.'}`,
    );
  if (key === undefined && credit === undefined)
    print.say(
      `The account has no key and no credit yet: tokenhouse keys create --account ${accountId}, and tokenhouse credits grant --account ${accountId} --dollars 5.00`,
    );
  return 0;
}

/** The owner's invitation link, which the running service mails where it can. */
async function invite(
  { config, print }: Context,
  accountId: string,
  { email, token, expiresAt }: NonNullable<AccountMade['invitation']>,
) {
  const socket = controlSocketPath(config.storage.directory);
  const status = await askForStatus(socket).catch(() => undefined);
  const accountUrl = (status === 'other' ? undefined : status?.accountUrl) ?? publicUrl(config.server.account);
  let isMailed = false;
  if (status !== undefined && config.mail.smtp !== undefined) {
    try {
      isMailed = (await askService(socket, { kind: 'invite', accountId, email, token })) !== undefined;
    } catch (error) {
      print.say(`The mail could not be queued: ${error instanceof Error ? error.message : String(error)}`);
    }
  }
  return {
    email,
    invitation_url: `${accountUrl}/invitation#${token}`,
    expires_at: new Date(expiresAt).toISOString(),
    is_mailed: isMailed,
  };
}

/** Everything that the service has of an account, as JSON on standard output. */
export async function exportAccountData(context: Context, accountId: string): Promise<number> {
  await reading(context, async (repositories) => {
    const account = await repositories.getAccount({ accountId });
    if (account === undefined || account.isSystem)
      throw new OperationError(`There is no account ${accountId}. List them with: tokenhouse accounts list`);
    for await (const piece of exportAccount(accountId, repositories)) await context.print.raw(piece);
  });
  return 0;
}

export async function deleteAccount(
  context: Context,
  { forfeitCredit }: { readonly forfeitCredit?: boolean },
  accountId: string,
): Promise<number> {
  const answer = await writing(context, { kind: 'delete_account', accountId, forfeitCredit });
  context.print.result({ id: answer.accountId, forfeited_microcents: Number(answer.forfeitedMicrocents) }, [
    `${answer.accountId} is deleted. Its ledger and usage stay, without names.`,
  ]);
  return 0;
}

export async function setAccountStatus(
  context: Context,
  kind: 'suspend_account' | 'revive_account',
  accountId: string,
  reason: string | undefined,
): Promise<number> {
  const answer = await writing(context, { kind, accountId, reason });
  context.print.result({ id: answer.accountId, status: answer.status }, [
    answer.status === 'suspended'
      ? `${answer.accountId} is suspended: its keys are refused, and their running requests were cut.`
      : `${answer.accountId} is active again.`,
  ]);
  return 0;
}

interface PlanOptions {
  readonly account?: string;
  readonly none?: boolean;
}

/** Sets an account's plan to one of the configuration, or removes it. */
export async function planAccount(context: Context, options: PlanOptions, named?: string): Promise<number> {
  if ((named === undefined) === (options.none !== true)) throw new OperationError('Name a plan, or give --none.');
  const plans = context.config.plans.map(({ name }) => name);
  if (named !== undefined && !plans.includes(named)) {
    const near = suggestion(named, plans);
    throw new OperationError(
      `The configuration has no plan ${named}${near === undefined ? '' : `; did you mean ${near}?`}. Its plans: ${plans.join(', ') || 'none'}.`,
    );
  }
  const answer = await writing(context, { kind: 'plan_account', accountId: options.account, plan: named });
  context.print.result({ account: answer.accountId, plan: answer.plan }, [
    answer.plan === null
      ? `${answer.accountId} has no plan from now on; running requests continue.`
      : `${answer.accountId} has the plan ${answer.plan} from now on; running requests continue. Create keys that it pays for with: tokenhouse keys create --plan`,
  ]);
  return 0;
}

interface LimitOptions {
  readonly account?: string;
  /** `none`: the limit of its plan or of the configuration. */
  readonly concurrency: number | 'none';
}

export async function limitAccount(context: Context, options: LimitOptions): Promise<number> {
  const answer = await writing(context, {
    kind: 'limit_account',
    accountId: options.account,
    concurrencyMax: options.concurrency === 'none' ? undefined : options.concurrency,
  });
  const { accountId, concurrencyMax } = answer;
  context.print.result({ account: accountId, max_concurrency: concurrencyMax }, [
    concurrencyMax === null
      ? `${accountId} may run as many requests as its plan or the configuration allows; running requests continue.`
      : `${accountId} may run ${concurrencyMax} requests at the same time from now on; running requests continue.`,
  ]);
  return 0;
}

export async function requireZdr(
  context: Context,
  { account }: { readonly account?: string },
  isRequired: boolean,
): Promise<number> {
  const { accountId, required } = await writing(context, {
    kind: 'zdr_account',
    accountId: account,
    required: isRequired,
  });
  context.print.result({ account: accountId, zdr_required: required }, [
    required
      ? `${accountId} requires zero data retention from now on: only backends that retain nothing serve its requests; running requests continue.`
      : `${accountId} leaves zero data retention to each request from now on; running requests continue.`,
  ]);
  return 0;
}
