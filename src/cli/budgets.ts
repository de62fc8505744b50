import type { Option } from 'commander';

import type { AccountObject } from '../account-api/account-object.ts';
import type { KeyObject } from '../account-api/key-object.ts';
import type { Budgeted, BudgetInput } from '../accounts/budget.ts';
import { dollars } from '../platform/dollars.ts';
import type { BudgetPeriod } from '../store/budget.ts';
import type { Context } from './context.ts';
import type { Reader } from './database.ts';
import { option, word } from './command-row.ts';
import type { CommandRow } from './command-row.ts';
import { dollarsToMicrocents } from './option.ts';

const budgetPeriods: readonly BudgetPeriod[] = ['day', 'week', 'month', 'total'];

export const periodOption = (flags: string): Option =>
  option(flags, 'the period; weeks begin on Monday, all periods at midnight UTC')
    .choices(budgetPeriods)
    .default('month');

export const inputOf = (microcents: bigint, per: BudgetPeriod): BudgetInput => ({
  microcents: String(microcents),
  per,
});

interface BudgetOptions {
  readonly per: BudgetPeriod;
  readonly none?: boolean;
  /** A member of the account, by address or id. */
  readonly member?: string;
  readonly model?: string;
}

/** Sets, replaces or removes the budget of a key, an account or one of its members. */
export const budgetRow = (of: 'key' | 'account', about: string, more: CommandRow['takes'] = []): CommandRow => ({
  name: 'budget',
  about,
  takes: [
    word(`<${of}-id>`, `id of the ${of}, from ${of}s list`),
    word('[dollars]', 'the amount, for example 10.00', dollarsToMicrocents),
    periodOption('--per <period>'),
    option('--none', 'no budget'),
    option('--model <model>', 'a budget for this model alone, in addition to the one for all'),
    ...more,
  ],
  run: async (
    context: Context,
    { per, none, member: named, model: modelNamed }: BudgetOptions,
    id: string,
    amount?: bigint,
  ) => {
    const [{ OperationError }, { reading, writing }] = await Promise.all([
      import('../accounts/operation.ts'),
      import('./database.ts'),
    ]);
    if ((amount === undefined) === (none !== true)) throw new OperationError('Give an amount in dollars, or --none.');
    const budget = amount === undefined ? undefined : inputOf(amount, per);
    const member = named === undefined ? undefined : await reading(context, (reader) => memberNamed(reader, id, named));
    if (named !== undefined && member === undefined)
      throw new OperationError(`The account ${id} has no member ${named}.`);
    if (member !== undefined && modelNamed !== undefined)
      throw new OperationError('A member has no budgets of single models: give --member or --model.');
    const model = modelNamed === undefined ? undefined : await modelMeant(context, modelNamed, none === true);
    const answer = await writing(
      context,
      member !== undefined
        ? { kind: 'budget_member', accountId: id, userId: member.userId, budget }
        : of === 'key'
          ? { kind: 'budget_key', keyId: id, model, budget }
          : { kind: 'budget_account', accountId: id, model, budget },
    );
    const shown = budgetSet(answer);
    const name = member?.email ?? answer.id;
    const on = answer.model === null ? '' : ` on ${answer.model}`;
    const json = {
      id: member?.userId ?? answer.id,
      ...(answer.model === null ? {} : { model: answer.model }),
      budget: shown === undefined ? null : budgetJson(shown),
    };
    context.print.result(json, [
      shown === undefined
        ? `${name} has no budget${on === '' ? '' : ` of its own${on}`} from now on.`
        : `${name} may spend ${inWords(shown)}${on} from now on; running requests continue. ` +
          `${dollars(shown.spentMicrocents)} is spent${renewal(shown)}.`,
    ]);
    return 0;
  },
});

/** The budget of a model that is gone can still be removed. */
async function modelMeant(context: Context, named: string, isRemoved: boolean): Promise<string> {
  if (isRemoved) return named;
  const { configuredModels } = await import('./configured-model.ts');
  return configuredModels(context, [named])[0]!;
}

async function memberNamed({ repositories }: Reader, accountId: string, named: string) {
  for (let after: string | undefined; ;) {
    const page = await repositories.listMembers({ accountId, limit: 100, after });
    const found = page.find(({ userId, email }) => userId === named || email === named.toLowerCase());
    after = page.at(-1)?.userId;
    if (found !== undefined || after === undefined) return found;
  }
}

