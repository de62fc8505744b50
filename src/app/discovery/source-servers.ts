import type { BackendSource, ModelConfig } from '../../config/config.ts';
import type { Discovered } from '../../config/discovered.ts';
import { RetryPause, type RunningSource, type SourceReader } from '../../inference/discovery/source.ts';

export interface SourceServices {
  /** Starts reading the source. */
  readonly open: (reader: SourceReader) => RunningSource;
  /** Tests a server before it gets customers' requests. Resolves with why it cannot get them yet. Never rejects. */
  readonly join: (server: Discovered, signal: AbortSignal) => Promise<string | undefined>;
  /** Called when the servers in use have changed. */
  readonly changed: () => void;
  readonly report: (event: SourceEvent) => void;
  readonly now: () => number;
}

/** An event for the operator's log. */
export type SourceEvent =
  | { readonly event: 'source_listed'; readonly added: number; readonly removed: number; readonly servers: number }
  /** It cannot be read, or its answer cannot be used; the `servers` of the last answer stay. */
  | { readonly event: 'source_failed'; readonly problem: string; readonly servers: number }
  | { readonly event: 'source_too_long'; readonly servers: number; readonly used: number }
  | { readonly event: 'source_server_waits'; readonly url: string; readonly problem: string }
  | { readonly event: 'source_server_joined'; readonly url: string };

/** The state of a source, for the metrics, `doctor` and the account host. */
export interface SourceStatus {
  readonly model: string;
  readonly source: string;
  readonly by: BackendSource['discover']['by'];
  /** Servers that it lists, and how many of them get requests. */
  readonly listed: number;
  readonly inUse: number;
  /** Why it cannot be read, or why its servers get no requests; null if neither. */
  readonly problem: string | null;
  /** When it was last read successfully, in milliseconds since 1970; null: never. */
  readonly lastReadAt: number | null;
  readonly failures: number;
}

type Mutable<Of> = { -readonly [Key in keyof Of]: Of[Key] };

interface Member {
  server: Discovered;
  isInUse: boolean;
  /** No longer listed, but kept until a listed one has joined: a whole fleet may be replaced at once. */
  isLeaving: boolean;
  /** It has been tried at least once. */
  isTried: boolean;
  problem: string | null;
  readonly leaving: AbortController;
}

/** An address may soon belong to somebody else. */
const leavingMaxMs = 30_000;

/**
 * The servers of one source: those it lists, and those of them that have answered and are in use. A source that fails keeps its
 * last list. A server that is no longer listed is out immediately, or once a listed one has joined; requests running there
 * continue.
 */
