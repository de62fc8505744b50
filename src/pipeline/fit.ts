import type { Model } from '../catalog/model.ts';
import { ApiError } from '../errors.ts';
import type { GenerationRequest, Message, Prompt, Tool } from '../generation/request.ts';
import type { InferenceRoute } from './route.ts';

/** The default of §4.2.1(1) for a model without an output cap. */
const defaultMaxTokens = 65_536;

/** Tokens that a chat template may add: around each message, and around the conversation. Generous on purpose. */
const templateTokensPerMessage = 16;
const templateTokens = 128;
/** Tokens with which a template explains how tools are called, once. */
const toolTemplateTokens = 1024;

export interface Fitted {
  readonly maxTokens: number;
  /** Tokens of the prompt, exact when `counted`, else an upper bound from its bytes. */
  readonly promptTokens: number;
  readonly counted: boolean;
}

/**
 * Decides how long the answer may be (specification §4.2.1). The prompt is bounded from its bytes; only where that
 * bound and `max_tokens` exceed the window is the engine asked to count. Throws `context_length_exceeded` 400.
 */
export async function fit(
  request: GenerationRequest,
  model: Model,
  route: InferenceRoute,
  countPrompt: () => Promise<number | 'too-long' | undefined>,
  suggestions: () => readonly Model[],
): Promise<Fitted> {
  const bound = promptTokenBound(request.prompt, request.tools);
  const wanted = wantedTokens(request.maxTokens, model, route);
  if (bound + wanted <= model.contextLength) return { maxTokens: wanted, promptTokens: bound, counted: false };

  const counted = await countPrompt();
  if (counted === 'too-long') throw contextLengthExceeded(model, undefined, wanted, suggestions());
  // Nobody can count here: the backend judges, and `dispatch` refits once when it refuses.
  if (counted === undefined) return { maxTokens: wanted, promptTokens: bound, counted: false };
  if (counted + wanted <= model.contextLength) return { maxTokens: wanted, promptTokens: counted, counted: true };

  const room = model.contextLength - counted;
  // §4.2.1(4) with contracts decision 14: once more without max_tokens, as long as the window leaves room.
  const mayShrink = route.retryWithoutMaxTokens || heeded(request.maxTokens, model) === undefined;
  if (room < 1 || !mayShrink) throw contextLengthExceeded(model, counted, wanted, suggestions());
  return { maxTokens: capped(room, model), promptTokens: counted, counted: true };
}

/** §4.2.1(4) when it is the backend that refused: what the window leaves, by the backend's own count when it told one. */
export function refitTokens(model: Model, promptTokens: number | undefined): number | undefined {
  if (promptTokens === undefined) return undefined;
  const room = model.contextLength - promptTokens;
  return room < 1 ? undefined : capped(room, model);
}

/** §4.2.1(1) to (3). */
function wantedTokens(asked: number | undefined, model: Model, route: InferenceRoute): number {
  const limit = heeded(asked, model);
  if (limit !== undefined) return capped(limit, model);
  if (model.maxOutputTokens !== null) return model.maxOutputTokens;
  return route.defaultMaxTokens === 'card'
    ? Math.min(defaultMaxTokens, Math.floor(model.contextLength / 2))
    : model.contextLength;
}

/** §4.2.1(3): larger than the whole window is as if it were not there. */
const heeded = (asked: number | undefined, model: Model): number | undefined =>
  asked !== undefined && asked <= model.contextLength ? asked : undefined;

const capped = (tokens: number, model: Model): number =>
  model.maxOutputTokens === null ? tokens : Math.min(tokens, model.maxOutputTokens);

/** Specification §7.2: the message suggests what to do, the extra fields say it to programs. */
export function contextLengthExceeded(
  model: Model,
  promptTokens: number | undefined,
  maxTokens: number,
  larger: readonly Model[],
): ApiError {
  const prompt = promptTokens === undefined ? 'The prompt' : `The prompt of ${promptTokens} tokens`;
  return new ApiError(
    'context_length_exceeded',
    `${prompt} with max_tokens ${maxTokens} does not fit the context window of ${model.contextLength} tokens. Lower max_tokens, trim the prompt, or choose a model with a larger context.`,
    {
      param: 'messages',
      extra: {
        model: model.id,
        context_length_limit: model.contextLength,
        suggested_models: larger.map(({ id, contextLength }) => ({ id, context_length: contextLength })),
      },
    },
  );
}

/** Bytes per token of ordinary text, on the high side, so that the estimate is on the low one. */
const bytesPerToken = 4;

/** What is charged for a prompt whose length nobody tells. */
export const promptTokensLikely = (bound: number): number => Math.ceil(bound / bytesPerToken);

/** No tokenizer makes more tokens of a text than it has UTF-8 bytes; the template adds a few to each message and tool. */
export function promptTokenBound(prompt: Prompt, tools: readonly Tool[]): number {
  const ofTools =
    tools.length === 0 ? 0 : tools.reduce((sum, tool) => sum + toolBytes(tool) + templateTokens, toolTemplateTokens);
  return promptBytes(prompt) + ofTools;
}

function promptBytes(prompt: Prompt): number {
  switch (prompt.type) {
    case 'messages':
      return prompt.messages.reduce(
        (sum, message) => sum + messageBytes(message) + templateTokensPerMessage,
        templateTokens,
      );
    case 'token-ids':
      return prompt.prompts.reduce((sum, ids) => sum + ids.length, 0);
    case 'texts':
      return prompt.prompts.reduce((sum, text) => sum + Buffer.byteLength(text) + 1, 0);
  }
}

function messageBytes(message: Message): number {
  let bytes = 0;
  for (const part of message.content) if (part.type === 'text') bytes += Buffer.byteLength(part.text);
  if (message.role === 'assistant') {
    for (const reasoning of message.reasoning) bytes += Buffer.byteLength(reasoning.text);
    for (const call of message.toolCalls)
      bytes += call.id.length * 3 + Buffer.byteLength(call.name) + Buffer.byteLength(call.arguments) + templateTokens;
  }
  if (message.role === 'tool') bytes += (message.toolCallId ?? '').length * 3;
  return bytes;
}

/** Twice the schema: templates indent it. Decoding has bounded how deep it nests. */
const toolBytes = (tool: Tool): number =>
  Buffer.byteLength(tool.name) +
  Buffer.byteLength(tool.description ?? '') +
  2 * Buffer.byteLength(JSON.stringify(tool.parameters ?? {}));
