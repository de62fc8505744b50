import { Calls, Enough, type CallRules } from './calls.ts';
import { EventSink, type ParsedEvent } from './parsed-event.ts';
import { readHarmony } from './harmony.ts';
import type { OutputShape } from './shape.ts';
import { Marks, Source, type Reading } from './source.ts';
import { readThought } from './thinking.ts';

export interface OutputParserOptions {
  readonly shape: Pick<OutputShape, 'thinking' | 'calls'>;
  /** The prompt ends inside reasoning. */
  readonly startsInThought: boolean;
  /** `undefined`: no tools were offered, so nothing is a call. */
  readonly calls: CallRules | undefined;
}

/**
 * Splits generated text into reasoning, text and calls. The events are the same however the text is cut, except for where their
 * own texts are cut, and no more is held back than what may still become a mark, or the head of a call.
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

  /** The kind of the next character, as far as it is known: a grammar for the answer begins with the answer. */
  get phase(): OutputPhase {
    return this.#phase;
  }

  /** Calls that were announced. */
  get calls(): number {
    return this.#sink.calls;
  }

  /** From here on everything is calls: parts not reported as a call are its markup. */
  get isBeyondText(): boolean {
    return this.#sink.dropsText;
  }

  /** The wanted number of calls is complete: whatever follows is ignored, and need not be generated. */
  get isOver(): boolean {
    return this.#isOver;
  }

  /** The events in the text, as far as they are certain. */
  push(text: string): readonly ParsedEvent[] {
    if (!this.#isOver) {
      this.#source.feed(text);
      this.#go();
    }
    return this.#sink.drain();
  }

  /** No more text comes. */
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

  *#read({ shape, startsInThought }: OutputParserOptions): Reading {
    const enter = (phase: OutputPhase) => {
      this.#phase = phase;
    };
    const { thinking } = shape;
    if (thinking.type === 'channels') return yield* readHarmony(this.#source, this.#sink, this.#calls, enter);
    if (thinking.type === 'marks') yield* readThought(this.#source, this.#sink, thinking.marks, startsInThought, enter);
    if (this.#calls !== undefined) return yield* shape.calls.read(this.#source, this.#sink, this.#calls);
    yield* this.#source.until(noMarks, (text) => this.#sink.text(text));
  }
}

/** `beginning`: nothing but blanks has come, and reasoning may begin. */
export type OutputPhase = 'beginning' | 'reasoning' | 'answer';

const noMarks = new Marks([]);
