import { ApiError } from '../../../platform/errors.ts';
import type { LlamaModel } from './llama-model.ts';

/** What a model knows about tokens. */
export type Vocabulary = Pick<LlamaModel, 'tokenize' | 'tokenText' | 'tokenTraits'> & {
  /** `unknown`: the token for characters without a token, which any text may become. */
  readonly facts: { readonly vocabularySize: number; readonly unknown?: number | undefined };
};

/** Splits clients' texts so that none becomes a token that steers the model (reliability §3.4). */
export class PlainTokenizer {
  readonly #vocabulary: Vocabulary;
  readonly #structure: StructureTokens;
  /** The ids of a line break at the beginning of a text. */
  readonly #anchor: Uint32Array;

  constructor(vocabulary: Vocabulary, template: string) {
    this.#vocabulary = vocabulary;
    this.#structure = new StructureTokens(vocabulary, template);
    this.#anchor = vocabulary.tokenize('\n', false);
  }

  /** Returns the steering tokens that a text spells, in order. */
  steeringTokens(text: string): Iterable<SteeringToken> {
    return this.#structure.findAll(text);
  }

  /**
   * Appends the ids of a text, a slice at a time: the tokenizer blocks this thread, and took 5 s for two megabytes of hostile text.
   * `false`: it was given up, because there are more than `tokensMax` now.
   */
  *append(ids: number[], text: string, tokensMax: number): Generator<void, boolean> {
    for (let start = 0; start < text.length;) {
      const end = sliceEnd(text, start);
      for (const id of this.#slice(text.slice(start, end), start > 0)) ids.push(id);
      if (ids.length > tokensMax) return false;
      start = end;
      yield;
    }
    return true;
  }

  /** Returns the ids of a slice without any steering token: each one that appears is broken up, until none is left. */
  #slice(slice: string, continues: boolean): readonly number[] {
    let parts: readonly string[] = [slice];
    for (let round = 0; round < breakRoundsMax; round++) {
      const ids: number[] = [];
      for (const [index, part] of parts.entries())
        append(ids, continues || index > 0 ? this.#continued(part) : this.#vocabulary.tokenize(part, false));
      const literals = this.#structure.literalsAmong(ids);
      if (literals.size === 0) return ids;
      const broken = [...literals].reduce((pieces, literal) => pieces.flatMap((part) => breakAt(part, literal)), parts);
      if (broken.length === parts.length) break;
      parts = broken;
    }
    throw new ApiError('unsupported_value', 'The prompt contains text that this model cannot process as plain text.');
  }

  /** Returns the ids of a part that follows another: SentencePiece would put a blank before it, so a line break is prefixed and removed. */
  #continued(part: string): Uint32Array {
    const ids = this.#vocabulary.tokenize(`\n${part}`, false);
    return this.#anchor.every((id, index) => ids[index] === id)
      ? ids.subarray(this.#anchor.length)
      : this.#vocabulary.tokenize(part, false);
  }
}

/**
 * Refuses a text with long runs of one class of characters: llama.cpp splits some vocabularies with std::regex, whose stack overflows on
 * them.
 */
export function refuseBomb(text: string, param: string): void {
  if (hasLongRun(text)) {
    throw new ApiError(
      'unsupported_value',
      `A text has more than ${runLengthMax} letters, digits, spaces or symbols in a row.`,
      { param },
    );
  }
}

/**
 * Returns whether a text has a long run, which covers a multiple of half its length and continues for that half: only these positions need
 * checking.
 */
function hasLongRun(text: string): boolean {
  const half = runLengthMax / 2;
  const runFrom = new RegExp(run.source, 'uy');
  for (let probe = 0; probe < text.length; probe += half) {
    runFrom.lastIndex = probe;
    if (!runFrom.test(text) || runFrom.lastIndex - probe <= half) continue;
    const around = text.slice(Math.max(0, probe - half), probe + runLengthMax + 1);
    for (const [found] of around.matchAll(run)) if (found.length > runLengthMax) return true;
  }
  return false;
}

const run = /[\p{L}\p{M}]+|\p{N}+|\s+|[^\p{L}\p{M}\p{N}\s]+/gu;
const runLengthMax = 8192;

/** The tokens that steer a model. */
class StructureTokens {
  readonly #literals = new Map<number, string>();
  /** By first character, longest first. */
  readonly #byStart = new Map<string, SteeringToken[]>();

  constructor(vocabulary: Vocabulary, template: string) {
    for (let id = 0; id < vocabulary.facts.vocabularySize; id++) {
      const { kind, stripsBefore, stripsAfter } = vocabulary.tokenTraits(id);
      if (kind === 'plain' || id === vocabulary.facts.unknown) continue;
      const literal = vocabulary.tokenText(id);
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

  *findAll(text: string): Generator<SteeringToken> {
    for (let at = 0; at < text.length; at++) {
      const found = this.#byStart.get(text.charAt(at))?.find(({ literal }) => text.startsWith(literal, at));
      if (found === undefined) continue;
      yield { ...found, at };
      at += found.literal.length - 1;
    }
  }

  literalsAmong(ids: readonly number[]): ReadonlySet<string> {
    const literals = new Set<string>();
    for (const id of ids) {
      const literal = this.#literals.get(id);
      if (literal !== undefined) literals.add(literal);
    }
    return literals;
  }
}

export interface SteeringToken {
  readonly id: number;
  readonly literal: string;
  readonly at: number;
  readonly stripsBefore: boolean;
  readonly stripsAfter: boolean;
}

/**
 * Returns whether a token is structure. Some vocabularies have HTML tags, words or runs of blanks as user-defined tokens: those are text
 * and stay whole.
 */
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

/**
 * Returns where a slice ends: the last position at which every known way of splitting a text begins a new word anyway, so that the ids are
 * those of the whole text. Without one (a text without blanks, lines or punctuation), it ends in the middle of a word: different ids for
 * the same text, once in 4,096 characters.
 */
function sliceEnd(text: string, start: number): number {
  const most = start + sliceLength;
  if (most >= text.length) return text.length;
  for (const boundary of boundaries) {
    for (let end = most; end > start + sliceLength / 2; end--)
      if (boundary.test(text.slice(end - 2, end + 2))) return end;
  }
  // Never cut a surrogate pair.
  const half = text.charCodeAt(most);
  return half >= 0xdc00 && half <= 0xdfff ? most - 1 : most;
}

const sliceLength = 4096;

/** Two characters before the cut and two after it. */
const boundaries = [/^.\S\x20\p{L}$/su, /^\S\n\p{L}.$/su, /^[\p{L}\p{N}]{2}[,.;:!?()，。、；：！？]./su] as const;

function append(ids: number[], more: Iterable<number>): void {
  // Spreading a long list into push() overflows the stack.
  for (const id of more) ids.push(id);
}
