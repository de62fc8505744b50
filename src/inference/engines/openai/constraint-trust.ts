import type { Constraint, EngineRequest } from '../../../generation/request.ts';
import type { BackendIncident } from './incidents.ts';

/** A kind of constraint on one of the two routes: some servers keep it on one and ignore it on the other. */
export interface BoundKind {
  readonly type: Constraint['type'];
  readonly isChat: boolean;
}

export interface ConstraintTrustOptions {
  /** Asks the server for a small bound answer: whether it kept its bound, `undefined` if unknown. */
  readonly look: (kind: BoundKind) => Promise<boolean | undefined>;
  readonly onIncident: (incident: BackendIncident) => void;
  readonly now?: () => number;
}

/** Initial time between two probes of a server that ignores a constraint; it doubles each time. */
const lookEveryMinMs = 60_000;
const lookEveryMaxMs = 30 * 60_000;
/**
 * After a probe found the constraint kept, the server is trusted for this long, regardless of single answers: one client's grammar that the
 * server reads differently must not take away other clients' constraints.
 */
const believedMs = 10 * 60_000;

/**
 * Tracks which kinds of constraints a server keeps. An ignored kind is not sent to the server again until a probe (the first immediately,
 * then at growing intervals) finds that it is kept after all. A reload starts over.
 */
export class ConstraintTrust {
  readonly #options: Required<ConstraintTrustOptions>;
  readonly #ignored = new Map<string, NodeJS.Timeout | undefined>();
  readonly #believedUntilMs = new Map<string, number>();
  #isClosed = false;

  constructor(options: ConstraintTrustOptions) {
    this.#options = { now: () => performance.now(), ...options };
  }

  isIgnored(kind: BoundKind): boolean {
    return this.#ignored.size > 0 && this.#ignored.has(nameOf(kind));
  }

  /** Records that the server has ignored a constraint of this kind. */
  ignored(kind: BoundKind): void {
    const name = nameOf(kind);
    const isKnown = this.#ignored.has(name) || (this.#believedUntilMs.get(name) ?? -Infinity) > this.#options.now();
    this.#report(isKnown ? 'constraint_not_kept' : 'constraint_ignored', name);
    if (isKnown || this.#isClosed) return;
    this.#ignored.set(name, undefined);
    void this.#look(kind, lookEveryMinMs);
  }

  close(): void {
    this.#isClosed = true;
    for (const timer of this.#ignored.values()) clearTimeout(timer);
  }

  async #look(kind: BoundKind, pauseMs: number): Promise<void> {
    const name = nameOf(kind);
    const isKept = await this.#options.look(kind).catch(() => undefined);
    if (this.#isClosed) return;
    if (isKept === true) {
      this.#ignored.delete(name);
      this.#believedUntilMs.set(name, this.#options.now() + believedMs);
      this.#report('constraint_kept_again', name);
      return;
    }
    const again = (): void => void this.#look(kind, Math.min(2 * pauseMs, lookEveryMaxMs));
    this.#ignored.set(name, setTimeout(again, pauseMs).unref());
  }

  #report(incident: BackendIncident['incident'], cause: string): void {
    this.#options.onIncident({ incident, status: null, cause });
  }
}

/** Returns the kind of a request's constraint; `undefined`: it has none. */
export const boundKindOf = ({ constraint, prompt }: EngineRequest): BoundKind | undefined =>
  constraint && { type: constraint.source.type, isChat: prompt.type === 'messages' };

const nameOf = ({ type, isChat }: BoundKind): string => `${type} on ${isChat ? 'chat' : 'text'} completions`;
