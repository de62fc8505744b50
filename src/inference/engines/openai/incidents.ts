/** An event at a backend that matters to an operator. It never contains text of the backend or of a request. */
export interface BackendIncident {
  readonly incident:
    | 'cannot_connect'
    | 'no_first_token_in_time'
    | 'silent_in_mid_answer'
    | 'connection_broke'
    | 'http_status'
    /** 404: the backend has no such model, or no such path. Only a change of the configuration or of the server helps. */
    | 'not_found'
    /** The backend now answers with another model, and no longer lists the configured one: it gets no requests until it does again. */
    | 'other_model'
    /** It does not have the adapter that is used there: it gets no requests until it has it. */
    | 'adapter_missing'
    | 'error_in_answer'
    | 'unreadable_answer'
    /** An answer violated its constraint or is missing a forced call; `constraint_ignored`: such requests are no longer sent there. */
    | 'constraint_not_kept'
    | 'constraint_ignored'
    | 'constraint_kept_again'
    /** An answer whose grammar has more alternatives than are followed here, so that only the server has checked it. */
    | 'constraint_not_checked'
    | 'implausible_usage'
    /** It ends answers with an unknown word, given as the cause, which counts as `stop`. Reported once. */
    | 'unknown_finish';
  /** The HTTP status; null if there was none. */
  readonly status: number | null;
  /** The system's error code, for example `ECONNREFUSED`, or the service's word for an unreadable answer. */
  readonly cause: string | null;
}

/** An incident, and how often it happened since it was last reported. */
export type ReportedIncident = BackendIncident & { readonly times: number };

/** Maximum kinds of incidents (with status and cause) that are distinguished; further kinds share one line. */
const kindsMax = 64;

/**
 * Reports each kind of incident immediately, and then at most once per `everyMs` with its count: a backend that fails every request must
 * not fill the log (reliability U10, U12). The rest of a burst is reported with the next one.
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

/** Returns the code of the innermost system or transport error; `null` if unknown. Messages can quote content, codes cannot. */
export function causeCode(error: unknown): string | null {
  let code: string | null = null;
  for (let at = error, depth = 0; at instanceof Error && depth < 5; at = at.cause, depth++) {
    const own = (at as { code?: unknown }).code;
    if (typeof own === 'string' && /^[A-Z][A-Z0-9_]{1,63}$/.test(own)) code = own;
  }
  return code;
}
