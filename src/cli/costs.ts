import { dollars } from '../platform/dollars.ts';
import type { Context } from './context.ts';
import { reading } from './database.ts';
import { table } from './output.ts';

export interface CostsOptions {
  readonly by: 'model' | 'key' | 'account' | 'day' | 'tag';
  readonly account?: string;
  readonly days: number;
}

const hourMs = 3_600_000;
const dayMs = 24 * hourMs;

export async function showCosts(context: Context, { by, account, days }: CostsOptions): Promise<number> {
  const sums = await reading(context, async (repositories, _db, now) => {
    const to = (await now()) + 1;
    // Full hours: of old requests, sums are kept by the hour.
    const from = Math.floor((to - days * dayMs) / hourMs) * hourMs;
    const span = { from, to, ...(account === undefined ? {} : { accountId: account }) };
    return by === 'tag' ? await repositories.sumUsageByTag(span) : await repositories.sumUsage({ ...span, by });
  });
  const nameOf = (group: string): string => (by === 'day' ? new Date(Number(group)).toISOString().slice(0, 10) : group);
  context.print.result(
    sums.map((sum) => ({
      [by]: nameOf(sum.group),
      requests: sum.requests,
      prompt_tokens: sum.promptTokens,
      cached_tokens: sum.cachedTokens,
      completion_tokens: sum.completionTokens,
      reasoning_tokens: sum.reasoningTokens,
      cost_microcents: sum.costMicrocents,
      uncharged_microcents: sum.unchargedMicrocents,
    })),
    table(
      [by, 'requests', 'prompt', 'cached', 'output', 'cost'],
      sums.map((sum) => [
        nameOf(sum.group),
        sum.requests,
        sum.promptTokens,
        sum.cachedTokens,
        sum.completionTokens,
        dollars(sum.costMicrocents),
      ]),
    ),
  );
  return 0;
}
