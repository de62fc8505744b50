import { tierPricesAt } from '../../billing/account-prices.ts';
import { ApiError } from '../../platform/errors.ts';
import type { GenerationRequest, Prompt } from '../../generation/request.ts';
import type { AnswerFormat } from '../dialects/dialect.ts';
import { check } from './allow.ts';
import type { Allowed } from './allow.ts';
import type { Call, ServeServices } from './call.ts';
import { imageCount } from './request-images.ts';
import { Fallbacks } from './fallbacks.ts';
import { fit, fitTask, likelyFit, promptTokensLikely } from './fit.ts';
import type { Fitted } from './fit.ts';
import type { Order, Preparation } from './order.ts';
import { count, needsWork, prepare } from './prepare.ts';
import { tierFor } from './service-tier.ts';
import type { StopSignal } from '../../platform/stop-signal.ts';
import { largerModels } from './too-long.ts';
import { withWarning } from './warnings.ts';

/**
 * Makes an order of an allowed request: who pays, and how long the answer may be (contracts decision 10, "lengths"), as far as that is
 * cheap. Some orders get a preparation: work that is done once the request has a slot and credit. Throws `ApiError`, and a promise rejects
 * with it.
 */
export function placeOrder(
  allowed: Allowed<AnswerFormat>,
  call: Call,
  services: ServeServices,
): Order | Promise<Order> {
  const plan = services.limits.coveringPlan(call) ?? null; // 403
  const placed = (fitted: Fitted | undefined): Order =>
    fitted === undefined
      ? unpreparedOrder(allowed, plan, call, services)
      : orderOf(allowed, fitted, plan, call, fallbacksOf(allowed, call, services, call.signal));
  const fitting = needsWork(allowed) ? undefined : fitAllowed(allowed, call, undefined);
  return fitting instanceof Promise ? fitting.then(placed) : placed(fitting);
}

/** The order before its work is done: its prompt lacks its files, its form is not compiled, and its lengths are estimates. */
function unpreparedOrder(
  allowed: Allowed<AnswerFormat>,
  plan: Order['plan'],
  call: Call,
  services: ServeServices,
): Order {
  const { asked, model, request, images } = allowed;
  const fitted = likelyFit({ ...asked, prompt: request.prompt }, model, call.route, images);
  return orderOf(allowed, fitted, plan, call, undefined, preparationOf(allowed, plan, call, services));
}

function preparationOf(
  allowed: Allowed<AnswerFormat>,
  plan: Order['plan'],
  call: Call,
  services: ServeServices,
): Preparation {
  // Handed over once: otherwise its files would stay in memory as long as the order.
  let left: Allowed<AnswerFormat> | undefined = allowed;
  const taken = (): Allowed<AnswerFormat> => {
    const all = left;
    left = undefined;
    if (all === undefined) throw new Error('an order is prepared once');
    return all;
  };
  return {
    run: async (signal) => {
      const prepared = await prepare(taken(), call, services, signal);
      const fitted = await fitCounted(prepared, call, services, signal);
      return orderOf(prepared, fitted, plan, call, fallbacksOf(prepared, call, services, signal));
    },
  };
}

/** `undefined` for a model without fallbacks, and for tasks: vectors of another model are no substitute. */
function fallbacksOf(
  { asked, format, model }: Allowed<AnswerFormat>,
  call: Call,
  services: ServeServices,
  signal: StopSignal,
): Fallbacks | undefined {
  if (model.fallback === undefined || asked.task !== undefined) return undefined;
  return new Fallbacks(model.fallback, (id, instead) =>
    orderInstead({ ...asked, model: id }, format, instead, call, services, signal),
  );
}

/**
 * Makes an order for the same request on another model, with every check of that model. Throws `ApiError` also if the answer would be less
 * than the first model promised: without the images, shorter, or with fewer choices.
 */
