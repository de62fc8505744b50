import type { GenerationEvent } from '../../../generation/event.ts';

/**
 * Holds a request's output until its one reader takes it, all at once, since it is later than the reader anyway. The writer
 * bounds it (`unreadTokensMax`).
 */
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

  /** The first error wins, and drops what was not read. */
  fail(error: unknown): void {
    if (this.#state.type === 'failed') return;
    this.#state = { type: 'failed', error };
    this.#events = [];
    this.#wake?.();
  }

  /** Resolves with everything held, once there is something; throws the error it failed with, or `late()` after the time. */
  async take(timeoutMs: number, late: () => Error): Promise<Taken> {
    const isNew = () => this.#events.length > 0 || this.#state.type !== 'open';
    if (!isNew()) {
      await new Promise<void>((resolve) => {
        const timer = setTimeout(resolve, Math.max(0, timeoutMs));
        this.#wake = () => {
          clearTimeout(timer);
          resolve();
        };
      });
      this.#wake = undefined;
    }
    if (this.#state.type === 'failed') throw this.#state.error;
    if (!isNew()) throw late();
    const taken = { events: this.#events, tokens: this.#tokens, last: this.#state.type === 'complete' };
    this.#events = [];
    this.#tokens = 0;
    return taken;
  }
}

export interface Taken {
  readonly events: readonly GenerationEvent[];
  /** Number of generated tokens in these events. */
  readonly tokens: number;
  readonly last: boolean;
}
