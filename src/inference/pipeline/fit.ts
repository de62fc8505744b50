import type { Model } from '../../catalog/model.ts';
import { ApiError } from '../../platform/errors.ts';
import type { GenerationRequest, ImageTokens, Message, Prompt, Task, Tool } from '../../generation/request.ts';
import type { LengthRefusal } from './length-refusal.ts';
import { bytesPerToken } from './prompt-lengths.ts';
import type { Route } from './route.ts';

/** The fields of a route that affect lengths. */
type LengthPolicy = Pick<Route, 'defaultMaxTokens' | 'retryWithoutMaxTokens'>;

/** The default of §4.2.1(1) for a model without an output cap. */
const defaultMaxTokens = 65_536;

/** Tokens that a chat template may add around each message, and around the conversation. Deliberately generous. */
const templateTokensPerMessage = 16;
const templateTokens = 128;
/** Tokens that a template spends once on explaining tool calls. */
const toolTemplateTokens = 1024;

export interface Fitted {
  readonly maxTokens: number;
  /** Extra tokens allowed for reasoning (§4.2.1(5)). */
  readonly reasoningRoomTokens: number;
  /** Tokens of all prompts together; exact when `counted`, otherwise an upper bound from their bytes. */
  readonly promptTokens: number;
  readonly counted: boolean;
  /** Most tokens that any tokenizer and template could make of all prompts together, regardless of the count. */
  readonly promptTokensPossible: number;
  /** `maxTokens` is what the window leaves, and less than requested. */
  readonly limitedByContext: boolean;
}

/** The fields of a request that affect its length. */
export interface FittedRequest extends Pick<GenerationRequest, 'prompt' | 'tools' | 'maxTokens' | 'at'> {
  /** Extra room for reasoning, from the model's card; 0 without reasoning. */
  readonly reasoningRoomTokens: number;
}

/** Counts one prompt, without its images. */
type CountPrompt = (prompt: Prompt) => Promise<number | 'too-long' | undefined>;

/**
 * Decides how long the answer may be (specification §4.2.1). The prompt is bounded by its bytes; the engine is asked to count only if that
 * bound and `max_tokens` exceed the window; without `countPrompt` the result is then undecided. Throws `context_length_exceeded` 400.
 *
 * Each prompt of a batch has the window to itself, so the longest one decides (contracts §1.1). `countPrompt` counts one prompt and leaves
 * images out. Images count as `images` says (§4.2.4(3)): the likely number for the window, on which the backend has the last word, and the
 * largest possible number for the hold.
 *
 * The room of §4.2.1(5) extends beyond `max_tokens`, but not beyond what the card promises: answer and reasoning together stay within
 * `max_output_tokens`, which caps the output, and within the window.
 */
