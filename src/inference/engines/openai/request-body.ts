import { ApiError } from '../../../platform/errors.ts';
import { continuesLast } from '../../../generation/request.ts';
import type { Constraint, EngineRequest, Message, Part, Tool } from '../../../generation/request.ts';
import type { CacheSalts } from './cache-salts.ts';
import { completionFields, completionRefusal } from './completion-fields.ts';
import { imagesBehindResults } from '../images-behind-results.ts';
import { inlineSystemAsUser } from '../inline-system.ts';
import type { Flavor } from './flavors/flavor.ts';
import { ImageUrl } from './image-body.ts';
import { guarded } from './special-tokens.ts';
import type { SpecialTokens } from './special-tokens.ts';

/** Facts about the server that a request goes to. */
export interface UpstreamServer {
  readonly flavor: Flavor;
  /** The model's id on the server. */
  readonly model: string;
  /** Whether the model reasons, so that its template accepts an effort: some templates refuse one. */
  readonly reasons: boolean;
  /** Sampling fields that the server accepts although its flavor does not. */
  readonly forward: readonly ForwardedField[];
  readonly specialTokens: SpecialTokens;
  /** Whether the model's template accepts system messages only at the beginning: later ones then become user text. */
  readonly systemFirst: boolean;
  /** Whether it was started to order its queue by the field `priority`: others refuse it. */
  readonly ordersByPriority: boolean;
  readonly salts: CacheSalts;
  /** Sent with every request, besides those of the flavor. */
  readonly fields?: Readonly<Record<string, unknown>> | undefined;
  /** The name of the base, where `model` is an adapter that may not be loaded. */
  readonly loadedBeside?: string | undefined;
}

export type ForwardedField = 'top_k' | 'min_p' | 'repetition_penalty';

export interface UpstreamRequest {
  /** Relative to the base URL. */
  readonly path: '/chat/completions' | '/completions';
  readonly body: Readonly<Record<string, unknown>>;
}

/**
 * Builds the request in its backend's wire format. Every field is built here from the internal language, so nothing that a client invents
 * can reach a backend and cause work that the meter does not see.
 */
export function upstreamRequest(
  unguarded: EngineRequest,
  server: UpstreamServer,
  mayCachePrompt: boolean,
): UpstreamRequest {
  const { flavor } = server;
  const refusal = refusalOf(unguarded, server);
  if (refusal !== undefined) throw refusal;
  const request = readable(unguarded, server);
  const { prompt } = request;
  // One object that grows: a spread of spreads copied each field up to three times.
  const body: Record<string, unknown> = { model: server.model };
  putSampling(request, server, body);
  Object.assign(body, cacheFields(request, server, mayCachePrompt));
  if (prompt.type === 'messages') putChatFields(request, prompt.messages, server, body);
  else {
    const { prompts } = prompt;
    body['prompt'] = prompts.length === 1 ? prompts[0] : prompts;
    Object.assign(body, completionFields(request, flavor), constraintFields(request, flavor));
  }
  body['stream'] = true;
  Object.assign(body, flavor.always);
  if (server.ordersByPriority && flavor.priorities !== undefined)
    body['priority'] = flavor.priorities[request.tier ?? 'default'];
  if (server.fields !== undefined) Object.assign(body, server.fields);
  return { path: prompt.type === 'messages' ? '/chat/completions' : '/completions', body };
}

/** Returns the same request, once it is known whether its prompt may be cached, and the number of bytes added to its JSON. */
export function withCaching(
  { path, body }: UpstreamRequest,
  request: EngineRequest,
  server: UpstreamServer,
  mayCachePrompt: boolean,
): UpstreamRequest & { readonly addedBytes: number } {
  const fields = cacheFields(request, server, mayCachePrompt);
  const bytes = (from: UpstreamRequest['body']): number =>
    Object.keys(fields).reduce((sum, name) => sum + Buffer.byteLength(JSON.stringify(from[name])), 0);
  return { path, body: { ...body, ...fields }, addedBytes: bytes(fields) - bytes(body) };
}

/** Returns the request as the server can read it: no text is taken for a special token, and its template accepts the roles and parts. */
export function readable(request: EngineRequest, { specialTokens, systemFirst }: UpstreamServer): EngineRequest {
  const safe = guarded(request, specialTokens);
  const { prompt } = safe;
  if (prompt.type !== 'messages') return safe;
  const behind = imagesBehindResults(prompt.messages);
  const messages = systemFirst ? inlineSystemAsUser(behind) : behind;
  return messages === prompt.messages ? safe : { ...safe, prompt: { ...prompt, messages } };
}

