import { setTimeout as delay } from 'node:timers/promises';
import { fellSilent, spoke, type BackendHealth } from './health.ts';

interface SilenceOptions<Member> {
  /** A cheap probe of the server; `closed`: it is not probed any more. Settles within seconds by itself; never rejects. */
  readonly look: (member: Member) => Promise<'answered' | 'silent' | 'closed'>;
  /** The backend is left out from `atMs` on; without a time, it may be used again. */
  readonly changed: (member: Member, atMs?: number) => void;
  /** Varied by a fifth either way, so that replicas do not probe in step; a server that is back is found within 0.6 s. */
  readonly pauseMs?: number;
  /** A slower answer was held up: the server was frozen or cut off until then. */
  readonly lateMs?: number;
}

/**
 * Probes backends that did not answer a request in time. If one answers the probe, probing cannot help: its engine may hang while its HTTP
 * server does not. One that answers late was frozen, and is back. One that does not answer, because it is frozen or cut off, gets no
 * request until it does, and then need not wait for the end of a pause. So no client's time limit is spent on finding that out
 * (docs/decisions/031-failing-backends.md).
 */
export class Silence<Member extends BackendHealth> {
  readonly #options: SilenceOptions<Member>;
  readonly #watched = new Set<Member>();

  constructor(options: SilenceOptions<Member>) {
    this.#options = options;
  }

  /** Starts probing, unless the backend is already being probed. */
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
