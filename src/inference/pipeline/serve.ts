import type { Caller, Directory } from '../../accounts/directory.ts';
import { presentedKey } from '../../accounts/presented-key.ts';
import { pricesAt } from '../../billing/account-prices.ts';
import { capabilitiesFor } from '../../catalog/model.ts';
import type { Model } from '../../catalog/model.ts';
import type { AnswerFormat, Decoded, Dialect, Headers } from '../dialects/dialect.ts';
import { ApiError } from '../../platform/errors.ts';
import type {
  Effort,
  EngineRequest,
  FieldPaths,
  GenerationRequest,
  ImageTokens,
  Prompt,
  Tool,
} from '../../generation/request.ts';
import type { Admitted, Limits } from '../../billing/rate-limits/rate-limits.ts';
import { modelFor, usableModels } from './access.ts';
import { formOf } from './constrain.ts';
import type { Constraints } from './constraints.ts';
import { countPrompt } from './count.ts';
import { imageCount, imageTokens } from './request-images.ts';
import { refuseImpossible } from './backend-pool.ts';
import { samplingFor, withDefaultSystem } from './defaults.ts';
import { Fallbacks } from './fallbacks.ts';
import { checkFeatures } from './features.ts';
import {
  contextLengthExceeded,
  fit,
  fitTask,
  inputTooLong,
  promptTokenBound,
  promptTokensLikely,
  retryTokens,
} from './fit.ts';
import type { Fitted } from './fit.ts';
import type { Order, RequestFacts } from './order.ts';
import type { Lease } from './runtime-config.ts';
import { reasoningOf } from './effort.ts';
import type { KeptItems } from './stored-items.ts';
import type { FileCall, FileParts } from './request-files.ts';
import { hasFiles, isPlain, readFiles, resolveParts } from './resolve.ts';
import { withPreservedThinking } from './preserved-thinking.ts';
import type { CountingRoute, InferenceRoute, Route } from './route.ts';
import type { ReasoningKeys } from './reasoning-keys.ts';
import { requestTags } from './tags.ts';
import { checkTools } from './tool-rules.ts';
import { checkTokenIds } from './vocabulary.ts';
import { abortSignalOf } from '../../platform/stop-signal.ts';
import type { StopSignal } from '../../platform/stop-signal.ts';

export interface ServeServices {
  readonly fileParts: FileParts;
  readonly constraints: Constraints;
  readonly reasoningKeys: ReasoningKeys;
  readonly items: Pick<KeptItems, 'find'>;
  readonly limits: Pick<Limits, 'admit' | 'coveringPlan'>;
}

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

/** A request whose body has been parsed, and what it reports while it is decided on. */
export interface Call<On extends Route = InferenceRoute> {
  readonly facts: RequestFacts;
  readonly route: On;
  readonly headers: Headers;
  readonly signal: StopSignal;
  /** The configuration that it sees. */
  readonly lease: Pick<Lease, 'runtimeConfig' | 'poolOf'>;
  /** Reports time spent waiting for others: a backend that counted the prompt, servers of documents. */
  waited(engineMs: number): void;
  /** Reports that no limit refuses a request which `run` never sees. */
  admitted(admitted: Admitted): void;
  /** Reports memory that the request takes beyond its body; throws `backend_at_capacity` when there is none left. */
  holdBytes(bytes: number): void;
}

/**
 * Decides whether a request is accepted, in the order of contracts decision 10 from the required fields to the lengths: from
 * parsed JSON to an order that only needs a slot, credit and a backend. Throws `ApiError`.
 */
export async function serve(json: unknown, call: Call, services: ServeServices): Promise<Order> {
  let decoded = call.route.dialect.decodeRequest(json, contextOf(call));
  if (decoded.references.length > 0) decoded = await decodeWithItems(call.route.dialect, json, decoded, call, services);
  const asked = decoded.request;
  const prepared = await prepare(asked, call, services);
  const plan = services.limits.coveringPlan(call.facts) ?? null; // 403
  const fitting = fitPrepared(asked, prepared, call);
  const fitted = fitting instanceof Promise ? await fitting : fitting;
  const { format } = decoded;
  const fallbacks = fallbacksOf(asked, prepared, format, call, services);
  return orderOf(asked, prepared, fitted, { format, plan, fallbacks }, call);
}

