import type { CodePoints } from './code-points.ts';
import type { Expression, Grammar } from './grammar.ts';

/**
 * A grammar in the form that `Acceptor` runs: one block of numbers, so that a thread can transfer it without a copy. Index 0 holds the
 * start of the root rule, index 1 an end step. A step is its kind and its operands; the next one follows it.
 */
export type Program = Int32Array;

export const step = {
  /** End of the rule. */
  end: 0,
  /** One character: its code point. */
  character: 1,
  /** One character of a set: the index of the set (its number of ranges, then their first and last code points). */
  set: 2,
  /** A rule: the index of its start. */
  rule: 3,
  /** A jump: the index of its target. */
  jump: 5,
  /** A choice: the number of alternatives, and the index of each. */
  ways: 6,
} as const;

/** From this many on, literal alternatives are merged by their common prefixes: an `enum` can have thousands. */
const joinedTextsMin = 4;

export function compileProgram(grammar: Grammar): Program {
  const writer = new Writer(grammar);
  return writer.program();
}

class Writer {
  readonly #grammar: Grammar;
  readonly #code: number[] = [0, step.end];
  readonly #starts = new Map<string, number>();
  /** Calls of rules that are not yet written. */
  readonly #open: { readonly at: number; readonly name: string }[] = [];
  readonly #sets = new Map<CodePoints, number[]>();

  constructor(grammar: Grammar) {
    this.#grammar = grammar;
  }

  program(): Program {
    for (const [name, expression] of this.#grammar.rules) {
      this.#starts.set(name, this.#code.length);
      this.#write(expression);
      this.#put(step.end);
    }
    const start = (name: string): number => {
      const at = this.#starts.get(name);
      if (at === undefined) throw new Error(`there is no rule ${name}`);
      return at;
    };
    this.#code[0] = start(this.#grammar.root);
    for (const { at, name } of this.#open) this.#code[at] = start(name);
    for (const [set, places] of this.#sets) {
      for (const at of places) this.#code[at] = this.#code.length;
      this.#code.push(set.length);
      for (const [first, last] of set) this.#code.push(first, last);
    }
    return Int32Array.from(this.#code);
  }

  #put(...numbers: readonly number[]): number {
    const at = this.#code.length;
    for (const number of numbers) this.#code.push(number);
    return at;
  }

  /** Writes an expression as steps. */
  #write(expression: Expression): void {
    switch (expression.kind) {
      case 'literal':
        for (const character of expression.text) this.#put(step.character, character.codePointAt(0) ?? 0);
        return;
      case 'characters': {
        const at = this.#put(step.set, 0);
        const places = this.#sets.get(expression.set);
        if (places === undefined) this.#sets.set(expression.set, [at + 1]);
        else places.push(at + 1);
        return;
      }
      case 'sequence':
        for (const item of expression.items) this.#write(item);
        return;
      case 'alternatives':
        return this.#alternatives(expression.items);
      case 'repetition':
        return this.#repetition(expression);
      case 'rule':
        this.#open.push({ at: this.#put(step.rule, 0) + 1, name: expression.name });
    }
  }

  #alternatives(items: readonly Expression[]): void {
    const texts = items.filter((item) => item.kind === 'literal').map(({ text }) => [...text]);
    if (texts.length < joinedTextsMin) return this.#ways(items.map((item) => () => this.#write(item)));
    const others = items.filter((item) => item.kind !== 'literal');
    this.#ways([() => this.#texts(texts, 0), ...others.map((item) => () => this.#write(item))]);
  }

  /** Writes texts that are equal before `from`. */
  #texts(texts: readonly (readonly string[])[], from: number): void {
    const byFirst = new Map<string, (readonly string[])[]>();
    for (const text of texts) {
      const first = text[from] ?? '';
      const group = byFirst.get(first);
      if (group === undefined) byFirst.set(first, [text]);
      else group.push(text);
    }
    this.#ways(
      [...byFirst].map(([first, group]) => () => {
        if (first === '') return;
        let to = from;
        const [model = []] = group;
        while (to < model.length && group.every((text) => text[to] === model[to])) to++;
        for (const character of model.slice(from, to)) this.#put(step.character, character.codePointAt(0) ?? 0);
        if (group.some((text) => text.length > to)) this.#texts(group, to);
      }),
    );
  }

  #ways(ways: readonly (() => void)[]): void {
    const [only] = ways;
    if (ways.length === 1 && only !== undefined) return only();
    const at = this.#put(step.ways, ways.length, ...ways.map(() => 0));
    const ends: number[] = [];
    ways.forEach((write, index) => {
      this.#code[at + 2 + index] = this.#code.length;
      write();
      // The last one continues right there.
      if (index < ways.length - 1) ends.push(this.#put(step.jump, 0) + 1);
    });
    for (const end of ends) this.#code[end] = this.#code.length;
  }

  #repetition({ item, min, max }: Extract<Expression, { readonly kind: 'repetition' }>): void {
    const once = this.#repeated(item, min, max);
    for (let times = 0; times < min; times++) once();
    if (max === undefined) {
      const at = this.#put(step.ways, 2, 0, 0);
      this.#code[at + 2] = this.#code.length;
      once();
      this.#put(step.jump, at);
      this.#code[at + 3] = this.#code.length;
      return;
    }
    const ends: number[] = [];
    for (let times = min; times < max; times++) {
      const at = this.#put(step.ways, 2, 0, 0);
      this.#code[at + 2] = this.#code.length;
      ends.push(at + 3);
      once();
    }
    for (const end of ends) this.#code[end] = this.#code.length;
  }

  /** Returns how to write an item once: itself if short, otherwise its own rule's name, because each repetition costs its length. */
  #repeated(item: Expression, min: number, max: number | undefined): () => void {
    const isShort =
      item.kind === 'characters' || item.kind === 'rule' || (item.kind === 'literal' && item.text.length < 3);
    if (isShort || (max ?? min + 1) <= 1) return () => this.#write(item);
    const over = this.#put(step.jump, 0) + 1;
    const start = this.#code.length;
    this.#write(item);
    this.#put(step.end);
    this.#code[over] = this.#code.length;
    return () => this.#put(step.rule, start);
  }
}
