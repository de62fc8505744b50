import type { Model } from '../../catalog/model.ts';
import type { AskedTier } from '../../generation/request.ts';
import type { Tier } from '../../generation/tier.ts';
import { ApiError } from '../../platform/errors.ts';
import type { Call } from './call.ts';

/**
 * The tier that a request runs in, and is charged for. One that its model does not have is `default`: no dearer than what was asked for, because
 * there is no other price. Throws `http_403` for one that the caller may not use.
 */
export function tierFor(asked: AskedTier | undefined, model: Pick<Model, 'tiers'>, call: Call): Tier {
  if (call.batchId !== null) return 'batch';
  const { account, key } = call;
  const wanted = asked ?? key.tier ?? account.tier ?? 'default';
  if (wanted === 'default' || model.tiers?.[wanted] === undefined) return 'default';
  if ((account.tiers?.has(wanted) ?? true) && (key.tiers?.has(wanted) ?? true)) return wanted;
  if (asked === undefined) return 'default';
  throw new ApiError('http_403', `This key may not use the service tier '${wanted}'.`, { param: 'service_tier' });
}
