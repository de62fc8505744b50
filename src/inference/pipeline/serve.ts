import type { Caller, Directory } from '../../accounts/directory.ts';
import { presentedKey } from '../../accounts/presented-key.ts';
import { pricesAt } from '../../billing/account-prices.ts';
import type { Bill } from '../../billing/bill.ts';
import type { Model } from '../../catalog/model.ts';
import type { AnswerFormat, Decoded, Dialect, Headers } from '../dialects/dialect.ts';
import { ApiError } from '../../platform/errors.ts';
import type { FieldPaths, GenerationRequest, Prompt } from '../../generation/request.ts';
import { usableModels } from './access.ts';
import type { Call, ServeServices } from './call.ts';
import { imageCount } from './request-images.ts';
import { Fallbacks } from './fallbacks.ts';
import {
  contextLengthExceeded,
  readingTimeExceeded,
  fit,
  fitTask,
  inputTooLong,
  likelyFit,
  promptTokenBound,
  promptTokensLikely,
  retryTokens,
} from './fit.ts';
import type { Fitted } from './fit.ts';
import type { Order, Preparation } from './order.ts';
import { check, count, needsWork, prepare } from './prepare.ts';
import type { Checked, Prepared } from './prepare.ts';
import { hasFiles } from './resolve.ts';
import type { CountingRoute } from './route.ts';
import type { StopSignal } from '../../platform/stop-signal.ts';

/** Specification §5.1 and §5.4; `undefined` when no credentials were sent; `cold`: the key must be read before. */
export function authenticate(headers: Headers, directory: Directory): Caller | 'cold' | undefined {
  const presented = presentedKey(headers);
  if (presented === undefined) return undefined;
  const found = directory.find(presented);
  if (found === 'cold') return found;
  if (found === undefined || found === 'malformed') {
    throw new ApiError(
      'invalid_api_key',
      found === 'malformed'
        ? 'The API key is malformed: check that it was copied completely, without spaces.'
        : 'The API key does not match a live key: it may be revoked, or belong to another server.',
    );
  }
  return found;
}

export function requireCaller(caller: Caller | undefined): Caller {
  if (caller !== undefined) return caller;
  throw new ApiError(
    'missing_api_key',
    'The request carries no API key. Send Authorization: Bearer <key>, or x-api-key: <key>.',
  );
}

/**
 * Specification §4.2.6: only the exact value of the header counts, everything else is refused rather than read kindly. An account
 * that requires zero data retention has it for every request, as if the header were there.
 */
export function zdrRequired(headers: Headers, { account, key }: Caller): boolean {
  const value = headers['service-zdr'];
  if (value === undefined) {
    if (account.zdrRequired === true) return true;
    if (key.access?.zdrOnly !== true) return false;
    throw new ApiError('http_403', 'This key is only for requests with the header Service-ZDR: required.', {
      param: 'Service-ZDR',
    });
  }
  if (value === 'required') return true;
  throw new ApiError('invalid_zdr_header', "The header Service-ZDR must be 'required' or absent.", {
    param: 'Service-ZDR',
  });
}

/**
 * Decides whether a request is accepted, in the order of contracts decision 10 from the required fields to the lengths, as far as
 * that is cheap: from parsed JSON to an order that needs a slot, credit and a backend, and for some a preparation, which is work
 * for who has a slot and credit. Throws `ApiError`.
 */
export async function serve(json: unknown, call: Call, services: ServeServices): Promise<Order> {
  let decoded = call.route.dialect.decodeRequest(json, contextOf(call));
  if (decoded.references.length > 0) decoded = await decodeWithItems(call.route.dialect, json, decoded, call, services);
  const { request: asked, format } = decoded;
  const checked = await check(asked, call, services);
  const plan = services.limits.coveringPlan(call.facts) ?? null; // 403
  const finished = (prepared: Prepared, fitted: Fitted, signal: StopSignal): Order => {
    const fallbacks = fallbacksOf(asked, prepared, format, call, services, signal);
    return orderOf(asked, prepared, fitted, { format, plan, fallbacks }, call);
  };
  if (!needsWork(checked)) {
    const fitting = fitPrepared(asked, checked.likely, call, undefined);
    const fitted = fitting instanceof Promise ? await fitting : fitting;
    if (fitted !== undefined) return finished(checked.likely, fitted, call.signal);
  }
  const work = async (signal: StopSignal): Promise<Order> => {
    const prepared = await prepare(checked, asked, call, services, signal);
    const fitted = await fitCounted(asked, prepared, call, countBy(prepared, call, services, signal));
    return finished(prepared, fitted, signal);
  };
  return unpreparedOrder(asked, checked, { format, plan, fallbacks: undefined }, work, call);
}