export function fit(
  request: FittedRequest,
  model: Model,
  route: LengthPolicy,
  countPrompt: CountPrompt,
  suggestions: () => readonly Model[],
  images?: ImageTokens,
): Fitted | Promise<Fitted>;
export function fit(
  request: FittedRequest,
  model: Model,
  route: LengthPolicy,
  countPrompt: CountPrompt | undefined,
  suggestions: () => readonly Model[],
  images?: ImageTokens,
): Fitted | Promise<Fitted> | undefined;
export function fit(
  request: FittedRequest,
  model: Model,
  route: LengthPolicy,
  countPrompt: CountPrompt | undefined,
  suggestions: () => readonly Model[],
  images: ImageTokens = noImages,
): Fitted | Promise<Fitted> | undefined {
  const wanted = wantedTokens(request.maxTokens, model, route);
  const tooLong = (tokens: number | undefined): ApiError =>
    contextLengthExceeded(model, tokens, wanted, suggestions(), request.at.prompt);
  const single = singlePrompts(request.prompt);
  // Checked before the prompt is serialized to be measured or counted.
  if (single.some((prompt) => isHopeless(prompt, model))) throw tooLong(undefined);
  const prompts = single.map((prompt) => {
    const bound = promptTokenBound(prompt, request.tools) + images.most;
    // Token ids are exact, and no tokens are added to them.
    return { prompt, likely: bound, most: bound, isExact: prompt.type === 'token-ids' };
  });
  // A server may put its beginning-of-text token before ids as well.
  const promptTokensPossible = prompts.reduce((sum, { most, isExact }) => sum + most + (isExact ? 1 : 0), 0);
  const roomy = capped(wanted + request.reasoningRoomTokens, model);
  const fitted = (maxTokens: number): Fitted => {
    const left = Math.max(0, model.contextLength - longest(prompts, 'most') - maxTokens);
    const extra = Math.min(capped(maxTokens + request.reasoningRoomTokens, model) - maxTokens, left);
    const promptTokens = prompts.reduce((sum, { most }) => sum + most, 0);
    const counted = prompts.every(({ isExact }) => isExact);
    return {
      maxTokens,
      reasoningRoomTokens: extra,
      promptTokens,
      counted,
      promptTokensPossible,
      limitedByContext: false,
    };
  };
  const decided = (): Fitted => {
    const likely = longest(prompts, 'likely');
    if (likely + wanted <= model.contextLength) return fitted(wanted);
    const room = model.contextLength - likely;
    // §4.2.1(4) with contracts decision 14: one retry without max_tokens, if the window leaves room.
    const mayShrink = route.retryWithoutMaxTokens || heeded(request.maxTokens, model) === undefined;
    if (room < 1 || !mayShrink) throw tooLong(likely);
    const maxTokens = capped(room, model);
    return { ...fitted(maxTokens), limitedByContext: maxTokens === room };
  };
  const uncertain = prompts.filter(({ isExact, most }) => !isExact && most + roomy > model.contextLength);
  const counted = async (by: CountPrompt): Promise<Fitted> => {
    for (const one of uncertain) {
      const count = await by(one.prompt);
      if (count === 'too-long') throw tooLong(undefined);
      // No exact count is available: the backend decides, and `dispatch` refits once if it refuses.
      if (count === undefined) return fitted(wanted);
      one.likely = count + images.likely;
      one.most = count + images.most;
      one.isExact = images.most === 0;
    }
    return decided();
  };
  if (uncertain.length === 0) return decided();
  return countPrompt === undefined ? undefined : counted(countPrompt);
}

/** The lengths used for limits and credit until the prompt has been read or counted: never more than the window holds. */
export function likelyFit(
  { prompt, tools, maxTokens, task }: Pick<GenerationRequest, 'prompt' | 'tools' | 'maxTokens' | 'task'>,
  model: Model,
  route: LengthPolicy,
  images: ImageTokens,
): Fitted {
  const most = promptTokenBound(prompt, tools, task) + images.most;
  return {
    maxTokens: task === undefined ? Math.min(wantedTokens(maxTokens, model, route), model.contextLength) : 0,
    reasoningRoomTokens: 0,
    promptTokens: task === undefined ? Math.max(images.most, Math.min(most, model.contextLength)) : most,
    counted: false,
    promptTokensPossible: most,
    limitedByContext: false,
  };
}

/** Most tokens of one request, all inputs together: OpenAI's bound. It keeps a request within its backend's time limit. */
const taskTokensMax = 300_000;

/**
 * The same for a task, which has no answer: each prompt has to fit the window, and all together the bound above. Counts only prompts whose
 * bytes do not already show that they fit; without `countPrompt` the result is then undecided. Throws `context_length_exceeded` with the
 * number of the prompt that is too long, and `unsupported_value` for too many tokens.
 */
