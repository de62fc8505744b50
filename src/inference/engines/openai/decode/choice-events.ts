import type { GenerationEvent } from '../../../../generation/event.ts';
import type { UsageTally } from '../../usage-tally.ts';
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

  push(event: GenerationEvent): void {
    if (!this.#hasStarted) this.start();
    this.#events.push(event);
  }

  /** The events since the last call. */
  drain(): GenerationEvent[] {
    const events = this.#events;
    if (events.length > 0) this.#events = [];
    return events;
  }
}

/** Holds back what comes while a call is not whole. */
export interface Gate {
  holds(event: GenerationEvent, characters: number): boolean;
}

/** Those of one choice, which end with its finish. */
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

  /** Of all that was generated: text, reasoning, names and arguments. */
  get characters(): number {
    return this.#characters;
  }

  get isFinished(): boolean {
    return this.#isFinished;
  }

  /** From here on this decides what waits. */
  holdBack(gate: Gate): void {
    this.#gate = gate;
  }

  /** `generated`: what of it was generated. */
  emit(generated: string, event: GenerationEvent): void {
    if (this.#isFinished) throw new StreamFault('text after the finish reason');
    this.#characters += generated.length;
    if (this.#gate?.holds(event, generated.length) !== true) this.#answer.push(event);
  }

  /** What was held back, or is not to be. */
  give(event: GenerationEvent): void {
    this.#answer.push(event);
  }

  /** So much was generated. */
  grow(characters: number): void {
    this.#characters += characters;
  }

  finish(event: Extract<GenerationEvent, { readonly type: 'finish' }>): void {
    this.#answer.push(event);
    this.#isFinished = true;
  }

  /** Something was generated of which nothing is shown. */
  start(): void {
    this.#answer.start();
  }
}
