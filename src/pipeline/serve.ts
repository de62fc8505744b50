import type { Caller, Directory } from '../accounts/directory.ts';
import type { Catalog } from '../catalog/catalog.ts';
import type { Model } from '../catalog/model.ts';
import { ApiError } from '../errors.ts';
import type { EngineRequest, GenerationRequest, Sampling } from '../generation/request.ts';
import { countPrompt } from './count.ts';
import type { Backend } from './dispatch.ts';
import { checkFeatures } from './features.ts';
import { contextLengthExceeded, fit, promptTokensLikely, refitTokens } from './fit.ts';
import type { Order } from './order.ts';
import { resolveEffort } from './reasoning.ts';
import { resolveParts } from './resolve.ts';
import type { InferenceRoute } from './route.ts';
import { checkTools } from './tool-rules.ts';

export interface ServeServices {
  readonly directory: Directory;
  readonly catalog: Catalog;
  backendsOf(modelId: string): readonly Backend[];
}

/** What a request's headers say, by lower-case name. */
export type Headers = Readonly<Record<string, string | readonly string[] | undefined>>;

/** Specification §5.1 and §5.4; `undefined` when no credentials were sent. */
export function authenticate(headers: Headers, directory: Directory): Caller | undefined {
  const presented = presentedKey(headers);
  if (presented === undefined) return undefined;
  const found = directory.find(presented);
  if (found === undefined || found === 'malformed') {
    throw new ApiError(
      'invalid_api_key',
      found === 'malformed'
        ? 'The API key is malformed: check that it was copied whole, without blanks.'
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

function presentedKey(headers: Headers): string | undefined {
  const authorization = single(headers['authorization']);
  if (authorization !== undefined && authorization !== '') {
    const [, token] = /^Bearer (.*)$/is.exec(authorization) ?? [];
    if (token === undefined) throw new ApiError('invalid_api_key', 'The Authorization header must be: Bearer <key>.');
    if (token !== '') return token;
  }
  const apiKey = single(headers['x-api-key']);
  return apiKey === undefined || apiKey === '' ? undefined : apiKey;
}

const single = (value: string | readonly string[] | undefined): string | undefined =>
  typeof value === 'string' || value === undefined ? value : value[0];

/** Specification §4.2.6: only the exact value counts, everything else is refused rather than read kindly. */
export function zdrRequired(headers: Headers): boolean {
  const value = headers['service-zdr'];
  if (value === undefined) return false;
  if (value === 'required') return true;
  throw new ApiError('invalid_zdr_header', "The header Service-ZDR must be 'required' or absent.", {
    param: 'Service-ZDR',
  });
}

/** The facts of a call that are not in its body. */
export interface Call {
  /** UUIDv7, the ledger's key. */
  readonly id: Uint8Array;
  readonly route: InferenceRoute;
  readonly caller: Caller;
  readonly zdr: boolean;
  readonly publicId: string;
  readonly clientId: string | null;
  readonly startedAt: number;
  readonly signal: AbortSignal;
}

/**
 * Decides whether a request is taken, in the order of contracts decision 10 from the required fields to the lengths:
 * from parsed JSON to an order that only needs a slot, credit and a backend. Throws `ApiError`.
 */
export async function serve(json: unknown, call: Call, services: ServeServices): Promise<Order> {
  const asked = call.route.dialect.decodeRequest(json);
  const model = findModel(asked.model, services.catalog);
  if (call.zdr && !model.capabilities.zdr) {
    throw new ApiError('model_zdr_not_supported', `The model '${model.id}' does not offer zero data retention.`, {
      param: 'model',
    });
  }
  checkTools(asked);
  const prompt = resolveParts(asked.prompt, model);
  checkFeatures(asked, model);
  const effort = resolveEffort(asked.effort, model, call.route);

  const { id } = call;
  const idHex = Buffer.from(id).toString('hex');
  const engineRequest = (maxTokens: number): EngineRequest => ({
    id: idHex,
    prompt,
    choices: asked.choices,
    maxTokens,
    sampling: samplingFor(model, asked.sampling),
    stop: asked.stop,
    tools: asked.tools,
    toolChoice: asked.toolChoice ?? { type: 'auto' },
    parallelToolCalls: asked.parallelToolCalls ?? true,
    constraint: asked.constraint,
    effort,
    preserveThinking: asked.preserveThinking,
    logprobs: asked.logprobs,
    logitBias: asked.logitBias,
    cacheScope: call.caller.account.id,
    retain: !call.zdr,
  });

  const count = () => countPrompt(engineRequest(1), services.backendsOf(model.id), call.signal);
  const fitted = await fit({ ...asked, prompt }, model, call.route, count, () => largerModels(model, services.catalog));
  return {
    id,
    idHex,
    publicId: call.publicId,
    clientId: call.clientId,
    startedAt: call.startedAt,
    account: call.caller.account,
    key: call.caller.key,
    route: call.route,
    model,
    prices: model.prices,
    stream: asked.stream,
    request: engineRequest(fitted.maxTokens),
    choices: choicesOf(asked),
    promptTokensMax: fitted.promptTokens,
    promptTokensLikely: fitted.counted ? fitted.promptTokens : promptTokensLikely(fitted.promptTokens),
    promptCounted: fitted.counted,
    refit: (promptTokens) => {
      const maxTokens = call.route.retryWithoutMaxTokens ? refitTokens(model, promptTokens) : undefined;
      return maxTokens === undefined ? undefined : engineRequest(maxTokens);
    },
    tooLong: (promptTokens) =>
      contextLengthExceeded(model, promptTokens, fitted.maxTokens, largerModels(model, services.catalog)),
  };
}

/** Specification §5.6: the message lists what the key can use. */
function findModel(id: string, catalog: Catalog): Model {
  const model = catalog.find(id);
  if (model !== undefined) return model;
  const usable = catalog.models.map((candidate) => candidate.id).slice(0, 50);
  throw new ApiError(
    'model_not_found',
    `No model '${id.slice(0, 100)}'. This key can use: ${usable.join(', ') || 'none'}.`,
    { param: 'model' },
  );
}

/** Nearest larger window first (specification §7.2). */
const largerModels = (model: Model, catalog: Catalog): readonly Model[] =>
  catalog.models
    .filter((candidate) => candidate.contextLength > model.contextLength)
    .sort((a, b) => a.contextLength - b.contextLength)
    .slice(0, 5);

const choicesOf = (asked: GenerationRequest): number =>
  (asked.prompt.type === 'messages' ? 1 : asked.prompt.prompts.length) * asked.choices;

/** Specification part 1: models that do not honor the four fields never see them; the other fields reach every model. */
function samplingFor(model: Model, sampling: Sampling): Sampling {
  switch (model.sampling) {
    case 'honor':
      return sampling;
    case 'ignore':
    case 'fixed':
      return {
        ...sampling,
        temperature: undefined,
        topP: undefined,
        presencePenalty: undefined,
        frequencyPenalty: undefined,
      };
  }
}