export async function fitTask(
  request: Pick<GenerationRequest, 'at' | 'prompt'> & { readonly task: Task },
  model: Model,
  countPrompt: CountPrompt | undefined,
  suggestions: () => readonly Model[],
): Promise<Fitted | undefined> {
  const { at, prompt, task } = request;
  const isIds = prompt.type === 'token-ids';
  let canCount = !isIds;
  let isExact = true;
  let most = 0;
  let likely = 0;
  for (const [index, one] of singlePrompts(prompt).entries()) {
    if (isHopeless(one, model)) throw inputTooLong(model, undefined, suggestions(), at.promptAt?.(index) ?? at.prompt);
    const bound = promptTokenBound(one, [], task);
    let counted: number | 'too-long' | undefined = isIds ? bound : undefined;
    if (canCount && bound > model.contextLength) {
      if (countPrompt === undefined) return undefined;
      counted = await countPrompt(one);
      // The backend checks the others too.
      canCount = counted !== undefined;
    }
    if (counted === 'too-long' || (counted !== undefined && counted > model.contextLength))
      throw inputTooLong(model, counted, suggestions(), at.promptAt?.(index) ?? at.prompt);
    isExact &&= counted !== undefined;
    most += counted ?? bound;
    likely += counted ?? promptTokensLikely(bound);
  }
  if (likely > taskTokensMax) {
    throw new ApiError(
      'unsupported_value',
      `A request may have at most ${taskTokensMax} tokens in all; split it into several.`,
      { param: at.prompt },
    );
  }
  const possible = promptTokenBound(prompt, [], task);
  return {
    maxTokens: 0,
    reasoningRoomTokens: 0,
    promptTokens: most,
    counted: isExact,
    // A server may put special tokens around ids as well.
    promptTokensPossible: isIds ? possible + markTokens * prompt.prompts.length : possible,
    limitedByContext: false,
  };
}

/** A conversation as one prompt, or each prompt of a batch on its own. */
function singlePrompts(prompt: Prompt): readonly Prompt[] {
  switch (prompt.type) {
    case 'messages':
      return [prompt];
    case 'texts':
      return prompt.prompts.map((text) => ({ type: 'texts', prompts: [text] }));
    case 'token-ids':
      return prompt.prompts.map((ids) => ({ type: 'token-ids', prompts: [ids] }));
  }
}

const longest = <Field extends 'likely' | 'most'>(
  prompts: readonly Readonly<Record<Field, number>>[],
  field: Field,
): number => prompts.reduce((most, prompt) => Math.max(most, prompt[field]), 0);

const noImages: ImageTokens = { likely: 0, most: 0 };

/** §4.2.1(4) after a refusal by the backend: what the window leaves, by the backend's own count if it has reported one. */
export function retryTokens(
  model: Model,
  { promptTokens, windowTokens = Infinity }: LengthRefusal,
): number | undefined {
  if (promptTokens === undefined) return undefined;
  const room = Math.min(windowTokens, model.contextLength) - promptTokens;
  return room < 1 ? undefined : capped(room, model);
}

/** §4.2.1(1) to (3). */
function wantedTokens(asked: number | undefined, model: Model, route: LengthPolicy): number {
  const limit = heeded(asked, model);
  if (limit !== undefined) return capped(limit, model);
  if (typeof route.defaultMaxTokens === 'number') return capped(route.defaultMaxTokens, model);
  if (model.maxOutputTokens !== null) return model.maxOutputTokens;
  return route.defaultMaxTokens === 'card'
    ? Math.min(defaultMaxTokens, Math.floor(model.contextLength / 2))
    : model.contextLength;
}

/** §4.2.1(3): a value larger than the whole window is treated as absent. */
const heeded = (asked: number | undefined, model: Model): number | undefined =>
  asked !== undefined && asked <= model.contextLength ? asked : undefined;

const capped = (tokens: number, model: Model): number =>
  model.maxOutputTokens === null ? tokens : Math.min(tokens, model.maxOutputTokens);

/** Specification §7.2: the message suggests what to do, and the extra fields say it for programs. */
export function contextLengthExceeded(
  model: Model,
  promptTokens: number | undefined,
  maxTokens: number,
  larger: readonly Model[],
  param: string,
  windowTokens = model.contextLength,
): ApiError {
  const prompt = promptTokens === undefined ? 'The prompt' : `The prompt of ${promptTokens} tokens`;
  return new ApiError(
    'context_length_exceeded',
    `${prompt} with max_tokens ${maxTokens} does not fit the context window of ${windowTokens} tokens. Lower max_tokens, trim the prompt, or choose a model with a larger context.`,
    {
      param,
      extra: {
        model: model.id,
        context_length_limit: windowTokens,
        ...(promptTokens === undefined ? {} : { prompt_tokens: promptTokens }),
        max_tokens: maxTokens,
        suggested_models: larger.map(({ id, contextLength }) => ({ id, context_length: contextLength })),
      },
    },
  );
}

