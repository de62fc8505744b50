/** Something that an operator wants to know about a backend. Never holds text of the backend or of a request. */
export interface BackendIncident {
  readonly incident:
    | 'cannot_connect'
    | 'no_first_token_in_time'
    | 'silent_in_mid_answer'
    | 'connection_broke'
    | 'http_status'
    /** 404: it has no such model, or no such path. Only a change of the configuration or of the server helps. */
    | 'not_found'
    /** It answers with another model than it did, and no longer lists ours: it gets no request until it does again. */
    | 'other_model'
    | 'error_in_answer'
    | 'unreadable_answer'
    /** An answer broke its constraint or lacks a forced call; `constraint_ignored`: such requests are no longer sent there. */
    | 'constraint_not_kept'
    | 'constraint_ignored'
    | 'constraint_kept_again'
    /** An answer whose grammar has more ways than are followed here, so that only the server has checked it. */
    | 'constraint_not_checked'
    | 'implausible_usage'
    /** It ends answers with a word that is not known here, and counts as `stop`: the cause. Reported once. */
    | 'unknown_finish';
  /** Its HTTP status; null when there was none. */
  readonly status: number | null;
  /** The system's code, for example `ECONNREFUSED`, or our own word for an unreadable answer. */
  readonly cause: string | null;
}

/** How often it has happened since it was last reported. */
export type ReportedIncident = BackendIncident & { readonly times: number };

/** Kinds of incidents (with status and cause) that are distinguished; further kinds share one line. */
const kindsMax = 64;

/**
 * Reports each kind of incident at once, and then at most once per `everyMs` with its count: a backend that fails every request
 * must not fill the log (reliability U10, U12). The rest of a burst is reported with the next one.
 */
export class ThrottledLog {
  readonly #report: (incident: ReportedIncident) => void;
  readonly #everyMs: number;
  readonly #kinds = new Map<string, { reportedAtMs: number; times: number }>();

  constructor(report: (incident: ReportedIncident) => void, everyMs = 10_000) {
    this.#report = report;
    this.#everyMs = everyMs;
  }

  note(incident: BackendIncident, nowMs: number): void {
    let key = `${incident.incident} ${incident.status} ${incident.cause}`;
    if (!this.#kinds.has(key) && this.#kinds.size >= kindsMax) key = '';
    const kind = this.#kinds.get(key) ?? { reportedAtMs: -Infinity, times: 0 };
    this.#kinds.set(key, kind);
    kind.times++;
    const isAgain = kind.reportedAtMs !== -Infinity;
    if (isAgain && (incident.incident === 'unknown_finish' || nowMs - kind.reportedAtMs < this.#everyMs)) return;
    this.#report({ ...incident, times: kind.times });
    kind.reportedAtMs = nowMs;
    kind.times = 0;
  }
}

/** The code of the innermost system or transport error; `null` when none is known. Messages can quote, codes cannot. */
export function causeCode(error: unknown): string | null {
  let code: string | null = null;
  for (let at = error, depth = 0; at instanceof Error && depth < 5; at = at.cause, depth++) {
    const own = (at as { code?: unknown }).code;
    if (typeof own === 'string' && /^[A-Z][A-Z0-9_]{1,63}$/.test(own)) code = own;
  }
  return code;
}
