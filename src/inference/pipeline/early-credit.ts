import type { Caller } from '../../accounts/directory.ts';
import { pricesAt } from '../../billing/account-prices.ts';
import type { Billing } from '../../billing/billing.ts';
import type { Catalog } from '../../catalog/catalog.ts';
import { usableModels } from './access.ts';
import type { Route } from './route.ts';

interface LargeRequest extends Caller {
  readonly route: Route;
  readonly idempotencyKey: string | undefined;
}

/**
 * Refuses an account without any credit with 402 before a large body is read, since it could pay for nothing that the body may ask
 * (docs/decisions/051-memory-of-bodies.md). Not where that may be wrong: counting is free, a repetition is already paid, a plan may pay,
 * and the account may use a model whose input costs nothing.
 */
export function requireSomeCredit(
  request: LargeRequest,
  catalog: Catalog,
  { billing, now }: { readonly billing: Pick<Billing, 'requireSome'>; readonly now: () => number },
): Promise<void> | undefined {
  const { account, key, route, idempotencyKey } = request;
  if (route.kind === 'count' || idempotencyKey !== undefined || key.isPlanKey === true) return undefined;
  const at = now();
  const isFree = usableModels(request, catalog, at).some((model) => pricesAt(model, account.rates, at).input === 0n);
  return isFree ? undefined : billing.requireSome(account.id);
}
