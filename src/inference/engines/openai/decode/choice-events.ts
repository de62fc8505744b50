import type { GenerationEvent } from '../../../../generation/event.ts';
import type { SaidPart, UsageTally } from '../../usage-tally.ts';
import { StreamFault } from '../sse.ts';

/** The events of an answer, in order; `start` is the first one. */
export class AnswerEvents {
  readonly #tally: UsageTally;
  #events: GenerationEvent[] = [];
  #hasStarted = false;

  constructor(tally: UsageTally) {
    this.#tally = tally;
  }

  get hasStarted(): boolean {
    return this.#hasStarted;
  }

  start(): void {
    if (this.#hasStarted) return;
    this.#hasStarted = true;
    const { promptTokens, cachedTokens } = this.#tally;
    this.#events.push({
      type: 'start',
      promptTokens,
      ...(promptTokens === undefined || cachedTokens === 0 ? {} : { cachedTokens }),
    });
  }

  said(choice: number, part: SaidPart, text: string): void {
    this.#tally.said(choice, part, text);
  }

  push(event: GenerationEvent): void {
    if (!this.#hasStarted) this.start();
    this.#events.push(event);
    this.#tally.given();
  }

  /** Returns the events since the last call, and the usage up to them. */
  drain(usage: GenerationEvent | undefined): GenerationEvent[] {
    const events = this.#events;
    if (usage !== undefined) events.push(usage);
    if (events.length > 0) this.#events = [];
    return events;
  }
}

/** Holds events back while a call is incomplete. */
export interface Gate {
  holds(event: GenerationEvent, characters: number): boolean;
}

/** The events of one choice, which end with its finish. */
export class ChoiceEvents {
  readonly choice: number;
  readonly #answer: AnswerEvents;
  #gate: Gate | undefined;
  #characters = 0;
  #isFinished = false;

  constructor(choice: number, answer: AnswerEvents) {
    this.choice = choice;
    this.#answer = answer;
  }

  /** Characters of everything generated: text, reasoning, names and arguments. */
  get characters(): number {
    return this.#characters;
  }

  get isFinished(): boolean {
    return this.#isFinished;
  }

  /** From here on the gate decides which events wait. */
  holdBack(gate: Gate): void {
    this.#gate = gate;
  }

  /** Emits an event; `generated`: the generated text in it. */
  emit(
    generated: string,
    event: GenerationEvent,
    part: SaidPart = event.type === 'reasoning' ? 'reasoning' : 'text',
  ): void {
    if (this.#isFinished) throw new StreamFault('text after the finish reason');
    this.#count(generated, part);
    if (this.#gate?.holds(event, generated.length) !== true) this.#answer.push(event);
  }

  /** Emits an event that was held back, or must not be. */
  give(event: GenerationEvent): void {
    this.#answer.push(event);
  }

  /** Counts generated text whose event is emitted separately. */
  grow(part: 'tool-call' | 'tool-arguments', generated: string): void {
    this.#count(generated, part);
  }

  finish(event: Extract<GenerationEvent, { readonly type: 'finish' }>): void {
    this.#answer.push(event);
    this.#isFinished = true;
  }

  /** Counts reasoning that is not shown. */
  hide(reasoning: string): void {
    this.#count(reasoning, 'reasoning');
    this.#answer.start();
  }

  /** Marks that something was generated, although nothing is shown yet. */
  start(): void {
    this.#answer.start();
  }

  #count(generated: string, part: SaidPart): void {
    this.#characters += generated.length;
    this.#answer.said(this.choice, part, generated);
  }
}
