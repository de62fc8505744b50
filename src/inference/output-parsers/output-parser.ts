import { Calls, Enough, type CallRules } from './calls.ts';
import { EventSink, type ParsedEvent } from './parsed-event.ts';
import { readHarmony } from './harmony.ts';
import type { CallFormat } from './format.ts';
import { readFormat } from './read-calls.ts';
import { Marks, Source, type Reading } from './source.ts';
import { readThought, type Thinking } from './thinking.ts';

export interface OutputParserOptions {
  readonly shape: { readonly thinking: Thinking; readonly calls: CallFormat };
  /** The prompt ends inside reasoning. */
  readonly startsInThought: boolean;
  /** `undefined`: no tools were offered, so nothing is a call. */
  readonly calls: CallRules | undefined;
}

/**
 * Splits generated text into reasoning, text and calls. The events are the same however the text is split, except for where their own texts
 * are split, and only text that may still become a mark, or the head of a call, is held back.
 */
export class OutputParser {
  readonly #source = new Source();
  readonly #sink = new EventSink();
  readonly #calls: Calls | undefined;
  readonly #reading: Reading;
  #phase: OutputPhase;
  #isOver = false;

  constructor(options: OutputParserOptions) {
    const { shape, calls, startsInThought } = options;
    this.#phase = startsInThought ? 'reasoning' : shape.thinking.type === 'none' ? 'answer' : 'beginning';
    this.#calls = calls && new Calls(this.#source, this.#sink, calls);
    this.#reading = this.#read(options);
  }

  /** The kind of the next character, if known: a grammar for the answer starts with the answer. */
  get phase(): OutputPhase {
    return this.#phase;
  }

  /** Number of announced calls. */
  get calls(): number {
    return this.#sink.calls;
  }

  /** From here on everything is calls: text that is not reported as a call is markup. */
  get isBeyondText(): boolean {
    return this.#sink.dropsText;
  }

  /** The wanted number of calls is complete: further text is ignored, and need not be generated. */
  get isOver(): boolean {
    return this.#isOver;
  }

  /** Returns the events in the text that are certain by now. */
  push(text: string): readonly ParsedEvent[] {
    if (!this.#isOver) {
      this.#source.feed(text);
      this.#go();
    }
    return this.#sink.drain();
  }

  /** Ends the text, and returns the last events. */
  end(): readonly ParsedEvent[] {
    this.#source.end();
    if (!this.#isOver) this.#go();
    return this.#sink.drain();
  }

  #go(): void {
    try {
      this.#reading.next();
    } catch (error) {
      if (!(error instanceof Enough)) throw error;
      this.#isOver = true;
    }
  }

  *#read({ shape, startsInThought, calls: rules }: OutputParserOptions): Reading {
    const enter = (phase: OutputPhase) => {
      this.#phase = phase;
    };
    const { thinking } = shape;
    if (thinking.type === 'channels') return yield* readHarmony(this.#source, this.#sink, this.#calls, enter);
    const calls = this.#calls;
    if (thinking.type === 'marks') {
      const possible = rules && calls && { format: shape.calls, rules, calls };
      yield* readThought(this.#source, this.#sink, thinking.marks, startsInThought, possible, enter);
    }
    if (calls !== undefined) return yield* readFormat(shape.calls, this.#source, this.#sink, calls);
    yield* this.#source.until(noMarks, (text) => this.#sink.text(text));
  }
}

/** `beginning`: only blanks have arrived, and reasoning may begin. */
export type OutputPhase = 'beginning' | 'reasoning' | 'answer';

const noMarks = new Marks([]);