/** Returns messages as the backend's template reads them; also used for its token counter. */
export function chatMessages(messages: readonly Message[]): readonly Readonly<Record<string, unknown>>[] {
  return messages.map((message) => {
    switch (message.role) {
      case 'system':
      case 'user':
        return { role: message.role, content: contentOf(message.content) };
      case 'tool':
        return { role: 'tool', tool_call_id: message.toolCallId ?? '', content: contentOf(message.content) };
      case 'assistant': {
        const calls = message.toolCalls;
        return {
          role: 'assistant',
          content: message.content.length === 0 && calls.length > 0 ? null : contentOf(message.content),
          ...(calls.length === 0
            ? {}
            : {
                tool_calls: calls.map((call) => ({
                  id: call.id,
                  type: 'function',
                  function: { name: call.name, arguments: call.arguments },
                })),
              }),
        };
      }
    }
  });
}

/** Returns the tools and the choice among them. */
export function toolFields(request: EngineRequest, flavor: Flavor): Readonly<Record<string, unknown>> {
  const { toolChoice } = request;
  // Tools that may not be called are not sent, so that no server calls them anyway (contracts §0.14).
  if (request.tools.length === 0 || toolChoice.type === 'none') return {};
  const parallel = request.parallelToolCalls ? {} : { parallel_tool_calls: false };
  const isForced = toolChoice.type !== 'auto';
  const toolOf = (tool: Tool) => toolFieldsOf(tool, flavor, isForced);
  if (toolChoice.type !== 'function') {
    return { tools: request.tools.map(toolOf), tool_choice: toolChoice.type, ...parallel };
  }
  if (flavor.namedToolChoice === 'as-only-tool') {
    const only = request.tools.filter((tool) => tool.name === toolChoice.name);
    return { tools: only.map(toolOf), tool_choice: 'required', ...parallel };
  }
  return {
    tools: request.tools.map(toolOf),
    tool_choice: { type: 'function', function: { name: toolChoice.name } },
    ...parallel,
  };
}

/** Returns the effort fields for a model that reasons; empty for others. */
export function effortFields(request: EngineRequest, { flavor, reasons }: UpstreamServer) {
  if (!reasons) return {};
  const { constraint } = request;
  const isSilenced = constraint !== undefined && flavor.constrainsReasoning.includes(constraint.source.type);
  return flavor.effort(isSilenced ? 'none' : request.effort, constraint !== undefined);
}

/** Returns the error for a request that servers of the flavor cannot serve; another backend may. */
export const refusalOf = (
  request: EngineRequest,
  { flavor, reasons }: Pick<UpstreamServer, 'flavor' | 'reasons'>,
): ApiError | undefined =>
  completionRefusal(request, flavor, reasons) ??
  continuationRefusal(request, flavor) ??
  forcedCallRefusal(request, flavor);

/** Returns the fields that make the server continue the last message. */
export const continuationFields = ({ prompt }: EngineRequest, { continuation }: Flavor) =>
  continuesLast(prompt) ? continuation : undefined;

function continuationRefusal({ prompt }: EngineRequest, { continuation }: Flavor): ApiError | undefined {
  if (continuation !== undefined || !continuesLast(prompt)) return undefined;
  return new ApiError(
    'unsupported_feature',
    'The backend of the model cannot continue an assistant message: end the conversation with a user message.',
    { param: 'messages' },
  );
}

function forcedCallRefusal(request: EngineRequest, { namedToolChoice }: Flavor): ApiError | undefined {
  if (namedToolChoice !== 'ignored' || !isForcedCall(request)) return undefined;
  return new ApiError(
    'unsupported_feature',
    "The backend of the model cannot be made to call a function: leave 'tool_choice' out, or set it to auto or none.",
    { param: 'tool_choice' },
  );
}

const isForcedCall = ({ tools, toolChoice: { type } }: EngineRequest): boolean =>
  tools.length > 0 && (type === 'required' || type === 'function');

function putChatFields(
  request: EngineRequest,
  messages: readonly Message[],
  server: UpstreamServer,
  body: Record<string, unknown>,
): void {
  const { flavor } = server;
  body['messages'] = chatMessages(messages);
  if (request.tools.length > 0) Object.assign(body, toolFields(request, flavor));
  if (isForcedCall(request)) Object.assign(body, flavor.forcedCall);
  if (request.constraint !== undefined) Object.assign(body, constraintFields(request, flavor));
  if (server.reasons) Object.assign(body, effortFields(request, server));
  Object.assign(body, continuationFields(request, flavor));
  if (request.logprobs === undefined) return;
  body['logprobs'] = true;
  body['top_logprobs'] = Math.max(request.logprobs, flavor.topLogprobsMin);
}

