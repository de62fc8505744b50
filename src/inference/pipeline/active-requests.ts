import { StopSlot } from '../../platform/stop-signal.ts';
import type { StopSignal } from '../../platform/stop-signal.ts';
import type { CancelReason } from './cancellation.ts';

/** A request in progress, from its arrival to its last byte. */
export interface ActiveRequest {
  readonly signal: StopSignal;
  /** Why it was stopped: the reason of `signal`. */
  readonly cancelled: CancelReason | undefined;
  /** Stops the request; only the first reason counts. */
  cancel(reason: CancelReason): void;
  /** Sets the account and key that it belongs to, as soon as they are known. */
  claim(accountId: string, keyId: string): void;
  end(): void;
}

/** One running request or generation. */
class Entry implements ActiveRequest {
  readonly signal = new StopSlot<CancelReason>();
  /** Whether a client waits for it. */
  readonly isRequest: boolean;
  /** Whether it ends without a charge when its key is revoked: it can run later, and its parts are delivered to nobody. */
  readonly #isLine: boolean;
  readonly #ended: (entry: Entry) => void;
  accountId: string | undefined;
  keyId: string | undefined;

  constructor(isRequest: boolean, isLine: boolean, ended: (entry: Entry) => void) {
    this.isRequest = isRequest;
    this.#isLine = isLine;
    this.#ended = ended;
  }

  get cancelled(): CancelReason | undefined {
    return this.signal.reason;
  }

  cancel(reason: CancelReason): void {
    this.signal.stop(this.#isLine && reason === 'revoked' ? 'cancelled' : reason);
  }

  claim(accountId: string, keyId: string): void {
    this.accountId = accountId;
    this.keyId = keyId;
  }

  end(): void {
    this.#ended(this);
  }
}

/** All requests that run in this process, so that a revoked key, a deadline or a stop reaches them. */
export class ActiveRequests {
  readonly #entries = new Set<Entry>();
  #requests = 0;
  #whenEmpty: (() => void) | undefined;

  /** Number of client requests in progress. */
  get count(): number {
    return this.#requests;
  }

  begin(): ActiveRequest {
    return this.#begin(true, false);
  }

  /** Begins a generation that runs apart from the requests that read it; it is stopped and waited for like them. */
  beginGeneration(): ActiveRequest {
    return this.#begin(false, false);
  }

  /** Begins a line of a batch. */
  beginLine(): ActiveRequest {
    return this.#begin(false, true);
  }

  #begin(isRequest: boolean, isLine: boolean): Entry {
    const entry = new Entry(isRequest, isLine, this.#ended);
    this.#entries.add(entry);
    if (isRequest) this.#requests++;
    return entry;
  }

  readonly #ended = (entry: Entry): void => {
    if (!this.#entries.delete(entry)) return;
    if (entry.isRequest) this.#requests--;
    if (this.#entries.size === 0) this.#whenEmpty?.();
  };

  /** Keys of the requests in progress. */
  keyIds(): ReadonlySet<string> {
    const ids = new Set<string>();
    for (const { keyId } of this.#entries) if (keyId !== undefined) ids.add(keyId);
    return ids;
  }

  cancelKey(keyId: string): void {
    for (const entry of this.#entries) if (entry.keyId === keyId) entry.cancel('revoked');
  }

  cancelAccount(accountId: string): void {
    for (const entry of this.#entries) if (entry.accountId === accountId) entry.cancel('revoked');
  }

  cancelAll(reason: CancelReason): void {
    for (const entry of this.#entries) entry.cancel(reason);
  }

  /** Waits until nothing runs, at most `limitMs`; then stops the rest and waits `graceMs` for its last bytes. */
  async drain(limitMs: number, graceMs: number): Promise<void> {
    await this.#empty(limitMs);
    this.cancelAll('drain');
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