/** A budget in its current period. */
interface Shown {
  readonly amountMicrocents: bigint;
  readonly per: BudgetPeriod;
  readonly spentMicrocents: bigint;
  readonly heldMicrocents: bigint;
  /** Milliseconds since 1970; null: never. */
  readonly renewsAt: number | null;
}

const budgetSet = ({ budget, spentMicrocents, renewsAt }: Budgeted): Shown | undefined =>
  budget === null
    ? undefined
    : {
        amountMicrocents: BigInt(budget.microcents),
        per: budget.per,
        spentMicrocents: BigInt(spentMicrocents),
        heldMicrocents: 0n,
        renewsAt,
      };

const budgetJson = (budget: Shown) => ({
  amount_microcents: budget.amountMicrocents,
  per: budget.per,
  spent_microcents: budget.spentMicrocents,
  held_microcents: budget.heldMicrocents,
  left_microcents: leftOf(budget),
  renews_at: budget.renewsAt === null ? null : new Date(budget.renewsAt).toISOString(),
});

/** The budget cell in the list of keys, whose figures include their cost in a period. */
export function keyBudget(key: KeyObject): string {
  return withModels(keyBudgetOfAll(key), key);
}

function keyBudgetOfAll(key: KeyObject): string | undefined {
  if (key.limit_microcents === null) return undefined;
  const [per, spent] = (
    {
      daily: ['day', key.usage_daily],
      weekly: ['week', key.usage_weekly],
      monthly: ['month', key.usage_monthly],
      never: ['total', key.usage],
    } as const
  )[key.limit_reset ?? 'never'];
  return budgetCell({
    amountMicrocents: BigInt(key.limit_microcents),
    per,
    spentMicrocents: BigInt(spent),
    heldMicrocents: 0n,
    renewsAt: key.limit_resets_at === null ? null : key.limit_resets_at * 1000,
  });
}

/** The budget cell in the list of accounts. */
export function accountBudget(account: AccountObject): string {
  const { spend_limit: limit } = account;
  const ofAll =
    limit === null
      ? undefined
      : budgetCell({
          amountMicrocents: BigInt(limit.threshold_microcents),
          per: limit.interval ?? 'total',
          spentMicrocents: BigInt(limit.spent_microcents),
          heldMicrocents: BigInt(limit.held_microcents),
          renewsAt: limit.resets_at === null ? null : limit.resets_at * 1000,
        });
  return withModels(ofAll, account);
}

const periodOfReset = { daily: 'day', weekly: 'week', monthly: 'month' } as const;

/** With the budgets of single models: `…; on demo: $1.00 a month: …`. */
function withModels(
  ofAll: string | undefined,
  { budgets_by_model: budgets }: Pick<KeyObject, 'budgets_by_model'>,
): string {
  const ofModels = budgets.flatMap(({ model, limit_microcents: amount, limit_remaining_microcents: left, ...limit }) =>
    amount === null || left === null
      ? []
      : [
          `on ${model}: ${budgetCell({
            amountMicrocents: BigInt(amount),
            per: limit.limit_reset === null ? 'total' : periodOfReset[limit.limit_reset],
            spentMicrocents: BigInt(amount - left),
            heldMicrocents: 0n,
            renewsAt: limit.limit_resets_at === null ? null : limit.limit_resets_at * 1000,
          })}`,
        ],
  );
  return [...(ofAll === undefined ? [] : [ofAll]), ...ofModels].join('; ') || '–';
}

/** `$10.00 a month: $2.50 spent, $0.10 held, $7.40 left, renews 2026-12-01`. */
function budgetCell(budget: Shown): string {
  const { spentMicrocents, heldMicrocents } = budget;
  const held = heldMicrocents === 0n ? '' : `, ${dollars(heldMicrocents)} held`;
  return `${inWords(budget)}: ${dollars(spentMicrocents)} spent${held}, ${dollars(leftOf(budget))} left${renewal(budget)}`;
}

function leftOf({ amountMicrocents, spentMicrocents, heldMicrocents }: Shown): bigint {
  const left = amountMicrocents - spentMicrocents - heldMicrocents;
  return left > 0n ? left : 0n;
}

const inWords = ({ amountMicrocents, per }: Shown): string =>
  `${dollars(amountMicrocents)} ${per === 'total' ? 'in total' : `a ${per}`}`;

/** Periods begin at midnight UTC. */
const renewal = ({ renewsAt }: Shown): string =>
  renewsAt === null ? '' : `, renews ${new Date(renewsAt).toISOString().slice(0, 10)}`;
