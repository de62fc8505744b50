import { pricesAt } from '../../billing/account-prices.ts';
import type { Bill } from '../../billing/bill.ts';
import type { Model } from '../../catalog/model.ts';
import { allow } from './allow.ts';
import type { Call, ServeServices } from './call.ts';
import { contextLengthExceeded, promptTokenBound } from './fit.ts';
import { count, prepare } from './prepare.ts';
import { hasFiles } from './resolve.ts';
import type { CountingRoute } from './route.ts';
import { largerModels } from './too-long.ts';

/**
 * Counts the tokens of a request's input as they would be charged, with every check that the request itself would undergo. Images that
 * would be fetched are estimated. Throws `ApiError`.
 */
export async function countInput(json: unknown, call: Call<CountingRoute>, services: ServeServices): Promise<string> {
  const allowed = await allow(json, call.route.dialect, call, services);
  const { model, asked, format } = allowed;
  const admitted = await services.limits.admit({ account: call.account, key: call.key, model }, 'count'); // 429
  call.admitted = admitted;
  try {
    // Counting needs no credit, but reading files does, even for a count.
    if (hasFiles(asked.prompt)) await services.billing.check(billOfCount(model, call, services)); // 402
    const prepared = await prepare(allowed, call, services, call.signal);
    call.warnings = prepared.warnings;
    const counted = await count(prepared, call, services, call.signal);
    if (counted === 'too-long') {
      const larger = largerModels(model, call, call.lease.runtimeConfig.catalog);
      throw contextLengthExceeded(model, undefined, 1, larger, asked.at.prompt);
    }
    const { prompt, tools } = prepared.request;
    const tokens =
      counted ?? call.lease.poolOf(model.id).promptLengths.likely(call.account.id, promptTokenBound(prompt, tools));
    return format.encodeCount(tokens + prepared.images.likely);
  } finally {
    admitted.end();
  }
}

/** The cost of the shortest possible request. */
const billOfCount = (model: Model, call: Call<CountingRoute>, { limits }: ServeServices): Bill => ({
  id: call.id,
  account: call.account,
  key: call.key,
  startedAt: call.startedAt,
  model,
  plan: limits.coveringPlan(call) ?? null,
  prices: pricesAt(model, call.account.rates, call.startedAt),
  promptTokensMax: 1,
  completionTokensMax: 0,
});
