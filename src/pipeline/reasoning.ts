import type { Model } from '../catalog/model.ts';
import { ApiError } from '../errors.ts';
import { efforts } from '../generation/request.ts';
import type { Effort, RequestedEffort } from '../generation/request.ts';
import type { InferenceRoute } from './route.ts';

/** The tier at which the model runs (specification §4.2.5(3), (4) and (6)). */
export function resolveEffort(requested: RequestedEffort | undefined, model: Model, route: InferenceRoute): Effort {
  const { efforts: listed, defaultEffort } = model.capabilities;
  if (requested === undefined) return defaultEffort;
  if (requested.type === 'switch') {
    if (!requested.on) return nearestEffort('none', listed);
    return defaultEffort === 'none' ? (listed.find((effort) => effort !== 'none') ?? 'none') : defaultEffort;
  }
  const tier = efforts.find((effort) => effort === requested.value);
  if (tier !== undefined) return nearestEffort(tier, listed);
  if (route.unknownEffort === 'off') return nearestEffort('none', listed);
  throw new ApiError('unsupported_value', `'${requested.at}' must be one of ${efforts.join(', ')}.`, {
    param: requested.at,
  });
}

/** Distance in the order of the tiers, ties go down; a tier above none becomes none only when nothing else is listed (contracts decision 22). */
export function nearestEffort(wanted: Effort, listed: readonly Effort[]): Effort {
  if (listed.includes(wanted)) return wanted;
  const above = listed.filter((effort) => effort !== 'none');
  const candidates = wanted === 'none' || above.length === 0 ? listed : above;
  const rank = (effort: Effort): number => efforts.indexOf(effort);
  const distance = (effort: Effort): number => Math.abs(rank(effort) - rank(wanted));
  return candidates.reduce<Effort>((best, effort) => {
    const closer = distance(effort) - distance(best);
    return closer < 0 || (closer === 0 && rank(effort) < rank(best)) ? effort : best;
  }, candidates[0] ?? 'none');
}