/** The same for a prompt that fits the window, but that this computer could not read within its time limit. */
export function readingTimeExceeded(
  model: Model,
  { promptTokens, windowTokens, readingSeconds }: LengthRefusal,
  larger: readonly Model[],
  param: string,
): ApiError {
  return new ApiError(
    'context_length_exceeded',
    `The prompt of ${promptTokens} tokens cannot be read in the ${readingSeconds} seconds that it has here, in which this model reads about ${windowTokens}. Trim the prompt, or choose a faster model.`,
    {
      param,
      extra: {
        model: model.id,
        context_length_limit: windowTokens,
        prompt_tokens: promptTokens,
        suggested_models: larger.map(({ id, contextLength }) => ({ id, context_length: contextLength })),
      },
    },
  );
}

/** Specification §7.2, for requests without an answer. */
export function inputTooLong(
  model: Model,
  promptTokens: number | 'too-long' | undefined,
  larger: readonly Model[],
  param: string,
  windowTokens = model.contextLength,
): ApiError {
  const length = typeof promptTokens === 'number' ? { prompt_tokens: promptTokens } : {};
  const size = typeof promptTokens === 'number' ? ` of ${promptTokens} tokens` : '';
  return new ApiError(
    'context_length_exceeded',
    `'${param}'${size} does not fit the context window of ${windowTokens} tokens. Shorten it, or choose a model with a larger context.`,
    {
      param,
      extra: {
        model: model.id,
        context_length_limit: windowTokens,
        ...length,
        suggested_models: larger.map(({ id, contextLength }) => ({ id, context_length: contextLength })),
      },
    },
  );
}

/** The charge for a prompt whose length was never reported. */
export const promptTokensLikely = (bound: number): number => Math.ceil(bound / bytesPerToken);

/** No tokenizer makes more tokens of a text than it has UTF-8 bytes; the template adds a few for each message and tool. */
export function promptTokenBound(prompt: Prompt, tools: readonly Tool[], task?: Task): number {
  const ofTask = task === undefined || prompt.type !== 'texts' ? 0 : prompt.prompts.length * taskTokens(task);
  const ofTools =
    tools.length === 0 ? 0 : tools.reduce((sum, tool) => sum + toolBytes(tool) + templateTokens, toolTemplateTokens);
  return promptBytes(prompt) + ofTools + ofTask;
}

/** No text averages this many bytes per token: the longest tokens are runs of up to 128 blanks. */
const bytesPerTokenMax = 64;

/** Whether the prompt exceeds the window with any tokenizer. Images are not counted, and token ids are known. */
function isHopeless(prompt: Prompt, { contextLength }: Model): boolean {
  if (prompt.type === 'token-ids') return false;
  let characters = 0;
  if (prompt.type === 'texts') for (const text of prompt.prompts) characters += text.length;
  else
    for (const { content } of prompt.messages)
      for (const part of content) if (part.type === 'text') characters += part.text.length;
  return characters > contextLength * bytesPerTokenMax;
}

/** Special tokens that an encoder puts around a text. */
const markTokens = 3;

/** Tokens around each text: special tokens, or the query with its template. */
const taskTokens = (task: Task): number =>
  task.type === 'embed' ? markTokens : Buffer.byteLength(task.query) + templateTokens;

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
      bytes += 2 * quotedBytes(call.id) + quotedBytes(call.name) + argumentsBytes(call.arguments) + templateTokens;
  }
  // Some templates print tool results as JSON, and some put them between tags.
  if (message.role === 'tool') {
    bytes += 2 * quotedBytes(message.toolCallId ?? '') + templateTokens;
    for (const part of message.content)
      if (part.type === 'text') bytes += quotedBytes(part.text) - Buffer.byteLength(part.text);
  }
  return bytes;
}

const quotedBytes = (text: string): number => Buffer.byteLength(JSON.stringify(text));

/** Templates reprint arguments with a blank after each comma and colon, or quote those that are not JSON. */
const argumentsBytes = (text: string): number => Math.max(2 * Buffer.byteLength(text), quotedBytes(text));

/** Counts the schema twice: templates indent it. Decoding has bounded the nesting depth. */
const toolBytes = (tool: Tool): number =>
  quotedBytes(tool.name) +
  quotedBytes(tool.description ?? '') +
  2 * Buffer.byteLength(JSON.stringify(tool.parameters ?? {}));