export class SourceServers {
  readonly #model: ModelConfig;
  readonly #source: BackendSource;
  readonly #services: SourceServices;
  readonly #members = new Map<string, Member>();
  readonly #running: RunningSource;
  readonly #reading: Pick<Mutable<SourceStatus>, 'problem' | 'lastReadAt' | 'failures'> = {
    problem: null,
    lastReadAt: null,
    failures: 0,
  };
  #hasAnswered = false;
  #isTooLong = false;
  #isClosed = false;
  /** Since when it has listed no server, and the timer after which that is believed. */
  #empty: { readonly sinceMs: number; timer: NodeJS.Timeout | undefined } | undefined;
  #leavingTimer: NodeJS.Timeout | undefined;
  readonly #settling: (() => void)[] = [];

  /** `before`: a source that read the same place; its servers in use stay until this one lists others. */
  constructor(model: ModelConfig, source: BackendSource, services: SourceServices, before?: SourceServers) {
    this.#model = model;
    this.#source = source;
    this.#services = services;
    for (const server of before?.inUse ?? [])
      this.#members.set(server.url, { ...newMember(server), isInUse: true, isTried: true });
    this.#running = services.open({
      listed: (servers) => this.#listed(servers),
      failed: (problem) => this.#failed(problem),
    });
  }

  get inUse(): readonly Discovered[] {
    return [...this.#members.values()].filter(({ isInUse }) => isInUse).map(({ server }) => server);
  }

  get status(): SourceStatus {
    const members = [...this.#members.values()].filter(({ isLeaving }) => !isLeaving);
    const waiting = members.find(({ isInUse, problem }) => !isInUse && problem !== null);
    return {
      model: this.#model.id,
      source: this.#source.name,
      by: this.#source.discover.by,
      listed: members.length,
      inUse: this.inUse.length,
      problem: this.#reading.problem ?? (waiting === undefined ? null : `${waiting.server.url}: ${waiting.problem}`),
      lastReadAt: this.#reading.lastReadAt,
      failures: this.#reading.failures,
    };
  }

  /** Resolves when it has answered or failed, and each of its servers has been tried. */
  settled(): Promise<void> {
    return new Promise((resolve) => {
      this.#settling.push(resolve);
      this.#settle();
    });
  }

  close(): void {
    this.#isClosed = true;
    this.#running.close();
    clearTimeout(this.#empty?.timer);
    clearTimeout(this.#leavingTimer);
    for (const { leaving } of this.#members.values()) leaving.abort(new Error('the source is closed'));
    this.#settle();
  }

  #failed(problem: string): void {
    if (this.#isClosed) return;
    this.#reading.failures++;
    this.#hasAnswered = true;
    this.#fault(problem);
    this.#settle();
  }

  /** Reports a problem once, until it changes. */
  #fault(problem: string): void {
    if (this.#reading.problem === problem) return;
    this.#reading.problem = problem;
    this.#services.report({ event: 'source_failed', problem, servers: this.#members.size });
  }

  #listed(servers: readonly Discovered[]): void {
    if (this.#isClosed) return;
    this.#reading.lastReadAt = this.#services.now();
    if (servers.length === 0 && !this.#isEmptyBelieved()) {
      this.#hasAnswered = true;
      this.#fault('it names no server, which is taken for a fault');
      this.#settle();
      return;
    }
    clearTimeout(this.#empty?.timer);
    if (servers.length > 0) this.#empty = undefined;
    this.#reading.problem = null;
    this.#take(servers);
    this.#hasAnswered = true;
    this.#settle();
  }

  /** An empty list from a file or an operator is intended; from name servers and Kubernetes it may be a fault. */
  #isEmptyBelieved(): boolean {
    const { discover } = this.#source;
    if (discover.by === 'file' || discover.by === 'api') return true;
    const nowMs = performance.now();
    this.#empty ??= { sinceMs: nowMs, timer: undefined };
    const { emptyAfterMs } = discover;
    if (emptyAfterMs === undefined) return false;
    const leftMs = this.#empty.sinceMs + emptyAfterMs - nowMs;
    if (leftMs <= 0) return true;
    clearTimeout(this.#empty?.timer);
    this.#empty.timer = setTimeout(() => this.#listed([]), leftMs).unref();
    return false;
  }

  #take(servers: readonly Discovered[]): void {
    const { maxBackends } = this.#source.discover;
    const named = new Map(servers.map((server) => [server.url, server]));
    const used = [...named.values()].slice(0, maxBackends);
    if (named.size > maxBackends && !this.#isTooLong)
      this.#services.report({ event: 'source_too_long', servers: named.size, used: maxBackends });
    this.#isTooLong = named.size > maxBackends;
    const kept = new Set(used.map(({ url }) => url));
    let removed = 0;
    let isChanged = false;
    for (const [url, member] of this.#members) {
      if (kept.has(url) === !member.isLeaving) continue;
      // Listed again before it was gone.
      member.isLeaving = !kept.has(url);
      if (member.isLeaving) removed++;
    }
    let added = 0;
    for (const server of used) {
      const member = this.#members.get(server.url);
      if (member === undefined) {
        added++;
        const joining = newMember(server);
        this.#members.set(server.url, joining);
        void this.#join(joining);
      } else if (JSON.stringify(member.server) !== JSON.stringify(server)) {
        member.server = server;
        isChanged ||= member.isInUse;
      }
    }
    if (added + removed > 0) this.#services.report({ event: 'source_listed', added, removed, servers: named.size });
    if (this.#dropLeaving() || isChanged) this.#services.changed();
  }

  /** Drops servers that are leaving; returns whether one of them was in use. */
  #dropLeaving(isLate = false): boolean {
    const members = [...this.#members.entries()];
    const isReplaced = members.some(([, { isInUse, isLeaving }]) => isInUse && !isLeaving);
    const isJoining = members.some(([, { isInUse, isLeaving }]) => !isInUse && !isLeaving);
    clearTimeout(this.#leavingTimer);
    let isChanged = false;
    for (const [url, { isInUse, isLeaving, leaving }] of members) {
      if (!isLeaving) continue;
      if (isInUse && isJoining && !isReplaced && !isLate) {
        this.#leavingTimer = setTimeout(() => {
          if (this.#dropLeaving(true)) this.#services.changed();
        }, leavingMaxMs).unref();
        continue;
      }
      isChanged ||= isInUse;
      this.#members.delete(url);
      leaving.abort(new Error('the server has left'));
    }
    return isChanged;
  }

  async #join(member: Member): Promise<void> {
    const { signal } = member.leaving;
    const pause = new RetryPause();
    while (!signal.aborted) {
      const problem = await this.#services.join(member.server, signal);
      if (signal.aborted) return;
      member.isTried = true;
      if (problem === undefined) {
        member.isInUse = true;
        if (member.problem !== null) this.#services.report({ event: 'source_server_joined', url: member.server.url });
        member.problem = null;
        this.#dropLeaving();
        this.#services.changed();
        this.#settle();
        return;
      }
      if (problem !== member.problem)
        this.#services.report({ event: 'source_server_waits', url: member.server.url, problem });
      member.problem = problem;
      this.#settle();
      await aborted(signal, pause.failed());
    }
  }

  #settle(): void {
    const isSettled = this.#hasAnswered && [...this.#members.values()].every(({ isTried }) => isTried);
    if (isSettled || this.#isClosed) for (const resolve of this.#settling.splice(0)) resolve();
  }
}

const newMember = (server: Discovered): Member => ({
  server,
  isInUse: false,
  isLeaving: false,
  isTried: false,
  problem: null,
  leaving: new AbortController(),
});

/** Resolves when the signal aborts, at the latest after this time. */
function aborted(signal: AbortSignal, limitMs: number): Promise<void> {
  return new Promise((resolve) => {
    const done = (): void => {
      clearTimeout(timer);
      signal.removeEventListener('abort', done);
      resolve();
    };
    const timer = setTimeout(done, limitMs).unref();
    signal.addEventListener('abort', done, { once: true });
  });
}
