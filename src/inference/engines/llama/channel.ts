import type { GenerationEvent } from '../../../generation/event.ts';

/** Holds a request's output until its one reader takes all of it. The writer bounds it (`unreadTokensMax`). */
export class Channel {
  #events: GenerationEvent[] = [];
  #tokens = 0;
  #state:
    { readonly type: 'open' } | { readonly type: 'complete' } | { readonly type: 'failed'; readonly error: unknown } = {
    type: 'open',
  };
  #wake: (() => void) | undefined;

  put(events: readonly GenerationEvent[], tokens: number, last: boolean): void {
    if (this.#state.type !== 'open') return;
    for (const event of events) {
      // Usage is cumulative: the last event supersedes the earlier ones.
      if (event.type === 'usage') this.#events = this.#events.filter(({ type }) => type !== 'usage');
      this.#events.push(event);
    }
    this.#tokens += tokens;
    if (last) this.#state = { type: 'complete' };
    this.#wake?.();
  }

  /** The first error wins and drops unread output. */
  fail(error: unknown): void {
    if (this.#state.type === 'failed') return;
    this.#state = { type: 'failed', error };
    this.#events = [];
    this.#wake?.();
  }

  /**
   * Resolves with everything held, as soon as there is something. Throws the error that it failed with, or `late()` after the deadline,
   * which may be moved meanwhile.
   */
  async take(lateAtMs: () => number, late: () => Error): Promise<Taken> {
    const isNew = () => this.#events.length > 0 || this.#state.type !== 'open';
    while (!isNew()) {
      const waitMs = lateAtMs() - performance.now();
      if (waitMs <= 0) throw late();
      await this.#change(waitMs);
    }
    if (this.#state.type === 'failed') throw this.#state.error;
    const taken = { events: this.#events, tokens: this.#tokens, last: this.#state.type === 'complete' };
    this.#events = [];
    this.#tokens = 0;
    return taken;
  }

  async #change(waitMs: number): Promise<void> {
    await new Promise<void>((resolve) => {
      const timer = setTimeout(resolve, waitMs);
      this.#wake = () => {
        clearTimeout(timer);
        resolve();
      };
    });
    this.#wake = undefined;
  }
}

export interface Taken {
  readonly events: readonly GenerationEvent[];
  /** Number of generated tokens in these events. */
  readonly tokens: number;
  readonly last: boolean;
}
