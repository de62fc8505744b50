import type { CancelReason } from './cancellation.ts';

/** A request that is being worked on, from its arrival to its last byte. */
export interface RunningRequest {
  readonly signal: AbortSignal;
  /** Stops the request; only the first reason counts. */
  cancel(reason: CancelReason): void;
  /** Whose it is, as soon as that is known. */
  claim(accountId: string, keyId: string): void;
  end(): void;
}

interface Entry {
  readonly controller: AbortController;
  accountId: string | undefined;
  keyId: string | undefined;
}

/** All requests that run in this process: so that a revoked key, a deadline or a stop reaches them. */
export class Running {
  readonly #entries = new Set<Entry>();
  #whenEmpty: (() => void) | undefined;

  get count(): number {
    return this.#entries.size;
  }

  begin(): RunningRequest {
    const entry: Entry = { controller: new AbortController(), accountId: undefined, keyId: undefined };
    this.#entries.add(entry);
    return {
      signal: entry.controller.signal,
      cancel: (reason) => entry.controller.abort(reason),
      claim: (accountId, keyId) => {
        entry.accountId = accountId;
        entry.keyId = keyId;
      },
      end: () => {
        this.#entries.delete(entry);
        if (this.#entries.size === 0) this.#whenEmpty?.();
      },
    };
  }

  cancelKey(keyId: string): void {
    for (const entry of this.#entries)
      if (entry.keyId === keyId) entry.controller.abort('revoked' satisfies CancelReason);
  }

  cancelAccount(accountId: string): void {
    for (const entry of this.#entries)
      if (entry.accountId === accountId) entry.controller.abort('revoked' satisfies CancelReason);
  }

  /** Waits until nothing runs, at most `limitMs`; then stops what is left and waits `graceMs` for its last bytes. */
  async drain(limitMs: number, graceMs: number): Promise<void> {
    await this.#empty(limitMs);
    for (const entry of this.#entries) entry.controller.abort('drain' satisfies CancelReason);
    await this.#empty(graceMs);
  }

  async #empty(limitMs: number): Promise<void> {
    if (this.#entries.size === 0) return;
    await new Promise<void>((resolve) => {
      const timer = setTimeout(resolve, limitMs);
      this.#whenEmpty = () => {
        clearTimeout(timer);
        resolve();
      };
    });
    this.#whenEmpty = undefined;
  }
}
