import type { FinishCause, GenerationBatch, GenerationEvent, Usage } from '../../generation/event.ts';
import { elapsedMs } from './request-facts.ts';
import type { Order } from './order.ts';

type FinishEvent = Extract<GenerationEvent, { type: 'finish' }>;
type StartEvent = Extract<GenerationEvent, { type: 'start' }>;
type MeteredOrder = Pick<
  Order,
  'choices' | 'promptTokensLikely' | 'promptTokensPossible' | 'begunMs' | 'limitedByContext'
>;

/**
 * Reads every batch of one stream: tracks the usage so far, which every engine reports with each batch, which events may go to the client
 * now, and whether the answer is complete.
 *
 * Held back from the client are `start`, until content follows (until then another backend may be tried), all `usage` (§2.7: only in the
 * last chunk), and the finish that completes the answer, which is sent after the settlement.
 */
export class Meter {
  readonly #order: MeteredOrder;
  /** The finish of each choice, and which of them have been sent. */
  readonly #finishes: (FinishEvent | undefined)[];
  readonly #finishSent: boolean[];
  #unfinished: number;
  #start: StartEvent | undefined;
  #startSent = false;
  #lastFinish: FinishEvent | undefined;
  #usage: Usage;
  /** The usage is our own count, because the backend has not reported any (yet). */
  #counted = true;
  #cut = false;
  #lastBatch: GenerationBatch = [];
  /** The events of the last batch read that may go to the client now. */
  pass: GenerationBatch = [];
  /** Milliseconds from the start of the request to its first content; null before it. */
  firstTokenMs: number | null = null;

  constructor(order: MeteredOrder) {
    this.#order = order;
    this.#unfinished = order.choices;
    this.#finishes = new Array<FinishEvent | undefined>(order.choices).fill(undefined);
    this.#finishSent = new Array<boolean>(order.choices).fill(false);
    this.#usage = { promptTokens: order.promptTokensLikely, cachedTokens: 0, completionTokens: 0, reasoningTokens: 0 };
  }

  /** The prompt's length is known: the backend has accepted the request. */
  get started(): boolean {
    return this.#start !== undefined;
  }

  get complete(): boolean {
    return this.#unfinished === 0;
  }

  get usage(): Usage {
    return this.#usage;
  }

  get counted(): boolean {
    return this.#counted;
  }

  /** The answer's finish reason; `null` when it has none. */
  get finishReason(): string | null {
    return this.#finishes.find((finish) => finish !== undefined)?.reason ?? null;
  }

  get cutByCredit(): boolean {
    return this.#cut;
  }

  /** Reads a batch; returns the usage so far. */
  read(batch: GenerationBatch): Usage {
    this.#lastBatch = batch;
    let passesWhole = this.#startSent;
    let isCounted = true;
    for (const event of batch) {
      switch (event.type) {
        case 'start':
          // After a failover, the second backend's figures replace those of the first.
          this.#start = event;
          this.#usage = this.#possible(startUsage(event, this.#order.promptTokensLikely));
          this.#counted = event.promptTokens !== this.#usage.promptTokens;
          passesWhole = false;
          break;
        case 'prompt':
          break;
        case 'text':
        case 'reasoning':
        case 'tool-call':
        case 'tool-arguments':
          this.#checkOpen(event.choice);
          isCounted = false;
          this.#firstToken();
          break;
        case 'vector':
        case 'score':
          // A task generates no text, so nothing is counted.
          this.#checkOpen(event.choice);
          this.#firstToken();
          break;
        case 'usage':
          this.#usage = this.#possible({
            ...event.usage,
            promptTokens: event.usage.promptTokens ?? this.#usage.promptTokens,
          });
          this.#counted =
            (event.counted ?? event.usage.promptTokens === undefined) ||
            (event.usage.promptTokens ?? 0) > this.#usage.promptTokens;
          isCounted = true;
          passesWhole = false;
          break;
        case 'finish':
          this.#finish(event);
          this.#firstToken();
          passesWhole = false;
          break;
      }
    }
    if (!isCounted) throw new Error('a batch whose usage does not cover it');
    this.pass = passesWhole ? batch : this.#withheld(batch);
    return this.#usage;
  }

  /**
   * Ends the answer before the last batch read, which is neither charged nor sent. A choice that finished in an earlier batch keeps its
   * finish: all of it has been sent.
   */
  cut(cause: FinishCause, before: Usage): void {
    this.#cut = true;
    this.#usage = before;
    for (const event of this.pass) {
      if (event.type === 'start') this.#startSent = false;
      if (event.type === 'finish') this.#finishSent[event.choice] = false;
    }
    this.pass = [];
    this.#finishes.forEach((finish, choice) => {
      if (finish !== undefined && !this.#lastBatch.includes(finish)) return;
      this.#finishes[choice] = { type: 'finish', choice, reason: 'length', cause };
    });
    this.#unfinished = 0;
  }

  /** Returns the last batch of a complete answer: the finishes that were held back, and the usage. */
  closing(): GenerationBatch {
    const finishes = this.#finishes.filter(
      (finish, choice): finish is FinishEvent => finish !== undefined && !this.#finishSent[choice],
    );
    const reported = this.#order.limitedByContext === true ? finishes.map(atWindow) : finishes;
    return [...this.#pendingStart(), ...reported, { type: 'usage', usage: this.#usage, counted: this.#counted }];
  }

  /** The batch without the events that must wait. */
  #withheld(batch: GenerationBatch): GenerationBatch {
    const rest: GenerationEvent[] = [];
    for (const event of batch) {
      if (event.type === 'start' || event.type === 'usage' || event === this.#lastFinish) continue;
      if (event.type === 'finish') this.#finishSent[event.choice] = true;
      if (!this.#startSent) rest.push(...this.#pendingStart());
      rest.push(event);
    }
    return rest;
  }

  #pendingStart(): readonly GenerationEvent[] {
    if (this.#startSent || this.#start === undefined) return [];
    this.#startSent = true;
    return [this.#start];
  }

  #firstToken(): void {
    this.firstTokenMs ??= elapsedMs(this.#order);
  }

  /** No event of a choice follows its finish, and there are no more choices than requested. */
  #checkOpen(choice: number): void {
    if (choice < this.#finishes.length && this.#finishes[choice] === undefined) return;
    throw new Error(`an event of choice ${choice}, which has finished or does not exist`);
  }

  #finish(event: FinishEvent): void {
    this.#checkOpen(event.choice);
    this.#finishes[event.choice] = event;
    this.#unfinished--;
    if (this.#unfinished === 0) this.#lastFinish = event;
  }

  /** A prompt cannot be longer than its bytes and the widest template: a larger figure is lowered, and the usage marked. */
  #possible(usage: Usage): Usage {
    const most = this.#order.promptTokensPossible;
    if (usage.promptTokens <= most) return usage;
    return { ...usage, promptTokens: most, cachedTokens: Math.min(usage.cachedTokens, most) };
  }
}

/** Whether it is the last batch that a client gets: the usage comes with that, and only there. */
export const isClosing = (batch: GenerationBatch): boolean => batch.at(-1)?.type === 'usage';

/** The engine's limit was the rest of the window. */
const atWindow = (finish: FinishEvent): FinishEvent =>
  finish.cause === 'max-tokens' ? { ...finish, cause: 'window' } : finish;

const startUsage = (start: StartEvent, estimated: number): Usage => ({
  promptTokens: start.promptTokens ?? estimated,
  cachedTokens: start.cachedTokens ?? 0,
  completionTokens: 0,
  reasoningTokens: 0,
});
