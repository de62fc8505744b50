import type { Catalog } from '../../catalog/catalog.ts';
import { askedAs, capabilitiesFor } from '../../catalog/model.ts';
import type { Model } from '../../catalog/model.ts';
import type { EngineRequest, GenerationRequest, ImageTokens, Prompt } from '../../generation/request.ts';
import { ApiError } from '../../platform/errors.ts';
import type { DecodeContext, Dialect } from '../dialects/dialect.ts';
import { modelFor, ownName } from './access.ts';
import { refuseImpossible } from './backend-pool.ts';
import type { Call, ServeServices } from './call.ts';
import type { RequestFacts } from './request-facts.ts';
import { formOf } from './constrain.ts';
import type { Form } from './constrain.ts';
import { samplingFor, withDefaultSystem } from './defaults.ts';
import { reasoningOf } from './effort.ts';
import { checkFeatures } from './features.ts';
import { withPreservedThinking } from './preserved-thinking.ts';
import { imageTokens } from './request-images.ts';
import { filesOf, isPlain, resolveParts, withoutFiles } from './resolve.ts';
import type { FamilyFlags, Route } from './route.ts';
import { requestTags } from './tags.ts';
import { checkTools } from './tool-rules.ts';
import { checkTokenIds } from './vocabulary.ts';
import { warningsOf, withImagesRemoved } from './warnings.ts';
import type { Warnings } from './warnings.ts';

/** A request that its model can take, as far as cheap checks can tell, regardless of the length of its answer. */
export interface Allowed<Format> {
  /** The request as the client sent it, without images that the model cannot see; with its files once they have been read. */
  readonly asked: GenerationRequest;
  /** How the answer is encoded. */
  readonly format: Format;
  /** The model, with the flags of its zero-retention partition. */
  readonly model: Model;
  readonly tags: readonly string[];
  /** The engine request, for at most one token; without files and with its constraint as text until `prepare`. */
  readonly request: EngineRequest;
  readonly images: ImageTokens;
  readonly warnings?: Warnings;
}

/**
 * Runs the cheap checks of contracts decision 10 from the required fields to the features of the model's card: from parsed JSON to a
 * request that its model can take. Throws `ApiError`; where items or images have to be read, returns a promise that rejects with it.
 */
export function allow<Format>(
  json: unknown,
  dialect: Dialect<Format>,
  call: Call<Route>,
  services: ServeServices,
): Allowed<Format> | Promise<Allowed<Format>> {
  const { request, format, references } = dialect.decodeRequest(json, contextOf(call, undefined));
  if (references.length > 0) return allowWithItems(json, dialect, references, call, services);
  return check(request, format, call, services);
}

/** Decodes the body again, with the items of earlier answers that it names. */
async function allowWithItems<Format>(
  json: unknown,
  dialect: Dialect<Format>,
  references: readonly string[],
  call: Call<Route>,
  services: ServeServices,
): Promise<Allowed<Format>> {
  const items = await services.items.find(call.account.id, references);
  const { request, format } = dialect.decodeRequest(json, contextOf(call, items));
  return await check(request, format, call, services);
}

const contextOf = ({ headers, zdr }: Call<Route>, items: DecodeContext['items']): DecodeContext => ({
  headers,
  items,
  isZeroRetention: zdr,
});

/** Checks a request that has been decoded. */
export function check<Format>(
  asked: GenerationRequest,
  format: Format,
  call: Call<Route>,
  services: ServeServices,
): Allowed<Format> | Promise<Allowed<Format>> {
  const { catalog, images } = call.lease.runtimeConfig;
  const model = partitionFor(asked.model, call, catalog);
  const tags = tagsOf(model, call);
  const flags = call.route.flags(model.capabilities);
  checkTools(asked);
  const choice: Choice<Format> = { format, model, tags, flags, form: formOf(asked, flags) };
  if (isPlain(asked.prompt)) return checkWithModel(asked, choice, call, services);
  const files = filesOf(asked.prompt, call, services, call.signal);
  return resolveParts(asked.prompt, flags.vision, images.rules, call.signal, files).then((prompt) => {
    const allowed = checkWithModel({ ...asked, prompt }, choice, call, services);
    const warnings = withImagesRemoved(allowed.warnings, asked.prompt, prompt);
    return warnings === allowed.warnings ? allowed : { ...allowed, warnings };
  });
}

