import type { Grammar, GrammarState, LlamaModel } from './bindings.ts';

/**
 * What an answer has said under its constraint, and whether it could have said anything else. A grammar may ask for the same
 * again and again (a constant, a fixed count): then a text that repeats itself is what was wanted.
 *
 * It costs nothing until somebody asks. From then on each token is followed byte by byte, because a token that begins as it must
 * may still hold a choice.
 */
export class ConstrainedText {
  readonly #grammar: Grammar;
  readonly #letters: () => Letters;
  readonly #ids: number[];
  #state: GrammarState | undefined;
  /** How many tokens there were when the last one came that was a choice. */
  #chosenAt = 0;
  /** White space that has just come, and what could have come in place of it. */
  #blanks = 0;
  readonly #beside = new Set<number>();

  /** `said`: tokens of a text that the grammar holds for though it was written before. */
  constructor(grammar: Grammar, letters: () => Letters, said: readonly number[]) {
    this.#grammar = grammar;
    this.#letters = letters;
    this.#ids = [...said];
  }

  push(id: number): void {
    this.#ids.push(id);
    if (this.#state !== undefined && this.#isChoice(this.#state, id)) this.#chosenAt = this.#ids.length;
  }

  /** Whether one of the last tokens, so many, was not the only one that fits; also when that cannot be told. */
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
   * Whether another byte would have fitted, or the end. White space between the same two letters is layout, which nobody
   * chooses: `{ "a"` says what `{"a"` says, so what could have stood in a blank's place is held against the letter behind it.
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

/** A vocabulary, byte by byte. */
export interface Letters {
  /** The token of each byte, where there is one. */
  readonly tokens: readonly (number | undefined)[];
  readonly end: number | undefined;
  readonly bytesOf: (id: number) => readonly number[];
}

/** Looks at every token there is: some tens of milliseconds. */
export function lettersOf(model: Pick<LlamaModel, 'facts' | 'tokenBytes' | 'isEndOfGeneration'>): Letters {
  const tokens: (number | undefined)[] = Array.from({ length: 256 }, () => undefined);
  for (let id = 0; id < model.facts.vocabularySize; id++) {
    const [byte, ...others] = model.tokenBytes(id);
    if (byte !== undefined && others.length === 0 && !model.isEndOfGeneration(id)) tokens[byte] ??= id;
  }
  return { tokens, end: model.facts.eos, bytesOf: (id) => model.tokenBytes(id) };
}

const isBlank = (byte: number): boolean => byte === 0x20 || byte === 0x0a || byte === 0x0d || byte === 0x09;

/** A line break and 40 blanks, the most that our own grammars have between two parts of JSON. */
const layoutBlanksMax = 41;
