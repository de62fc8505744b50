import type { Capabilities } from '../../catalog/card-flags.ts';
import type { Model } from '../../catalog/model.ts';
import { ApiError } from '../../platform/errors.ts';
import { continuesLast, efforts } from '../../generation/request.ts';
import type { Effort, GenerationRequest, ReasoningForm, RequestedEffort } from '../../generation/request.ts';
import type { FamilyFlags, Route } from './route.ts';

/**
 * Returns the effort tier at which the model runs (specification §4.2.5(3), (4) and (6)). A model that does not list `none` always reasons:
 * a request to switch reasoning off gets its lowest tier.
 */
export function resolveEffort(
  requested: RequestedEffort | undefined,
  model: Model,
  route: Pick<Route, 'unknownEffort'>,
): Effort {
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

/**
 * Returns the nearest listed tier; ties go down; a tier above `none` becomes `none` only if nothing else is listed (contracts decision 22).
 */
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

/** How much a request reasons, and where its reasoning goes. */
export interface Reasoning {
  readonly effort: Effort;
  readonly reasoningForm: ReasoningForm;
}

/** Derives both from the request, its model's capabilities, and what its API family can carry. Throws `unsupported_value` 400. */
export function reasoningOf(
  asked: Pick<GenerationRequest, 'effort' | 'prompt'>,
  model: Model,
  route: Pick<Route, 'unknownEffort'>,
  flags: Pick<FamilyFlags, 'reasoning'>,
): Reasoning {
  // A text prompt is continued as it is: nothing asks the model to reason, and none of its output is parsed as reasoning.
  if (asked.prompt.type !== 'messages') return { effort: 'none', reasoningForm: 'separate' };
  const { capabilities } = model;
  const requested = resolveEffort(asked.effort, model, route);
  // Reasoning that the API family cannot carry is not generated or, if the model always reasons, not returned.
  const isCarried = flags.reasoning || !capabilities.reasoning;
  // An answer that continues a client's words does not start with reasoning.
  const mayReason = isCarried && !continuesLast(asked.prompt);
  const effort = mayReason ? requested : nearestEffort('none', capabilities.efforts);
  const isReported = isCarried || effort === 'none';
  return { effort, reasoningForm: isReported ? reasoningFormOf(effort, capabilities) : 'hidden' };
}

/** Where the reasoning of an answer goes (§4.2.5(1) and (4), contracts decision 25). */
function reasoningFormOf(effort: Effort, { hidesReasoning, inlinesReasoning }: Capabilities): ReasoningForm {
  if (effort === 'none' && hidesReasoning) return 'hidden';
  return inlinesReasoning ? 'inline' : 'separate';
}
