import { capabilitiesFor } from '../../catalog/model.ts';
import type { Model } from '../../catalog/model.ts';
import type {
  Effort,
  EngineConstraint,
  EngineRequest,
  GenerationRequest,
  ImageTokens,
  Prompt,
  Tool,
} from '../../generation/request.ts';
import { ApiError } from '../../platform/errors.ts';
import { abortSignalOf } from '../../platform/stop-signal.ts';
import type { StopSignal } from '../../platform/stop-signal.ts';
import { modelFor } from './access.ts';
import { refuseImpossible } from './backend-pool.ts';
import type { Call, ServeServices } from './call.ts';
import { formOf } from './constrain.ts';
import type { Form } from './constrain.ts';
import { samplingFor, withDefaultSystem } from './defaults.ts';
import { reasoningOf } from './effort.ts';
import { checkFeatures } from './features.ts';
import { withPreservedThinking } from './preserved-thinking.ts';
import type { FileCall, FileResolver } from './request-files.ts';
import { imageTokens } from './request-images.ts';
import { hasFiles, isPlain, readFiles, resolveParts, withoutFiles } from './resolve.ts';
import type { FamilyFlags, Route } from './route.ts';
import { requestTags } from './tags.ts';
import { checkTools } from './tool-rules.ts';
import { checkTokenIds } from './vocabulary.ts';

/** A request that its model can take, whatever the length of its answer. */
export interface Prepared {
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

/** A request that its model can take, as far as nothing had to be done to find out. */
export interface Checked {
  readonly model: Model;
  readonly found: Model;
  readonly flags: FamilyFlags;
  readonly tags: readonly string[];
  readonly form: Form;
  /** The request without what work would add: its files, and the compiled form. */
  readonly likely: Prepared;
  /** The client's prompt without images that the model cannot see; its files have not been read. */
  readonly resolved: Prompt;
  readonly choices: number;
  readonly effort: Effort;
  readonly reasoningForm: EngineRequest['reasoningForm'];
}

/** The checks from the model to the features of its card (contracts decision 10): what is cheap. */
export async function check(asked: GenerationRequest, call: Call<Route>, services: ServeServices): Promise<Checked> {
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
  const flags = call.route.flags(model.capabilities);
  checkTools(asked);
  const form = formOf(asked, flags);
  const resolved = isPlain(asked.prompt)
    ? asked.prompt
    : await resolveParts(asked.prompt, flags.vision, images.rules, signal, filesOf(asked.prompt, call, services));
  // Part 1: `n` is one of the fields that are stripped for such a model.
  const choices = model.sampling === 'fixed' ? 1 : asked.choices;
  checkFeatures(choices === asked.choices ? asked : { ...asked, choices }, model, flags);
  const { backends } = lease.poolOf(model.id);
  checkTokenIds(asked, backends);
  const { effort, reasoningForm } = reasoningOf(asked, model, call.route, flags);
  const checked = { model, found, flags, tags, form, resolved, choices, effort, reasoningForm };
  const uncompiled = form.constraint === undefined ? undefined : { source: form.constraint, gbnf: undefined };
  const likely = prepared(checked, asked, uncompiled, withoutFiles(resolved), call, services);
  refuseImpossible(backends, likely.engineRequest(Math.min(1, asked.maxTokens ?? 1)), asked.at);
  return { ...checked, likely };
}

/** Whether a form is left to be compiled, or files to be read. */
export const needsWork = ({ form, resolved }: Pick<Checked, 'form' | 'resolved'>): boolean =>
  form.constraint !== undefined || hasFiles(resolved);

/** Compiles the form and reads the files: work, for who has a slot and credit. */
export async function prepare(
  checked: Checked,
  asked: GenerationRequest,
  call: Call<Route>,
  services: ServeServices,
  signal: StopSignal,
): Promise<Prepared> {
  const { form, flags, resolved } = checked;
  if (!needsWork(checked)) return checked.likely;
  const { account, zdr } = call.facts;
  const compileCall = { accountId: account.id, retain: !zdr, signal };
  const constraint =
    form.constraint === undefined
      ? undefined
      : await services.constraints.compile(form.constraint, asked.at.constraintText, compileCall);
  const files = filesOf(resolved, call, services, signal);
  const whole = files === undefined ? resolved : await readFiles(resolved, flags.vision, files);
  return prepared(checked, asked, constraint, whole, call, services);
}

/** Puts together what engines are asked. */
function prepared(
  { model, found, tags, form, choices, effort, reasoningForm }: Omit<Checked, 'likely'>,
  asked: GenerationRequest,
  constraint: EngineConstraint | undefined,
  whole: Prompt,
  call: Call<Route>,
  services: ServeServices,
): Prepared {
  const { facts } = call;
  const isKept = asked.preserveThinking && model.capabilities.preservesThinking;
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
  const images = imageTokens(prompt, call.lease.poolOf(model.id).backends);
  return { model, found, tags, prompt, whole, tools: form.tools, choices, effort, images, engineRequest };
}

/** `undefined`: the prompt has none. */
const filesOf = (
  prompt: Prompt,
  call: Call<Route>,
  { fileParts }: ServeServices,
  signal: StopSignal = call.signal,
): FileResolver | undefined => (hasFiles(prompt) ? fileParts.for(fileCallOf(call, signal)) : undefined);

const fileCallOf = (call: Call<Route>, signal: StopSignal): FileCall => ({
  accountId: call.facts.account.id,
  zdr: call.facts.zdr,
  signal: abortSignalOf(signal),
  fetching: call.lease.runtimeConfig.images,
  waited: (ms) => call.waited(ms),
  holdBytes: (bytes) => call.holdBytes(bytes),
});

/** Tokens of the whole input, or of one prompt of it. */
export async function count(
  { model, prompt, engineRequest }: Prepared,
  call: Call<Route>,
  { promptCounts }: ServeServices,
  signal: StopSignal,
  only: Prompt = prompt,
): Promise<number | 'too-long' | undefined> {
  const askedMs = performance.now();
  const { backends } = call.lease.poolOf(model.id);
  const counted = await promptCounts.count({ ...engineRequest(1), prompt: only }, backends, signal);
  call.waited(performance.now() - askedMs);
  return counted;
}
