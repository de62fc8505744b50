import { ApiError } from '../../../platform/errors.ts';
import type { EngineRequest, Message, Prompt, Tool } from '../../../generation/request.ts';
import type { LlamaModel } from './llama-model.ts';
import type { ChatTemplate } from './chat-template.ts';
import type { Piece } from './client-text-marks.ts';
import { PlainTokenizer, refuseBomb } from './plain-text.ts';

/** The fields of a request that determine its prompts. */
export type PromptRequest = Pick<EngineRequest, 'prompt' | 'effort' | 'tokens'> & ToolsRequest;
type ToolsRequest = Partial<Pick<EngineRequest, 'tools' | 'toolChoice'>>;

/** Returns the tools shown to the model: none if it may not call any. */
export function offeredTools({ tools = [], toolChoice }: ToolsRequest): readonly Tool[] {
  return toolChoice?.type === 'none' ? [] : tools;
}

/**
 * Turns prompts into token ids such that no client text becomes a token that steers the model (reliability §3.4).
 *
 * A rendered conversation is cut at the control tokens that the template wrote; the parts between, template and client text together, are
 * split as plain text. So ordinary text has the same ids as when everything is parsed together, and a client's literal `<|im_end|>` is
 * seven harmless tokens. llama.cpp finds user-defined tokens (`</think>`) in any text: those that the template itself writes, or that look
 * like structure, are broken where a client spells them.
 */
export class PromptTokenizer {
  readonly #model: LlamaModel;
  readonly #template: ChatTemplate | undefined;
  readonly #plain: PlainTokenizer;

  constructor(model: LlamaModel, template: ChatTemplate | undefined) {
    this.#model = model;
    this.#template = template;
    this.#plain = new PlainTokenizer(model, template?.source ?? '');
  }

  /** Returns the ids of each prompt of a request, all within the window; otherwise throws a readable refusal. */
  prompts(request: PromptRequest): readonly (readonly number[])[] {
    const work = this.promptsInPieces(request);
    for (;;) {
      const { done, value } = work.next();
      if (done === true) return value;
    }
  }

  /** Does the same in pieces of some milliseconds, so that answers continue between them. */
  *promptsInPieces(request: PromptRequest): Generator<void, readonly (readonly number[])[]> {
    refuseBombs(request);
    const prompts = yield* this.#idsOf(request);
    for (const [index, ids] of prompts.entries()) {
      if (ids.length === 0)
        throw new ApiError('unsupported_value', 'The prompt is empty.', { param: paramOf(request.prompt, index) });
      const limit = this.#model.facts.contextLength;
      if (ids.length + 1 > limit) throw tooLong(`The prompt has ${ids.length} tokens`, limit, ids.length);
    }
    return prompts;
  }

  *#idsOf(request: PromptRequest): Generator<void, readonly (readonly number[])[]> {
    const { prompt } = request;
    switch (prompt.type) {
      case 'messages':
        return [yield* this.#conversation(request, prompt)];
      case 'texts': {
        const prompts: (readonly number[])[] = [];
        for (const text of prompt.prompts) {
          const ids: number[] = [];
          yield* this.#appendPlain(ids, text);
          prompts.push(request.tokens?.addsSpecial === false ? ids : this.#withBos(ids));
        }
        return prompts;
      }
      case 'token-ids':
        return prompt.prompts.map((ids, index) => this.#validated(ids, index, prompt.prompts.length === 1));
    }
  }

  *#conversation(
    request: PromptRequest,
    prompt: Extract<Prompt, { type: 'messages' }>,
  ): Generator<void, readonly number[]> {
    if (this.#template === undefined) {
      throw new ApiError('unsupported_feature', 'This model has no chat template: use /v1/completions.', {
        param: 'messages',
      });
    }
    const pieces = this.#template.render(prompt.messages, {
      effort: request.effort,
      tools: offeredTools(request),
    });
    return this.#withBos(yield* this.#joined(pieces));
  }

  *#joined(pieces: readonly Piece[]): Generator<void, number[]> {
    const ids: number[] = [];
    let region = '';
    let stripsAfter = false;
    const stripped = (stripsBefore: boolean): string => {
      const text = stripsAfter ? region.trimStart() : region;
      return stripsBefore ? text.trimEnd() : text;
    };
    for (const piece of pieces) {
      if (piece.client) region += piece.text;
      else {
        let end = 0;
        for (const found of this.#plain.steeringTokens(piece.text)) {
          region += piece.text.slice(end, found.at);
          yield* this.#appendPlain(ids, stripped(found.stripsBefore));
          region = '';
          ids.push(found.id);
          stripsAfter = found.stripsAfter;
          end = found.at + found.literal.length;
        }
        region += piece.text.slice(end);
      }
    }
    yield* this.#appendPlain(ids, stripped(false));
    return ids;
  }

  /** Appends plain text. A prompt of twice the window is given up without counting further, so its cost is bounded by the window. */
  *#appendPlain(ids: number[], text: string): Generator<void> {
    const limit = this.#model.facts.contextLength;
    if (!(yield* this.#plain.append(ids, text, limit * 2)))
      throw tooLong(`The prompt has more than ${limit * 2} tokens`, limit);
  }

  #withBos(ids: readonly number[]): readonly number[] {
    const { bos, prependBos } = this.#model.facts;
    return prependBos && bos !== undefined && ids[0] !== bos ? [bos, ...ids] : ids;
  }

  /** Validates ids again; the service has already checked them if the model was loaded then. */
  #validated(ids: readonly number[], index: number, isOnly: boolean): readonly number[] {
    const size = this.#model.facts.vocabularySize;
    const bad = ids.findIndex((id) => !Number.isInteger(id) || id < 0 || id >= size);
    if (bad < 0) return ids;
    throw new ApiError('unsupported_value', `A token id is not between 0 and ${size - 1}.`, {
      param: isOnly ? `prompt[${bad}]` : `prompt[${index}][${bad}]`,
    });
  }
}

