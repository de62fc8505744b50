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

/** Those of one choice, which end with its finish. */
export class ChoiceEvents {
  readonly choice: number;
  readonly #answer: AnswerEvents;
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

  /** `characters`: what of it was generated. */
  emit(characters: string, event: GenerationEvent): void {
    if (this.#isFinished) throw new StreamFault('text after the finish reason');
    this.#characters += characters.length;
    this.#answer.push(event);
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
