import type { Grammar, GrammarState, LlamaModel } from './llama-model.ts';

/**
 * Tracks whether an answer under a constraint could have continued differently. A grammar may require repetition (a constant, a fixed
 * count): then a repetitive text is intended.
 *
 * It does nothing until it is asked. From then on it follows each token byte by byte, because a token whose beginning is forced may still
 * contain a choice.
 */
export class ConstrainedText {
  readonly #grammar: Grammar;
  readonly #letters: () => Letters;
  readonly #ids: number[];
  #state: GrammarState | undefined;
  /** Number of tokens up to the last one that was a choice. */
  #chosenAt = 0;
  /** White space at the end of the text, and what could have followed in its place. */
  #blanks = 0;
  readonly #beside = new Set<number>();

  /** `said`: tokens written earlier that the grammar covers too. */
  constructor(grammar: Grammar, letters: () => Letters, said: readonly number[]) {
    this.#grammar = grammar;
    this.#letters = letters;
    this.#ids = [...said];
  }

  push(id: number): void {
    this.#ids.push(id);
    if (this.#state !== undefined && this.#isChoice(this.#state, id)) this.#chosenAt = this.#ids.length;
  }

  /** Returns whether one of the last `tokens` tokens was a choice; also `true` if that cannot be determined. */
  hadChoice(tokens: number): boolean {
    const followed = this.#ids.length - tokens;
    if (this.#state === undefined) {
      const state = this.#grammar.begin();
      if (followed < 0 || !this.#ids.slice(0, followed).every((id) => state.take(id))) return true;
      if (this.#ids.slice(followed).some((id) => this.#isChoice(state, id))) return true;
      this.#state = state;
      return false;
    }
    return this.#chosenAt > followed;
  }

  #isChoice(state: GrammarState, id: number): boolean {
    const { tokens, bytesOf } = this.#letters();
    const bytes = bytesOf(id);
    let isChoice = bytes.length === 0;
    for (const byte of bytes) {
      const letter = tokens[byte];
      isChoice ||= this.#isOneOfMany(state, byte);
      if (letter === undefined || !state.take(letter)) return true;
    }
    return isChoice;
  }

  /**
   * Returns whether another byte, or the end, would have fitted. White space between the same two letters is layout, not a choice: `{ "a"`
   * equals `{"a"`, so what could have come in place of a blank is compared with the letter after it.
   */
  #isOneOfMany(state: GrammarState, byte: number): boolean {
    const { tokens, end } = this.#letters();
    if (end !== undefined && state.allows(end)) return true;
    if (isBlank(byte)) {
      this.#blanks++;
      for (const [other, id] of tokens.entries())
        if (id !== undefined && !isBlank(other) && state.allows(id)) this.#beside.add(other);
      return this.#blanks > layoutBlanksMax && this.#beside.size > 0;
    }
    const beside = [...this.#beside];
    this.#beside.clear();
    this.#blanks = 0;
    if (beside.some((other) => other !== byte)) return true;
    return tokens.some((id, other) => id !== undefined && other !== byte && !isBlank(other) && state.allows(id));
  }
}

/** The single-byte tokens of a vocabulary. */
export interface Letters {
  /** The token of each byte, if it has one. */
  readonly tokens: readonly (number | undefined)[];
  readonly end: number | undefined;
  readonly bytesOf: (id: number) => readonly number[];
}

/** Reads every token of the vocabulary, which takes some tens of milliseconds. */
export function lettersOf(model: Pick<LlamaModel, 'facts' | 'tokenBytes' | 'isEndOfGeneration'>): Letters {
  const tokens: (number | undefined)[] = Array.from({ length: 256 }, () => undefined);
  for (let id = 0; id < model.facts.vocabularySize; id++) {
    const [byte, ...others] = model.tokenBytes(id);
    if (byte !== undefined && others.length === 0 && !model.isEndOfGeneration(id)) tokens[byte] ??= id;
  }
  return { tokens, end: model.facts.eos, bytesOf: (id) => model.tokenBytes(id) };
}

const isBlank = (byte: number): boolean => byte === 0x20 || byte === 0x0a || byte === 0x0d || byte === 0x09;

/** A line break and 40 blanks, the most that the service's own grammars allow between two parts of JSON. */
const layoutBlanksMax = 41;