/** The order until its work is done: its prompt is without its files, its form is not compiled, and its lengths are guesses. */
function unpreparedOrder(
  asked: GenerationRequest,
  checked: Checked,
  terms: OrderTerms,
  work: Preparation['run'],
  call: Call,
): Order {
  const { likely } = checked;
  const fitted = likelyFit({ ...asked, prompt: likely.prompt }, likely.model, call.route, likely.images);
  // Given away once: what it needs of the request would else stay in memory as long as the order.
  let left: Preparation['run'] | undefined = work;
  const run = (signal: StopSignal): Promise<Order> => {
    const all = left;
    left = undefined;
    if (all === undefined) throw new Error('an order is prepared once');
    return all(signal);
  };
  const preparation = { run };
  return { ...orderOf(asked, likely, fitted, terms, call), preparation };
}

/** `undefined` for a model without fallbacks, and for tasks: vectors of another model are no substitute. */
function fallbacksOf(
  asked: GenerationRequest,
  { model, whole }: Prepared,
  format: AnswerFormat,
  call: Call,
  services: ServeServices,
  signal: StopSignal,
): Fallbacks | undefined {
  if (model.fallback === undefined || asked.task !== undefined) return undefined;
  // The files in `asked` have been read, and would stay in memory as long as the order.
  const request = { ...asked, prompt: whole };
  return new Fallbacks(model.fallback, (id, instead) =>
    orderInstead({ ...request, model: id }, instead, format, call, services, signal),
  );
}

/**
 * The same request for another model, with every check that it would meet there. Throws `ApiError` also where the answer would be
 * less than what the first model promised: without the images, shorter, or with fewer choices.
 */
async function orderInstead(
  asked: GenerationRequest,
  instead: Order,
  format: AnswerFormat,
  call: Call,
  services: ServeServices,
  signal: StopSignal,
): Promise<Order> {
  const checked = await check(asked, call, services);
  const prepared = await prepare(checked, asked, call, services, signal);
  const lesser = (what: string, param: string): ApiError =>
    new ApiError('unsupported_feature', `The model '${prepared.model.id}' ${what}.`, { param });
  if (imageCount(asked.prompt) > 0 && !call.route.flags(prepared.model.capabilities).vision)
    throw lesser('sees no images', asked.at.prompt);
  if (choicesOf(prepared.prompt) * prepared.choices < instead.choices) throw lesser('writes one choice', 'n');
  const fitted = await fitCounted(asked, prepared, call, countBy(prepared, call, services, signal));
  if (asked.maxTokens !== undefined && fitted.maxTokens < instead.request.maxTokens)
    throw lesser('writes shorter answers', 'max_tokens');
  return orderOf(asked, prepared, fitted, { format, plan: instead.plan, fallbacks: undefined }, call);
}

/** Counts one prompt of a request. */
type CountOne = (only: Prompt) => Promise<number | 'too-long' | undefined>;

const countBy =
  (prepared: Prepared, call: Call, services: ServeServices, signal: StopSignal): CountOne =>
  (only) =>
    count(prepared, call, services, signal, only);

/** The lengths of a request (contracts decision 10), with its prompt counted where they depend on it. */
async function fitCounted(
  asked: GenerationRequest,
  prepared: Prepared,
  call: Call,
  countOne: CountOne,
): Promise<Fitted> {
  const fitted = await fitPrepared(asked, prepared, call, countOne);
  if (fitted === undefined) throw new Error('what has been counted is decided');
  return fitted;
}

/** The same; `undefined` where `countOne` is, and would be needed. */
function fitPrepared(
  asked: GenerationRequest,
  prepared: Prepared,
  call: Call,
  countOne: CountOne | undefined,
): Fitted | undefined | Promise<Fitted | undefined> {
  const { model, prompt, effort, images } = prepared;
  const { at, task } = asked;
  const larger = (): readonly Model[] => largerModels(prepared.found, call);
  if (task !== undefined) return fitTask({ prompt, at, task }, model, countOne, larger);
  const { reasoningRoomTokens: room } = model.capabilities;
  // §4.2.1(5)
  const reasoningRoomTokens = effort === 'none' ? 0 : room;
  const request = { prompt, tools: prepared.tools, maxTokens: asked.maxTokens, reasoningRoomTokens, at };
  return countOne === undefined
    ? fit(request, model, call.route, undefined, larger, images)
    : fit(request, model, call.route, countOne, larger, images);
}

/** What an order has besides the request and its lengths. */
type OrderTerms = Pick<Order, 'format' | 'plan' | 'fallbacks'>;

