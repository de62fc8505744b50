import type { CancelReason } from './cancellation.ts';
import { errorOfCancel } from './cancellation.ts';
import type { StopSignal } from '../../platform/stop-signal.ts';

/** The memory that all recordings share. */
export interface RecordingBudget {
  readonly charactersMax: number;
  characters: number;
}

/** Takes a text for one reader; `false`: the reader is gone. */
export type Emit = (text: string) => boolean | Promise<boolean>;

export interface RecordingOptions {
  readonly charactersMax: number;
  readonly budget: RecordingBudget;
  /** Called when the last reader leaves before the end of the answer. */
  readonly abandoned: (reason: CancelReason) => void;
  /** The error for readers that come after its beginning was dropped; called when the answer is over. */
  readonly tooLate: () => Error;
}

interface Reader {
  /** Index of the text that it reads next, counted from the first text ever written. */
  next: number;
  wake: (() => void) | undefined;
}

/** How many texts a lagging reader gets at once. */
const textsAtOnce = 256;

/**
 * An answer that several clients read while it is generated, each at its own pace and from the beginning. It is kept in memory up to a
 * bound; beyond it the texts that all have read are dropped, no further reader can join, and the slowest reader holds the others back.
 */
export class Recording {
  readonly #options: RecordingOptions;
  readonly #readers = new Set<Reader>();
  readonly #texts: string[] = [];
  #characters = 0;
  /** Number of texts that have been dropped. */
  #dropped = 0;
  #outcome: { readonly last: string } | { readonly error: unknown } | undefined;
  #resume: (() => void) | undefined;

  constructor(options: RecordingOptions) {
    this.#options = options;
  }

  get readers(): number {
    return this.#readers.size;
  }

  /** Everything written, followed by `last`; `undefined` when its beginning is gone. */
  whole(last: string): string | undefined {
    return this.#dropped > 0 ? undefined : this.#texts.join('') + last;
  }

  /** Returns a promise if readers must catch up first. */
  write(text: string): true | Promise<true> {
    if (text === '') return true;
    this.#texts.push(text);
    this.#characters += text.length;
    this.#options.budget.characters += text.length;
    this.#wakeAll();
    if (this.#hasRoom() || this.#makeRoom()) return true;
    return new Promise((resolve) => (this.#resume = () => resolve(true)));
  }

  /** Only the first of `end` and `fail` counts. */
  end(last: string): void {
    this.#finish({ last });
  }

  fail(error: unknown): void {
    this.#finish({ error });
  }

  /**
   * Hands the answer to a reader from the beginning, except for the last text, which it resolves to. Rejects with the error that ended the
   * answer, or with the signal's reason, a `CancelReason`.
   */
  async follow(signal: StopSignal, emit: Emit): Promise<string> {
    const isLate = this.#dropped > 0;
    const reader: Reader = { next: isLate ? Infinity : 0, wake: undefined };
    const onAbort = (): void => reader.wake?.();
    signal.addEventListener('abort', onAbort);
    this.#readers.add(reader);
    try {
      for (;;) {
        if (signal.aborted) throw errorOfCancel(signal.reason as CancelReason, undefined);
        const from = reader.next - this.#dropped;
        const texts = isLate ? [] : this.#texts.slice(from, from + textsAtOnce);
        if (texts.length > 0) {
          const goesOn = emit(texts.join(''));
          if (goesOn !== true && !(await goesOn)) return '';
          reader.next += texts.length;
          this.#proceed();
        } else if (this.#outcome === undefined) {
          await new Promise<void>((resolve) => (reader.wake = resolve));
        } else {
          if ('error' in this.#outcome) throw this.#outcome.error;
          if (isLate) throw this.#options.tooLate();
          return this.#outcome.last;
        }
      }
    } finally {
      signal.removeEventListener('abort', onAbort);
      this.#readers.delete(reader);
      this.#proceed();
      if (this.#outcome !== undefined) this.#release();
      else if (this.#readers.size === 0)
        this.#options.abandoned(signal.aborted ? (signal.reason as CancelReason) : 'client-left');
    }
  }

  #finish(outcome: { readonly last: string } | { readonly error: unknown }): void {
    this.#outcome ??= outcome;
    this.#wakeAll();
    this.#release();
  }

  #wakeAll(): void {
    for (const { wake } of this.#readers) wake?.();
  }

  #hasRoom(): boolean {
    const { charactersMax, budget } = this.#options;
    return this.#characters <= charactersMax && budget.characters <= budget.charactersMax;
  }

  /** A reader has read, or left. */
  #proceed(): void {
    if (this.#resume === undefined || !this.#makeRoom()) return;
    this.#resume();
    this.#resume = undefined;
  }

  /** Drops the texts that all have read; returns whether there is room then. Other recordings may hold the whole budget. */
  #makeRoom(): boolean {
    let until = this.#dropped + this.#texts.length;
    for (const { next } of this.#readers) until = Math.min(until, next);
    let characters = 0;
    for (const text of this.#texts.splice(0, until - this.#dropped)) characters += text.length;
    this.#dropped = until;
    this.#free(characters);
    return this.#texts.length === 0 || this.#hasRoom();
  }

  /** Frees its memory once it is over and has no readers: what a key keeps of it is in the database. */
  #release(): void {
    if (this.#readers.size === 0) this.#free(this.#characters);
  }

  #free(characters: number): void {
    this.#characters -= characters;
    this.#options.budget.characters -= characters;
  }
}