/**
 * Refuses, before any further work, a request whose text cannot fit the window: no tokenizer here reaches 16 bytes a token except on runs
 * of blanks (reliability §3.4, token bombs).
 */
export function refuseOversized(prompt: Prompt, contextLength: number, tools: readonly Tool[] = []): void {
  const bytesMax = contextLength * 16;
  if (prompt.type === 'messages') {
    if (prompt.messages.length > contextLength)
      throw tooLong(`The prompt has ${prompt.messages.length} messages`, contextLength);
    const turns = prompt.messages.reduce(
      (sum, message) => sum + 1 + (message.role === 'assistant' ? message.toolCalls.length : 0),
      0,
    );
    // Each takes a template about 50 µs without interruption, during which no other request is served.
    if (turns > turnsMax) {
      throw new ApiError('unsupported_value', `A conversation may have at most ${turnsMax} messages and tool calls.`, {
        param: 'messages',
      });
    }
  }
  const toolBytes = tools.reduce((sum, tool) => sum + textsOfTool(tool).join('').length, 0);
  if (bytesOf(prompt, bytesMax) + toolBytes > bytesMax)
    throw tooLong(`The prompt is longer than ${bytesMax} bytes`, contextLength);
}

const turnsMax = 4096;

/** Searches the client's text for token bombs before any of it is rendered or split. */
function refuseBombs(request: PromptRequest): void {
  const { prompt } = request;
  for (const tool of offeredTools(request)) for (const text of textsOfTool(tool)) refuseBomb(text, 'tools');
  switch (prompt.type) {
    case 'token-ids':
      return;
    case 'texts':
      for (const [index, text] of prompt.prompts.entries()) refuseBomb(text, `prompt[${index}]`);
      return;
    case 'messages':
      for (const message of prompt.messages) for (const text of textsOf(message)) refuseBomb(text, 'messages');
  }
}

function* textsOf(message: Message): Generator<string> {
  for (const part of message.content) if (part.type === 'text') yield part.text;
  if (message.role !== 'assistant') return;
  for (const { text } of message.reasoning) yield text;
  for (const call of message.toolCalls) yield* [call.name, call.arguments];
}

function textsOfTool({ name, description, parameters }: Tool): readonly string[] {
  return [name, description ?? '', JSON.stringify(parameters ?? {})];
}

function tooLong(what: string, limit: number, promptTokens?: number): ApiError {
  return new ApiError(
    'context_length_exceeded',
    `${what}, which leaves no room for an answer in the model's context window of ${limit} tokens. Shorten the prompt, or choose a model with a larger window.`,
    { extra: { context_length_limit: limit, ...(promptTokens === undefined ? {} : { prompt_tokens: promptTokens }) } },
  );
}

function paramOf(prompt: Prompt, index: number): string {
  return prompt.type === 'messages' ? 'messages' : `prompt[${index}]`;
}

/** Returns the bytes of all text, counted no further than the bound; ids count their largest possible size. */
function bytesOf(prompt: Prompt, bytesMax: number): number {
  switch (prompt.type) {
    case 'token-ids':
      return Math.max(0, ...prompt.prompts.map((ids) => ids.length * 16));
    case 'texts':
      return Math.max(0, ...prompt.prompts.map((text) => Buffer.byteLength(text)));
    case 'messages': {
      let bytes = 0;
      for (const message of prompt.messages) {
        for (const text of textsOf(message)) bytes += Buffer.byteLength(text);
        if (bytes > bytesMax) return bytes;
      }
      return bytes;
    }
  }
}