function orderOf(
  asked: GenerationRequest,
  prepared: Prepared,
  fitted: Fitted,
  { format, plan, fallbacks }: OrderTerms,
  call: Call,
): Order {
  const { model, prompt, choices, engineRequest, images } = prepared;
  const { at, task } = asked;
  const choicesInAll = choicesOf(prompt) * choices;
  const larger = (): readonly Model[] => largerModels(prepared.found, call);
  // Named one by one: `...facts` and twenty fields after it are made field by field, each on a larger copy of the object (33 µs, and
  // twice the work of collecting it; with all names in one literal 7).
  const { id, idHex, publicId, clientId, startedAt, elapsedMs, account, key, zdr } = call.facts;
  return {
    id,
    idHex,
    publicId,
    clientId,
    startedAt,
    elapsedMs,
    account,
    key,
    zdr,
    route: call.route,
    format,
    model,
    plan,
    prices: pricesAt(model, account.rates, startedAt),
    stream: asked.stream,
    tags: prepared.tags,
    at,
    request: engineRequest(fitted.maxTokens, fitted.reasoningRoomTokens),
    choices: choicesInAll,
    completionTokensMax: (fitted.maxTokens + fitted.reasoningRoomTokens) * choicesInAll,
    promptTokensMax: fitted.promptTokens,
    promptTokensLikely: fitted.counted
      ? fitted.promptTokens
      : promptTokensLikely(fitted.promptTokens - images.most) + images.likely,
    promptCounted: fitted.counted,
    promptTokensPossible: fitted.promptTokensPossible,
    limitedByContext: fitted.limitedByContext,
    imageTokens: images,
    fallbacks,
    retryWithinContext: (refusal) => {
      const maxTokens = call.route.retryWithoutMaxTokens ? retryTokens(model, refusal) : undefined;
      return maxTokens === undefined ? undefined : engineRequest(maxTokens);
    },
    // The backend's window counts, whatever the card says.
    tooLong: (refusal) => {
      const { promptTokens, windowTokens, readingSeconds } = refusal;
      if (task !== undefined) return inputTooLong(model, promptTokens, larger(), longestOf(prompt, at), windowTokens);
      if (readingSeconds !== undefined) return readingTimeExceeded(model, refusal, larger(), at.prompt);
      return contextLengthExceeded(model, promptTokens, fitted.maxTokens, larger(), at.prompt, windowTokens);
    },
  };
}

/**
 * Counts the tokens of a request's input as they would be charged, with every check that the request itself would meet. Images
 * that would be fetched are estimated. Throws `ApiError`.
 */
export async function serveCount(json: unknown, call: Call<CountingRoute>, services: ServeServices): Promise<string> {
  let decoded = call.route.dialect.decodeRequest(json, contextOf(call));
  if (decoded.references.length > 0) decoded = await decodeWithItems(call.route.dialect, json, decoded, call, services);
  const { request, format } = decoded;
  const checked = await check(request, call, services);
  const admitted = await services.limits.admit(call.facts, 'count'); // 429
  call.admitted(admitted);
  try {
    // Counting needs no credit; reading files does, for a count too.
    if (hasFiles(checked.resolved)) await services.billing.check(billOfCount(checked.model, call, services)); // 402
    const prepared = await prepare(checked, request, call, services, call.signal);
    const counted = await count(prepared, call, services, call.signal);
    if (counted === 'too-long') {
      const larger = largerModels(prepared.found, call);
      throw contextLengthExceeded(prepared.model, undefined, 1, larger, request.at.prompt);
    }
    const tokens =
      counted ??
      call.lease
        .poolOf(prepared.model.id)
        .promptLengths.likely(call.facts.account.id, promptTokenBound(prepared.prompt, prepared.tools));
    return format.encodeCount(tokens + prepared.images.likely);
  } finally {
    admitted.end();
  }
}

/** What the shortest request would cost. */
const billOfCount = (model: Model, { facts }: Call<CountingRoute>, { limits }: ServeServices): Bill => ({
  ...facts,
  model,
  plan: limits.coveringPlan(facts) ?? null,
  prices: pricesAt(model, facts.account.rates, facts.startedAt),
  promptTokensMax: 1,
  completionTokensMax: 0,
});

const contextOf = ({ headers, facts }: Pick<Call, 'headers' | 'facts'>) => ({
  headers,
  items: undefined,
  isZeroRetention: facts.zdr,
});

/** Decodes a body again, with the items that it names from earlier answers. */
async function decodeWithItems<Format>(
  dialect: Dialect<Format>,
  json: unknown,
  { references }: Decoded<Format>,
  call: Pick<Call, 'headers' | 'facts'>,
  services: Pick<ServeServices, 'items'>,
): Promise<Decoded<Format>> {
  const items = await services.items.find(call.facts.account.id, references);
  return dialect.decodeRequest(json, { ...contextOf(call), items });
}

/** What the caller may use instead, next larger window first (specification §7.2). */
const largerModels = (model: Model, { facts, lease }: Call | Call<CountingRoute>): readonly Model[] =>
  usableModels(facts, lease.runtimeConfig.catalog, facts.startedAt)
    .filter(({ capabilities: { zdr } }) => zdr || !facts.zdr)
    .filter((candidate) => candidate.contextLength > model.contextLength)
    .sort((a, b) => a.contextLength - b.contextLength)
    .slice(0, 5);

/** The field of the longest prompt of a task: a backend that refuses one does not say which. */
function longestOf(prompt: Prompt, at: FieldPaths): string {
  if (prompt.type === 'messages') return at.prompt;
  const lengths = prompt.prompts.map(({ length }) => length);
  return at.promptAt?.(lengths.indexOf(Math.max(...lengths))) ?? at.prompt;
}

const choicesOf = (prompt: Prompt): number => (prompt.type === 'messages' ? 1 : prompt.prompts.length);