/** Puts the sampling fields. Part 1: these fields reach every model, each server under its own names. */
function putSampling(
  request: EngineRequest,
  { flavor, reasons, forward }: UpstreamServer,
  fields: Record<string, unknown>,
): void {
  const { sampling } = request;
  // Text completions have only one name.
  const limit = reasons && request.prompt.type === 'messages' ? flavor.reasoningLimit : 'max_tokens';
  fields[limit] = request.maxTokens + request.reasoningRoomTokens;
  const put = (name: string | undefined, value: unknown): void => {
    if (name !== undefined && value !== undefined) fields[name] = value;
  };
  const forwarded = (name: ForwardedField): string | undefined => (forward.includes(name) ? name : undefined);
  // Both mean the likeliest token, and so does the smallest temperature that vLLM does not treat as 0, with one candidate.
  const isGreedy = flavor.refusesGreedyChoices && request.choices > 1 && (sampling.temperature ?? 1) < 1e-5;
  const isNoTopP = flavor.refusesNoTopP && sampling.topP === 0;
  const topK = flavor.topK ?? forwarded('top_k');
  const greedyTemperature = isNoTopP && topK === undefined ? 0 : sampling.temperature;
  put('temperature', isGreedy ? 0.01 : greedyTemperature);
  put('top_p', isNoTopP || (flavor.refusesWholeTopP && sampling.topP === 1) ? undefined : sampling.topP);
  put(topK, isGreedy || isNoTopP ? 1 : sampling.topK);
  put(flavor.minP ?? forwarded('min_p'), sampling.minP);
  put(flavor.presencePenalty, sampling.presencePenalty);
  put('frequency_penalty', sampling.frequencyPenalty);
  put(flavor.repetitionPenalty ?? forwarded('repetition_penalty'), sampling.repetitionPenalty);
  const { seed } = sampling;
  if (seed !== undefined) put('seed', (flavor.hasSignedSeeds ? seed : Math.abs(seed)) % flavor.seedModulus);
  if (request.stop.length > 0) fields['stop'] = request.stop;
  if (request.choices > 1) fields['n'] = request.choices;
  put('logit_bias', request.logitBias);
}

/**
 * Returns the fields of a constraint. Fails closed: a server is never sent a constraint that it would not enforce; `dispatch` does not
 * choose such a backend.
 */
function constraintFields(request: EngineRequest, flavor: Flavor): Readonly<Record<string, unknown>> {
  const { constraint } = request;
  if (constraint === undefined) return {};
  const { type } = constraint.source;
  if (!flavor.enforces.includes(type)) throw cannotKeep(type);
  // A field without a value would not be sent, and the answer would be unconstrained.
  if (constraint.gbnf === undefined && !flavor.convertsItself(type, request.effort))
    throw new Error('a constraint was not compiled before its request went to a backend');
  return flavor.constraint(constraint, request.effort);
}

/** Returns the client's error for a constraint that no backend keeps. */
export const cannotKeep = (type: Constraint['type']): ApiError =>
  type === 'regex'
    ? new ApiError('unsupported_regex', 'The model cannot enforce a regular expression.', { param: 'regex' })
    : new ApiError('unsupported_response_format', 'The model cannot enforce this format.', {
        param: 'response_format.type',
      });

/** Returns the cache fields. Cached prompts are shared only within a scope, and never under zero data retention (reliability §3.5, §4). */
function cacheFields(
  request: EngineRequest,
  server: UpstreamServer,
  mayCachePrompt: boolean,
): Readonly<Record<string, unknown>> {
  return server.flavor.cacheIsolation === 'switch' ? { cache_prompt: mayCachePrompt } : saltFields(request, server);
}

/** Returns the same fields for tasks, which only read their prompts: servers cache those of models that use the last token's vector. */
export function saltFields(
  request: EngineRequest,
  { flavor, salts }: Pick<UpstreamServer, 'flavor' | 'salts'>,
): Readonly<Record<string, unknown>> {
  if (flavor.cacheIsolation !== 'salt') return {};
  // A unique salt makes what the server keeps of this request unreachable.
  const { cacheScope: scope, id, retain } = request;
  return { cache_salt: retain ? salts.of(scope) : salts.once(`${scope} ${id}`) };
}

/** Returns a plain string if there are only texts: the one form that all servers and templates accept. */
function contentOf(parts: readonly Part[]): string | readonly Readonly<Record<string, unknown>>[] {
  const [only] = parts;
  if (parts.length === 1 && only?.type === 'text') return only.text;
  if (parts.every((part) => part.type === 'text')) return parts.map((part) => part.text).join('\n');
  return parts.map((part) => {
    switch (part.type) {
      case 'text':
        return { type: 'text', text: part.text };
      case 'image':
        return { type: 'image_url', image_url: { url: new ImageUrl(part) } };
      case 'image-url':
        // Backends are in other networks, and would fetch it without any of the service's checks.
        throw new Error('an image was not fetched before its request went to a backend');
      case 'file':
        throw new ApiError('unsupported_feature', 'The model does not accept files.', { param: part.at });
    }
  });
}

function toolFieldsOf(
  tool: Tool,
  { bindsStrictTools, needsParameters }: Flavor,
  isForced: boolean,
): Readonly<Record<string, unknown>> {
  // null means absent, as everywhere; some servers refuse it.
  const parameters = tool.parameters ?? (needsParameters ? { type: 'object', properties: {} } : undefined);
  return {
    type: 'function',
    function: {
      name: tool.name,
      ...(tool.description === undefined ? {} : { description: tool.description }),
      ...(parameters === undefined ? {} : { parameters }),
      ...(isForced && bindsStrictTools ? { strict: true } : {}),
    },
  };
}
