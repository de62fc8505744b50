/** What was charged across accounts, what it cost, and what is left: for the operator alone. */
import { costMicrocents } from '../catalog/pricing.ts';
import type { ModelConfig } from '../config/config.ts';
import { startOfUtcMonth } from '../platform/calendar/months.ts';
import type { Repositories } from '../store/repositories/repositories.ts';
import type { UsageSum } from '../store/repositories/usage-totals.ts';
import { wholeOf } from './wire.ts';

export const revenueGroups = ['model', 'account', 'tier', 'month'] as const;
export type RevenueGroup = (typeof revenueGroups)[number];

/** Months of a report by month, that of `from` the last. */
const monthsShown = 12;

export interface Revenue {
  /** Id of the model or the account, the service tier, or the month: `2027-06`. */
  readonly group: string;
  /** The name of the account; null for other groups and an account without one. */
  readonly name: string | null;
  readonly requests: number;
  readonly prompt_tokens: number;
  readonly cached_tokens: number;
  readonly completion_tokens: number;
  /** What was charged; refunds are not subtracted. */
  readonly revenue_microcents: number;
  /** List price of what was not charged: answers that failed or were refused in the middle. */
  readonly uncharged_microcents: number;
  /** At the `costs` that the models have now; null if one of its models has none. */
  readonly cost_microcents: number | null;
  readonly margin_microcents: number | null;
}

interface Span {
  /** A calendar month in UTC: milliseconds since 1970, the end exclusive. */
  readonly from: number;
  readonly to: number;
}

/** The largest revenue first, months in their order. Rejects as `sumUsage`. */
export async function revenueOf(
  repositories: Repositories,
  models: readonly ModelConfig[],
  { from, to, by }: Span & { readonly by: RevenueGroup },
): Promise<readonly Revenue[]> {
  const costOf = costsOf(models);
  if (by === 'month') {
    const rows: Revenue[] = [];
    for (let back = monthsShown - 1; back >= 0; back--) {
      const [start, end] = [startOfUtcMonth(from, -back), startOfUtcMonth(from, 1 - back)];
      const sums = await repositories.sumUsage({ from: start, to: end, by: ['model'] });
      const name = new Date(start).toISOString().slice(0, 7);
      rows.push(
        ...addedUp(
          sums.map((sum) => ({ group: name, model: sum.groups[0]!, sum })),
          costOf,
        ),
      );
    }
    return rows;
  }
  const sums = await repositories.sumUsage({ from, to, by: ['model', ...(by === 'model' ? [] : [by])] });
  const parts = sums.map((sum) => ({ group: sum.groups.at(-1)!, model: sum.groups[0]!, sum }));
  const rows = addedUp(parts, costOf).toSorted((a, b) => b.revenue_microcents - a.revenue_microcents);
  return by === 'account' ? await named(rows, repositories) : rows;
}

const namedAtOnce = 1_000;

async function named(
  rows: readonly Revenue[],
  repositories: Pick<Repositories, 'namesOfAccounts'>,
): Promise<readonly Revenue[]> {
  const names = new Map<string, string>();
  for (let from = 0; from < rows.length; from += namedAtOnce) {
    const accountIds = rows.slice(from, from + namedAtOnce).map(({ group }) => group);
    for (const { id, name } of await repositories.namesOfAccounts({ accountIds })) names.set(id, name);
  }
  return rows.map((row) => ({ ...row, name: names.get(row.group) || null }));
}

/** The calendar month in UTC of a time. */
export const monthOf = (ms: number): Span => ({ from: startOfUtcMonth(ms), to: startOfUtcMonth(ms, 1) });

type CostOf = (model: string, sum: UsageSum) => bigint | undefined;

function costsOf(models: readonly ModelConfig[]): CostOf {
  const costs = new Map(models.map((model) => [model.id, model.costs]));
  return (model, sum) => {
    const prices = costs.get(model);
    return prices === undefined ? undefined : costMicrocents(sum, prices);
  };
}

interface Part {
  readonly group: string;
  readonly model: string;
  readonly sum: UsageSum;
}

function addedUp(parts: readonly Part[], costOf: CostOf): readonly Revenue[] {
  const groups = new Map<string, Part[]>();
  for (const part of parts) {
    const found = groups.get(part.group);
    if (found === undefined) groups.set(part.group, [part]);
    else found.push(part);
  }
  return [...groups].map(([group, own]) => {
    const count = (read: (sum: UsageSum) => number): number => own.reduce((all, { sum }) => all + read(sum), 0);
    const amount = (read: (sum: UsageSum) => bigint): bigint => own.reduce((all, { sum }) => all + read(sum), 0n);
    const revenue = amount(({ costMicrocents: charged }) => charged);
    let cost: bigint | undefined = 0n;
    for (const { model, sum } of own) {
      const part = costOf(model, sum);
      cost = cost === undefined || part === undefined ? undefined : cost + part;
    }
    return {
      group,
      name: null,
      requests: count(({ requests }) => requests),
      prompt_tokens: count(({ promptTokens }) => promptTokens),
      cached_tokens: count(({ cachedTokens }) => cachedTokens),
      completion_tokens: count(({ completionTokens }) => completionTokens),
      revenue_microcents: wholeOf(revenue),
      uncharged_microcents: wholeOf(amount(({ unchargedMicrocents }) => unchargedMicrocents)),
      cost_microcents: cost === undefined ? null : wholeOf(cost),
      margin_microcents: cost === undefined ? null : wholeOf(revenue - cost),
    };
  });
}