async function orderInstead(
  asked: GenerationRequest,
  format: AnswerFormat,
  instead: Order,
  call: Call,
  services: ServeServices,
  signal: StopSignal,
): Promise<Order> {
  const prepared = await prepare(await check(asked, format, call, services), call, services, signal);
  const { model, request } = prepared;
  const lesser = (what: string, param: string): ApiError =>
    new ApiError('unsupported_feature', `The model '${model.id}' ${what}.`, { param });
  if (imageCount(asked.prompt) > 0 && !call.route.flags(model.capabilities).vision)
    throw lesser('sees no images', asked.at.prompt);
  if (promptsIn(request.prompt) * request.choices < instead.choices) throw lesser('writes one choice', 'n');
  const fitted = await fitCounted(prepared, call, services, signal);
  if (asked.maxTokens !== undefined && fitted.maxTokens < instead.request.maxTokens)
    throw lesser('writes shorter answers', 'max_tokens');
  // Images that the first model does not take were removed before this one was asked.
  const warnings = instead.warnings?.includes('images_removed')
    ? withWarning(prepared.warnings, 'images_removed')
    : prepared.warnings;
  const order = orderOf({ ...prepared, warnings }, fitted, instead.plan, call, undefined);
  // A downgrade is never dearer than what was asked for.
  if (instead.tier === 'flex' && order.tier !== 'flex') throw lesser('has no service tier flex', 'service_tier');
  return order;
}

/** Counts one prompt of a request. */
type CountOne = (only: Prompt) => Promise<number | 'too-long' | undefined>;

/** Returns the lengths of a request; counts its prompt if they depend on it. */
async function fitCounted(
  prepared: Allowed<AnswerFormat>,
  call: Call,
  services: ServeServices,
  signal: StopSignal,
): Promise<Fitted> {
  const fitted = await fitAllowed(prepared, call, (only) => count(prepared, call, services, signal, only));
  if (fitted === undefined) throw new Error('what has been counted is decided');
  return fitted;
}

/** The same; `undefined` if a count would be needed and `countOne` is `undefined`. */
function fitAllowed(
  { asked, model, request, images }: Allowed<AnswerFormat>,
  call: Call,
  countOne: CountOne | undefined,
): Fitted | undefined | Promise<Fitted | undefined> {
  const { at, task, maxTokens } = asked;
  const { prompt, tools, effort } = request;
  const larger = () => largerModels(model, call, call.lease.runtimeConfig.catalog);
  if (task !== undefined) return fitTask({ prompt, at, task }, model, countOne, larger);
  // §4.2.1(5)
  const reasoningRoomTokens = effort === 'none' ? 0 : model.capabilities.reasoningRoomTokens;
  return fit({ prompt, tools, maxTokens, reasoningRoomTokens, at }, model, call.route, countOne, larger, images);
}

function orderOf(
  { asked, format, model, tags, request, images, warnings }: Allowed<AnswerFormat>,
  fitted: Fitted,
  plan: Order['plan'],
  call: Call,
  fallbacks: Order['fallbacks'],
  preparation?: Preparation,
): Order {
  const { maxTokens, reasoningRoomTokens, promptTokens, counted } = fitted;
  const choices = promptsIn(request.prompt) * request.choices;
  const tier = tierFor(asked.tier, model, call);
  const { prices, multiple } = tierPricesAt(model, tier, call.account.rates, call.startedAt);
  // All names in one literal: after a spread, each further field is set on a larger copy of the object (33 µs instead of 7).
  return {
    id: call.id,
    idHex: call.idHex,
    publicId: call.publicId,
    clientId: call.clientId,
    startedAt: call.startedAt,
    begunMs: call.begunMs,
    account: call.account,
    key: call.key,
    zdr: call.zdr,
    batchId: call.batchId,
    route: call.route,
    catalog: call.lease.runtimeConfig.catalog,
    format,
    model,
    plan,
    prices,
    priceMultiple: multiple,
    stream: asked.stream,
    tier,
    tierAsked: asked.tier !== undefined,
    tags,
    at: asked.at,
    request: { ...request, maxTokens, reasoningRoomTokens, tier },
    choices,
    completionTokensMax: (maxTokens + reasoningRoomTokens) * choices,
    promptTokensMax: promptTokens,
    promptTokensLikely: counted ? promptTokens : promptTokensLikely(promptTokens - images.most) + images.likely,
    promptCounted: counted,
    promptTokensPossible: fitted.promptTokensPossible,
    limitedByContext: fitted.limitedByContext,
    imageTokens: images,
    warnings,
    fallbacks,
    preparation,
  };
}

/** Each prompt is answered separately. */
const promptsIn = (prompt: Prompt): number => (prompt.type === 'messages' ? 1 : prompt.prompts.length);
