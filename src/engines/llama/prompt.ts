import { ApiError } from '../../errors.ts';
import type { EngineRequest, Prompt } from '../../generation/request.ts';
import type { LlamaModel } from './bindings.ts';
import type { ChatTemplate, Piece } from './chat-template.ts';

/** The fields of a request that decide its prompts. */
export type PromptRequest = Pick<EngineRequest, 'prompt' | 'effort'>;

/**
 * Turns prompts into token ids such that no text of a client becomes a token that steers the model (reliability §3.4).
 *
 * A rendered conversation is cut at the control tokens that the template wrote; what lies between, template and client text
 * together, is split as plain text. So ordinary text has the very ids that it has when everything is parsed at once, and a
 * literal `<|im_end|>` of a client is seven harmless tokens. User-defined tokens (`</think>`) are found by llama.cpp in any
 * text: those that the template itself writes, or that look like structure, are broken where a client spells them.
 */
export class PromptTokenizer {
  readonly #model: LlamaModel;
  readonly #template: ChatTemplate | undefined;
  readonly #structure: StructureTokens;

  constructor(model: LlamaModel, template: ChatTemplate | undefined) {
    this.#model = model;
    this.#template = template;
    this.#structure = new StructureTokens(model, template?.source ?? '');
  }

  /** The ids of each prompt of a request, all of them within the window; else a refusal in words. */
  prompts(request: PromptRequest): readonly (readonly number[])[] {
    const prompts = this.#idsOf(request);
    const limit = this.#model.facts.contextLength;
    for (const [index, ids] of prompts.entries()) {
      if (ids.length === 0)
        throw new ApiError('unsupported_value', 'The prompt is empty.', { param: paramOf(request.prompt, index) });
      if (ids.length + 1 > limit) throw tooLong(`The prompt has ${ids.length} tokens`, limit, ids.length);
    }
    return prompts;
  }

  #idsOf(request: PromptRequest): readonly (readonly number[])[] {
    const { prompt } = request;
    switch (prompt.type) {
      case 'messages':
        return [this.#conversation(request, prompt)];
      case 'texts':
        return prompt.prompts.map((text, index) => {
          refuseBomb(text, `prompt[${index}]`);
          return this.#withBos(this.#plain(text));
        });
      case 'token-ids':
        return prompt.prompts.map((ids, index) => this.#validated(ids, index));
    }
  }

  #conversation(request: PromptRequest, prompt: Extract<Prompt, { type: 'messages' }>): readonly number[] {
    if (this.#template === undefined) {
      throw new ApiError('unsupported_feature', 'This model has no chat template: use text completions.', {
        param: 'messages',
      });
    }
    const pieces = this.#template.render(prompt.messages, { thinking: request.effort !== 'none' });
    for (const piece of pieces) if (piece.client) refuseBomb(piece.text, 'messages');
    return this.#withBos(this.#joined(pieces));
  }

  #joined(pieces: readonly Piece[]): number[] {
    const ids: number[] = [];
    let region = '';
    let stripsAfter = false;
    const close = (stripsBefore: boolean) => {
      const text = stripsAfter ? region.trimStart() : region;
      append(ids, this.#plain(stripsBefore ? text.trimEnd() : text));
      region = '';
    };
    for (const piece of pieces) {
      if (piece.client) region += piece.text;
      else {
        let end = 0;
        for (const found of this.#structure.findAll(piece.text)) {
          region += piece.text.slice(end, found.at);
          close(found.stripsBefore);
          ids.push(found.id);
          stripsAfter = found.stripsAfter;
          end = found.at + found.literal.length;
        }
        region += piece.text.slice(end);
      }
    }
    close(false);
    return ids;
  }

  /** The ids of a text without any token that steers: each one that appears is broken up, until none is left. */
  #plain(text: string): readonly number[] {
    let parts: readonly string[] = [text];
    for (let round = 0; round < breakRoundsMax; round++) {
      const ids = parts.flatMap((part, index) =>
        index === 0 ? [...this.#model.tokenize(part, false)] : this.#continued(part),
      );
      const literal = this.#structure.literalAmong(ids);
      if (literal === undefined) return ids;
      const broken = parts.flatMap((part) => breakAt(part, literal));
      if (broken.length === parts.length) break;
      parts = broken;
    }
    throw new ApiError('unsupported_value', 'The prompt has text that this model cannot take as plain text.');
  }

  /** Ids of a part that follows another: SentencePiece would put a blank before it, so a line break is, and is taken away. */
  #continued(part: string): readonly number[] {
    const anchor = [...this.#model.tokenize('\n', false)];
    const ids = [...this.#model.tokenize(`\n${part}`, false)];
    return anchor.every((id, index) => ids[index] === id)
      ? ids.slice(anchor.length)
      : [...this.#model.tokenize(part, false)];
  }

  #withBos(ids: readonly number[]): readonly number[] {
    const { bos, prependBos } = this.#model.facts;
    return prependBos && bos !== undefined && ids[0] !== bos ? [bos, ...ids] : ids;
  }

  #validated(ids: readonly number[], index: number): readonly number[] {
    const size = this.#model.facts.vocabularySize;
    const bad = ids.find((id) => !Number.isInteger(id) || id < 0 || id >= size);
    if (bad === undefined) return ids;
    throw new ApiError('unsupported_value', `A token id is not between 0 and ${size - 1}.`, {
      param: `prompt[${index}]`,
    });
  }
}

