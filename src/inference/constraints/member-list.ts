import { alternatives, emptyText, literal, repetition, sequence, type Expression } from './grammar.ts';
import { bracketed, whiteSpace } from './json-text.ts';
import type { Work } from './work.ts';

/** `pair`: the name, the colon and the value. */
export interface Member {
  readonly pair: Expression;
  readonly isRequired: boolean;
}

const comma = sequence(literal(','), whiteSpace);

/**
 * The members of an object: first the declared ones, in order and each optional or required, then others. The names of the others are not
 * tracked while they are written, so one can occur twice: therefore at most one of them counts towards `min`.
 */
export class MemberList {
  readonly #members: readonly Member[];
  /** An undeclared member, if allowed. */
  readonly #other: Expression | undefined;
  readonly #min: number;
  readonly #max: number | undefined;
  readonly #work: Work;
  /** Moves an expression into a rule. */
  readonly #shared: (expression: Expression) => Expression;
  /** Whether members must be counted to keep the bounds; otherwise only the first one is distinguished. */
  readonly #isCounted: boolean;
  readonly #made = new Map<string, Expression | undefined>();
  #lacksNames = false;

  constructor(
    members: readonly Member[],
    other: Expression | undefined,
    bounds: { readonly min: number; readonly max: number | undefined },
    work: Work,
    shared: (expression: Expression) => Expression,
  ) {
    const { min, max } = bounds;
    const required = members.filter(({ isRequired }) => isRequired).length;
    this.#members = members;
    this.#other = other;
    this.#min = min;
    this.#max = max;
    this.#work = work;
    this.#shared = shared;
    this.#isCounted = required < min || (max !== undefined && (other !== undefined || members.length > max));
  }

  /** Whether an object within the bounds would need two or more undeclared members. */
  get lacksNames(): boolean {
    return this.#lacksNames;
  }

  /** Returns the whole object; `undefined`: no object satisfies the bounds. */
  written(): Expression | undefined {
    const inner = this.#from(0, 0);
    const canBeEmpty = this.#min === 0 && this.#members.every(({ isRequired }) => !isRequired);
    const forms = canBeEmpty ? [literal('{}')] : [];
    if (inner !== undefined) forms.push(bracketed('{', inner, '}'));
    return forms.length === 0 ? undefined : alternatives(...forms);
  }

  /** Returns what can follow before member `index` when `count` members are written; never empty if `count` is 0. */
  #from(index: number, count: number): Expression | undefined {
    const key = `${index} ${count}`;
    if (this.#made.has(key)) return this.#made.get(key);
    this.#work.spend(5);
    const forms = count === 0 ? this.#first() : this.#next(index, count);
    const whole = alternatives(...forms);
    const made =
      forms.length === 0
        ? undefined
        : whole.kind === 'sequence' && whole.items.length === 0
          ? whole
          : this.#shared(whole);
    this.#made.set(key, made);
    return made;
  }

  /** The first member is any of those up to and including the first required one. */
  #first(): readonly Expression[] {
    const forms: Expression[] = [];
    const isRoom = this.#max === undefined || this.#max > 0;
    if (!isRoom) return forms;
    for (const [index, { pair, isRequired }] of this.#members.entries()) {
      this.#work.spend(1);
      const tail = this.#from(index + 1, 1);
      if (tail !== undefined) forms.push(sequence(pair, tail));
      if (isRequired) return forms;
    }
    const other = this.#other;
    if (other === undefined || !this.#suffices(this.#min)) return forms;
    const more = repetition(sequence(comma, other), 0, this.#max === undefined ? undefined : this.#max - 1);
    return [...forms, sequence(other, more)];
  }

  /** This member or, if it is optional, what follows it. */
  #next(index: number, count: number): readonly Expression[] {
    const forms: Expression[] = [];
    const member = this.#members[index];
    if (member === undefined) {
      const others = this.#others(count);
      return others === undefined ? [] : [others];
    }
    const isRoom = !this.#isCounted || this.#max === undefined || count < this.#max;
    const tail = isRoom ? this.#from(index + 1, this.#oneMore(count)) : undefined;
    if (tail !== undefined) forms.push(sequence(comma, member.pair, tail));
    const without = member.isRequired ? undefined : this.#from(index + 1, count);
    if (without !== undefined) forms.push(without);
    return forms;
  }

  #oneMore(count: number): number {
    return this.#isCounted ? Math.min(count + 1, this.#max ?? Math.max(this.#min, 1)) : 1;
  }

  #others(count: number): Expression | undefined {
    const missing = this.#isCounted ? Math.max(this.#min - count, 0) : 0;
    if (this.#other === undefined) return missing === 0 ? emptyText : undefined;
    if (!this.#suffices(missing)) return undefined;
    const room = this.#isCounted && this.#max !== undefined ? this.#max - count : undefined;
    return repetition(sequence(comma, this.#other), missing, room);
  }

  /** Whether one undeclared member is enough for the missing count. */
  #suffices(missing: number): boolean {
    if (missing > 1) this.#lacksNames = true;
    return missing <= 1;
  }
}