/** `undefined` for a model without fallbacks, and for tasks: vectors of another model are no substitute. */
function fallbacksOf(
  asked: GenerationRequest,
  { model, whole }: Prepared,
  format: AnswerFormat,
  call: Call,
  services: ServeServices,
): Fallbacks | undefined {
  if (model.fallback === undefined || asked.task !== undefined) return undefined;
  // The files in `asked` have been read, and would stay in memory as long as the order.
  const request = { ...asked, prompt: whole };
  return new Fallbacks(model.fallback, (id, instead) =>
    orderInstead({ ...request, model: id }, instead, format, call, services),
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
): Promise<Order> {
  const prepared = await prepare(asked, call, services);
  const lesser = (what: string, param: string): ApiError =>
    new ApiError('unsupported_feature', `The model '${prepared.model.id}' ${what}.`, { param });
  if (imageCount(asked.prompt) > 0 && !call.route.flags(prepared.model.capabilities).vision)
    throw lesser('sees no images', asked.at.prompt);
  if (choicesOf(prepared.prompt) * prepared.choices < instead.choices) throw lesser('writes one choice', 'n');
  const fitted = await fitPrepared(asked, prepared, call);
  if (asked.maxTokens !== undefined && fitted.maxTokens < instead.request.maxTokens)
    throw lesser('writes shorter answers', 'max_tokens');
  return orderOf(asked, prepared, fitted, { format, plan: instead.plan, fallbacks: undefined }, call);
}

/** The lengths of a request (contracts decision 10): what it may write, and what its prompt may cost. */
function fitPrepared(asked: GenerationRequest, prepared: Prepared, call: Call): Fitted | Promise<Fitted> {
  const { model, prompt, effort, images } = prepared;
  const { at, task } = asked;
  const larger = (): readonly Model[] => largerModels(prepared.found, call);
  const countOnly = (only: Prompt) => count(prepared, call, only);
  return task === undefined
    ? fit(
        {
          prompt,
          tools: prepared.tools,
          maxTokens: asked.maxTokens,
          // §4.2.1(5)
          reasoningRoomTokens: effort === 'none' ? 0 : model.capabilities.reasoningRoomTokens,
          at,
        },
        model,
        call.route,
        countOnly,
        larger,
        images,
      )
    : fitTask({ prompt, at, task }, model, countOnly, larger);
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
    tooLong: ({ promptTokens, windowTokens }) =>
      task !== undefined
        ? inputTooLong(model, promptTokens, larger(), longestOf(prompt, at), windowTokens)
        : contextLengthExceeded(model, promptTokens, fitted.maxTokens, larger(), at.prompt, windowTokens),
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
  const prepared = await prepare(request, call, services);
  const admitted = await services.limits.admit(call.facts, 'count'); // 429
  call.admitted(admitted);
  try {
    const counted = await count(prepared, call);
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

/** A request that its model can take, whatever the length of its answer. */
interface Prepared {
  /** With the flags of its partition, from the catalog. */
  readonly model: Model;
  readonly found: Model;
  readonly tags: readonly string[];
  readonly prompt: Prompt;
  /** The prompt as the client sent it, with its files read and without images that the model cannot see. */
  readonly whole: Prompt;
  readonly tools: readonly Tool[];
  readonly choices: number;
  readonly effort: Effort;
  readonly images: ImageTokens;
  engineRequest(maxTokens: number, reasoningRoomTokens?: number): EngineRequest;
}

/** The checks from the model to the features of its card (contracts decision 10). */
async function prepare(asked: GenerationRequest, call: Call<Route>, services: ServeServices): Promise<Prepared> {
  const { facts, signal, lease } = call;
  const { catalog, images } = lease.runtimeConfig;
  const found = modelFor(asked.model, facts, catalog, facts.startedAt);
  if (facts.zdr && !found.capabilities.zdr) {
    const why = facts.account.zdrRequired === true ? ', which this account requires for every request' : '';
    throw new ApiError('model_zdr_not_supported', `The model '${found.id}' does not offer zero data retention${why}.`, {
      param: 'model',
    });
  }
  // Part 8: request tags mean nothing for a model that is open to everybody, and are ignored there without validation.
  const own = found.dedicatedTo === undefined ? [] : requestTags(call.headers);
  // The key's tags are set by its account, for every model (docs/keys.md).
  const tags = [...new Set([...(facts.key.tags ?? []), ...own])];
  // §4.2.3(5): a model's capabilities may differ with zero data retention. From here on only this partition counts.
  const model: Model = facts.zdr ? { ...found, capabilities: capabilitiesFor(found, true) } : found;
  const { capabilities } = model;
  const flags = call.route.flags(capabilities);
  checkTools(asked);
  const form = formOf(asked, flags);
  const files = hasFiles(asked.prompt) ? services.fileParts.for(fileCallOf(call)) : undefined;
  const resolved = isPlain(asked.prompt)
    ? asked.prompt
    : await resolveParts(asked.prompt, flags.vision, images.rules, signal, files);
  // Part 1: `n` is one of the fields that are stripped for such a model.
  const choices = model.sampling === 'fixed' ? 1 : asked.choices;
  checkFeatures(choices === asked.choices ? asked : { ...asked, choices }, model, flags);
  const { backends } = lease.poolOf(model.id);
  checkTokenIds(asked, backends);
  const { effort, reasoningForm } = reasoningOf(asked, model, call.route, flags);
  const constraint =
    form.constraint === undefined
      ? undefined
      : await services.constraints.compile(form.constraint, asked.at.constraintText, !facts.zdr);
  const isKept = asked.preserveThinking && capabilities.preservesThinking;
  const whole = files === undefined ? resolved : await readFiles(resolved, files);
  const preserved = withPreservedThinking(whole, isKept, services.reasoningKeys, facts.account.id);
  const prompt = withDefaultSystem(preserved, asked, model.defaults);
  // Not `asked` as a whole: the files in it have been read, and would stay in memory as long as the order.
  const { sampling, stop, parallelToolCalls, logprobs, logitBias, tokens, task } = asked;
  const engineRequest = (maxTokens: number, reasoningRoomTokens = 0): EngineRequest => ({
    id: facts.idHex,
    prompt,
    choices,
    maxTokens,
    sampling: samplingFor(model, sampling),
    stop,
    tools: form.tools,
    toolChoice: form.toolChoice,
    parallelToolCalls: parallelToolCalls ?? true,
    constraint,
    effort,
    reasoningForm,
    reasoningRoomTokens,
    logprobs,
    logitBias,
    ...(tokens === undefined ? {} : { tokens }),
    ...(task === undefined ? {} : { task }),
    cacheScope: facts.account.id,
    retain: !facts.zdr,
  });
  refuseImpossible(backends, engineRequest(Math.min(1, asked.maxTokens ?? 1)));
  return {
    model,
    found,
    tags,
    prompt,
    whole,
    tools: form.tools,
    choices,
    effort,
    images: imageTokens(prompt, backends),
    engineRequest,
  };
}

const fileCallOf = (call: Call<Route>): FileCall => ({
  accountId: call.facts.account.id,
  zdr: call.facts.zdr,
  signal: abortSignalOf(call.signal),
  fetching: call.lease.runtimeConfig.images,
  waited: (ms) => call.waited(ms),
  holdBytes: (bytes) => call.holdBytes(bytes),
});

/** Tokens of the whole input, or of one prompt of it. */
async function count({ model, prompt, engineRequest }: Prepared, call: Call<Route>, only: Prompt = prompt) {
  const askedMs = performance.now();
  const counted = await countPrompt(
    { ...engineRequest(1), prompt: only },
    call.lease.poolOf(model.id).backends,
    call.signal,
  );
  call.waited(performance.now() - askedMs);
  return counted;
}

/** What the caller may use instead, next larger window first (specification §7.2). */
const largerModels = (model: Model, { facts, lease }: Call<Route>): readonly Model[] =>
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