/**
 * Refuses, before anything is spent on it, a request whose text cannot fit the window: no tokenizer here reaches 16 bytes a
 * token on more than runs of blanks (reliability §3.4, token bombs).
 */
export function refuseOversized(prompt: Prompt, contextLength: number): void {
  const bytesMax = contextLength * 16;
  if (prompt.type === 'messages' && prompt.messages.length > contextLength) {
    throw tooLong(`The prompt has ${prompt.messages.length} messages`, contextLength);
  }
  if (bytesOf(prompt, bytesMax) > bytesMax) throw tooLong(`The prompt is longer than ${bytesMax} bytes`, contextLength);
}

/** The tokens that steer a model. */
class StructureTokens {
  readonly #literals = new Map<number, string>();
  /** By first character, longest first. */
  readonly #byStart = new Map<string, Found[]>();

  constructor(model: LlamaModel, template: string) {
    for (let id = 0; id < model.facts.vocabularySize; id++) {
      const { kind, stripsBefore, stripsAfter } = model.tokenTraits(id);
      if (kind === 'plain') continue;
      const literal = model.tokenText(id);
      if (literal === '' || (kind === 'user-defined' && !isStructure(literal, template))) continue;
      this.#literals.set(id, literal);
      const start = literal.charAt(0);
      this.#byStart.set(start, [
        ...(this.#byStart.get(start) ?? []),
        { id, literal, at: 0, stripsBefore, stripsAfter },
      ]);
    }
    for (const found of this.#byStart.values()) found.sort((a, b) => b.literal.length - a.literal.length);
  }

  *findAll(text: string): Generator<Found> {
    for (let at = 0; at < text.length; at++) {
      const found = this.#byStart.get(text.charAt(at))?.find(({ literal }) => text.startsWith(literal, at));
      if (found === undefined) continue;
      yield { ...found, at };
      at += found.literal.length - 1;
    }
  }

  literalAmong(ids: readonly number[]): string | undefined {
    const id = ids.find((candidate) => this.#literals.has(candidate));
    return id === undefined ? undefined : this.#literals.get(id);
  }
}

interface Found {
  readonly id: number;
  readonly literal: string;
  readonly at: number;
  readonly stripsBefore: boolean;
  readonly stripsAfter: boolean;
}

/** Some vocabularies have HTML tags, words or runs of blanks as user-defined tokens: those are text and stay whole. */
function isStructure(literal: string, template: string): boolean {
  if (literal.trim().length < 2 || !/[^\p{L}\p{N}\s]/u.test(literal)) return false;
  return (
    template.includes(literal) ||
    /^<[|｜].*[|｜]>$/u.test(literal) ||
    /^<\/?(?:think|tool_call|tool_response)>$/.test(literal)
  );
}

const breakRoundsMax = 32;

/** Cuts a text inside each occurrence of a literal, after its first character. */
function breakAt(text: string, literal: string): readonly string[] {
  const parts: string[] = [];
  let start = 0;
  for (let at = text.indexOf(literal); at >= 0; at = text.indexOf(literal, start)) {
    const cut = at + ((literal.codePointAt(0) ?? 0) > 0xffff ? 2 : 1);
    parts.push(text.slice(start, cut));
    start = cut;
  }
  return [...parts, text.slice(start)];
}

/** llama.cpp splits some vocabularies with std::regex, whose stack overflows on long runs of one class of characters. */
function refuseBomb(text: string, param: string): void {
  if (text.length <= runLengthMax) return;
  for (const [run] of text.matchAll(/[\p{L}\p{M}]+|\p{N}+|\s+|[^\p{L}\p{M}\p{N}\s]+/gu)) {
    if (run.length > runLengthMax) {
      throw new ApiError(
        'unsupported_value',
        `A text has more than ${runLengthMax} letters, digits, blanks or signs in a row.`,
        { param },
      );
    }
  }
}

const runLengthMax = 8192;

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

/** Bytes of all text, counted no further than the bound; ids count what they would take at most. */
function bytesOf(prompt: Prompt, bytesMax: number): number {
  switch (prompt.type) {
    case 'token-ids':
      return Math.max(0, ...prompt.prompts.map((ids) => ids.length * 16));
    case 'texts':
      return Math.max(0, ...prompt.prompts.map((text) => Buffer.byteLength(text)));
    case 'messages': {
      let bytes = 0;
      for (const message of prompt.messages) {
        for (const part of message.content) if (part.type === 'text') bytes += Buffer.byteLength(part.text);
        if (message.role === 'assistant') {
          for (const { text } of message.reasoning) bytes += Buffer.byteLength(text);
          for (const call of message.toolCalls)
            bytes += Buffer.byteLength(call.name) + Buffer.byteLength(call.arguments);
        }
        if (bytes > bytesMax) return bytes;
      }
      return bytes;
    }
  }
}

function append(ids: number[], more: readonly number[]): void {
  // Spreading a long list into push() overflows the stack.
  for (const id of more) ids.push(id);
}