/** §4.2.3(5): a model's capabilities may differ with zero data retention. From here on only this partition counts. */
function partitionFor(id: string, caller: RequestFacts, catalog: Catalog): Model {
  const named = modelFor(id, caller, catalog, caller.startedAt);
  const found = askedAs(named, id, ownName(id, caller, catalog, caller.startedAt));
  if (!caller.zdr) return found;
  if (found.capabilities.zdr) return { ...found, capabilities: capabilitiesFor(found, true) };
  const why = caller.account.zdrRequired === true ? ', which this account requires for every request' : '';
  throw new ApiError('model_zdr_not_supported', `The model '${found.id}' does not offer zero data retention${why}.`, {
    param: 'model',
  });
}

function tagsOf({ dedicatedTo }: Model, { headers, key }: Call<Route>): readonly string[] {
  // Part 8: request tags mean nothing for a model that is open to everybody, and are ignored there without validation.
  const own = dedicatedTo === undefined ? none : requestTags(headers);
  // The key's tags are set by its account and apply to every model (docs/keys.md).
  return key.tags === undefined ? own : [...new Set([...key.tags, ...own])];
}

const none: readonly string[] = [];

interface Choice<Format> extends Pick<Allowed<Format>, 'format' | 'model' | 'tags'> {
  readonly flags: FamilyFlags;
  readonly form: Form;
}

function checkWithModel<Format>(
  asked: GenerationRequest,
  { format, model, tags, flags, form }: Choice<Format>,
  call: Call<Route>,
  services: ServeServices,
): Allowed<Format> {
  // Part 1: `n` is one of the fields that are stripped for a model with fixed sampling.
  const choices = model.sampling === 'fixed' ? 1 : asked.choices;
  checkFeatures(choices === asked.choices ? asked : { ...asked, choices }, model, flags);
  const { backends } = call.lease.poolOf(model.id);
  checkTokenIds(asked, backends);
  const { effort, reasoningForm } = reasoningOf(asked, model, call.route, flags);
  const prompt = enginePrompt(asked, withoutFiles(asked.prompt), model, call, services);
  const request: EngineRequest = {
    id: call.idHex,
    prompt,
    task: asked.task,
    choices,
    maxTokens: Math.min(1, asked.maxTokens ?? 1),
    sampling: samplingFor(model, asked.sampling),
    stop: asked.stop,
    tools: form.tools,
    toolChoice: form.toolChoice,
    parallelToolCalls: asked.parallelToolCalls ?? true,
    constraint: form.constraint === undefined ? undefined : { source: form.constraint, gbnf: undefined },
    effort,
    reasoningForm,
    reasoningRoomTokens: 0,
    logprobs: asked.logprobs,
    logitBias: asked.logitBias,
    tokens: asked.tokens,
    cacheScope: call.account.id,
    retain: !call.zdr,
  };
  refuseImpossible(backends, request, asked.at);
  const warnings = warningsOf(asked, model, effort, call.headers);
  return { asked, format, model, tags, request, images: imageTokens(prompt, backends), warnings };
}

/** The prompt for an engine: with the reasoning kept from earlier turns, and the model's own system text. */
export function enginePrompt(
  asked: GenerationRequest,
  prompt: Prompt,
  model: Model,
  call: Call<Route>,
  { reasoningKeys }: Pick<ServeServices, 'reasoningKeys'>,
): Prompt {
  const isKept = asked.preserveThinking && model.capabilities.preservesThinking;
  const preserved = withPreservedThinking(prompt, isKept, reasoningKeys, call.account.id);
  return withDefaultSystem(preserved, asked, model.defaults);
}
