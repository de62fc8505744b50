import { setTimeout as delay } from 'node:timers/promises';
import { fellSilent, spoke, type BackendHealth } from './health.ts';

interface SilenceOptions<Member> {
  /** A cheap question to the server; `closed`: nobody will ask it any more. Ends by itself, after seconds at most; never rejects. */
  readonly look: (member: Member) => Promise<'answered' | 'silent' | 'closed'>;
  /** It is left out from `atMs` on, or without that may be used again. */
  readonly changed: (member: Member, atMs?: number) => void;
  /** With a fifth to either side, so that replicas do not look together, a server that is back is found within 0.6 s. */
  readonly pauseMs?: number;
  /** An answer that took longer was held up: the server was frozen or cut off until then. */
  readonly lateMs?: number;
}

/**
 * Looks at backends that did not answer a request in time. One that answers the look is not helped by looking: its engine may hang
 * while its HTTP server does not. One that answers late was frozen, and is back. One that does not answer, because it is frozen or cut off, gets no request until it does, and then
 * need not wait for the end of a pause. So no client's time limit is spent on finding that out
 * (docs/decisions/031-failing-backends.md).
 */
export class Silence<Member extends BackendHealth> {
  readonly #options: SilenceOptions<Member>;
  readonly #watched = new Set<Member>();

  constructor(options: SilenceOptions<Member>) {
    this.#options = options;
  }

  /** Begins to look, unless it is being looked at. */
  watch(member: Member): void {
    if (this.#watched.has(member)) return;
    this.#watched.add(member);
    void this.#untilAnswer(member).finally(() => this.#watched.delete(member));
  }

  async #untilAnswer(member: Member): Promise<void> {
    const { look, changed, pauseMs = 500, lateMs = 500 } = this.#options;
    for (;;) {
      const askedAtMs = performance.now();
      const seen = await look(member);
      if (seen === 'closed') return;
      const nowMs = performance.now();
      if (seen === 'answered') {
        if (spoke(member, nowMs, nowMs - askedAtMs >= lateMs)) changed(member);
        return;
      }
      if (fellSilent(member, nowMs)) changed(member, nowMs);
      await delay(pauseMs * (0.8 + 0.4 * Math.random()), undefined, { ref: false });
    }
  }
}
