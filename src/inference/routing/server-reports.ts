/**
 * The servers' own reports (docs/decisions/047-what-servers-say.md): the capacity of their caches, and what they run and have waiting. What
 * this service has sent is known immediately and exactly, so only the rest of that load counts: what others have sent. This code has no
 * clock and no engine: it says which servers to query, and takes the answers.
 */
import type { ServerReport } from '../../generation/server-report.ts';
import { cacheTokensUnknown } from './cache-index.ts';
import type { ForeignLoad } from './choose.ts';
import type { BackendLoad } from './backend-load.ts';
import type { Fleet } from './fleet.ts';

/** The interval between queries to a server, by all processes together, while its model is in use. */
const everyMs = 2_000;
/** Queries of one process: each of 1,000 backends is queried every 16 s. */
const questionsPerSecond = 64;
const askingMax = 32;
/** How long a report stays valid after the next one is due. */
const graceMs = 4_000;
/** How long a server is not queried after it gave no report, because it cannot, is busy, or is gone. */
const silentMs = 60_000;
/** A model without a request for this long is not in use. */
const unusedMs = 5_000;
/** Maximum delay until a report of one process has reached the others. */
const sharedWithinMs = 750;
/** Largest figures accepted from another process. */
const countMax = 1e6;
const tokensMax = 1e12;

/** A query, and our own requests at the server when it was sent. */
export interface Question<Member> {
  readonly model: string;
  readonly member: Member;
  readonly before: Elsewhere & { readonly running: number; readonly waiting: number; readonly placed: number };
}

/** What other processes of this service have at a server, as last reported. */
type Elsewhere = Pick<BackendLoad, 'runningElsewhere' | 'waitingElsewhere'>;

const elsewhereAt = ({ runningElsewhere, waitingElsewhere }: BackendLoad): Elsewhere => ({
  ...{ runningElsewhere, waitingElsewhere },
});

const most = (one: Elsewhere, other: Elsewhere): Elsewhere => ({
  runningElsewhere: Math.max(one.runningElsewhere, other.runningElsewhere),
  waitingElsewhere: Math.max(one.waitingElsewhere, other.waitingElsewhere),
});

/** An answer, and how much of it may be our own. */
interface Answer<Member> {
  readonly model: string;
  readonly member: Member;
  readonly report: ServerReport;
  readonly atMs: number;
  readonly ours: { readonly running: number; readonly waiting: number };
  readonly elsewhere: Elsewhere;
}

/** `[age of the report in ms, others' running requests, their waiting tokens, cache capacity in tokens or -1]`, all whole numbers. */
export type SharedReport = readonly [number, number, number, number];

/** The server's last report. */
interface Known {
  reportedAtMs: number;
  cacheTokens: number | undefined;
  /** When it may be queried again. */
  askAtMs: number;
  isAsked: boolean;
  /** This process has received the report itself, and has not yet passed it on. */
  isNews: boolean;
}

interface Use {
  readonly placements: number;
  readonly atMs: number;
}

/** The reports of all servers that share the load of a model; a single server leaves nothing to choose. */
export class ServerReports<Member extends BackendLoad> {
  readonly #fleetsOf: () => ReadonlyMap<string, Fleet<Member>>;
  readonly #random: () => number;
  readonly #known = new WeakMap<Member, Known>();
  /** The requests placed for each model, and when that number last grew. */
  #uses = new Map<string, Use>();
  readonly #answers: Answer<Member>[] = [];
  #hasPeers = false;
  #asking = 0;
  #countedAtMs = -Infinity;
  #mayAsk = 0;
  #tellers = 0;

  constructor(fleetsOf: () => ReadonlyMap<string, Fleet<Member>>, random: () => number = Math.random) {
    this.#fleetsOf = fleetsOf;
    this.#random = random;
  }

  /**
   * Returns the servers to query now, oldest report first; `answered` must be called for each. Drops reports that are too old. To be called
   * a few times a second. `canTell`: the backend is of a kind that gives reports. `hasPeers`: other processes send requests there.
   */
  due(nowMs: number, canTell: (member: Member) => boolean, hasPeers = false): readonly Question<Member>[] {
    this.#hasPeers = hasPeers;
    this.#settle(nowMs);
    const elapsedMs = Math.min(1_000, nowMs - this.#countedAtMs);
    this.#countedAtMs = nowMs;
    this.#mayAsk = Math.min(questionsPerSecond, this.#mayAsk + (questionsPerSecond * elapsedMs) / 1_000);
    const uses = new Map<string, Use>();
    const wanted: { readonly model: string; readonly member: Member; readonly known: Known }[] = [];
    let tellers = 0;
    for (const [model, fleet] of this.#fleetsOf()) {
      if (fleet.members.length < 2) continue;
      const use = this.#uses.get(model);
      const isUsed = fleet.placements !== (use?.placements ?? 0);
      uses.set(
        model,
        isUsed || use === undefined ? { placements: fleet.placements, atMs: isUsed ? nowMs : -Infinity } : use,
      );
      const isInUse = nowMs - uses.get(model)!.atMs < unusedMs;
      for (const member of fleet.members) {
        if (!canTell(member)) continue;
        tellers++;
        const known = this.#of(member);
        if (isInUse && !known.isAsked && nowMs >= known.askAtMs) wanted.push({ model, member, known });
      }
    }
    this.#uses = uses;
    this.#tellers = tellers;
    this.#forget(nowMs, Math.max(everyMs, (1_000 * tellers) / questionsPerSecond) + graceMs);
    const count = Math.max(0, Math.min(Math.floor(this.#mayAsk), askingMax - this.#asking, wanted.length));
    if (count < wanted.length) wanted.sort((a, b) => a.known.reportedAtMs - b.known.reportedAtMs);
    this.#mayAsk -= count;
    this.#asking += count;
    return wanted.slice(0, count).map(({ model, member, known }) => {
      known.isAsked = true;
      const { running, waiting, placed } = member;
      return { model, member, before: { running, waiting: waiting.size, placed, ...elsewhereAt(member) } };
    });
  }

  /** Whether any server may ever be asked, as `due` last found it. */
  get hasTellers(): boolean {
    return this.#tellers > 0;
  }

  /** Takes the answer to a query. `undefined`: nothing usable. */
  answered({ model, member, before }: Question<Member>, report: ServerReport | undefined, nowMs: number): void {
    const known = this.#of(member);
    known.isAsked = false;
    this.#asking--;
    if (report === undefined) {
      known.askAtMs = nowMs + silentMs * (1 + 0.2 * this.#random());
      return;
    }
    known.askAtMs = nowMs + everyMs * (0.9 + 0.2 * this.#random());
    // All requests that were ours at any time between query and answer may be in the answer.
    const placed = member.placed - before.placed;
    const ours = { running: before.running + placed, waiting: before.waiting + placed };
    const elsewhere = most(elsewhereAt(member), before);
    this.#answers.push({ model, member, report, atMs: nowMs, ours, elsewhere });
    if (!this.#hasPeers) this.#settle(nowMs);
  }

  /**
   * What other processes sent there shortly before the answer, they report shortly after it. Until then it would count as foreign: on a
   * trace with bursts this cost two processes that exchange reports 1.7 of 31.9 points of the hit rate (bench/results.md).
   */
  #settle(nowMs: number): void {
    const waitMs = this.#hasPeers ? sharedWithinMs : 0;
    const due = this.#answers.findIndex(({ atMs }) => nowMs - atMs < waitMs);
    for (const { model, member, report, atMs, ours, elsewhere } of this.#answers.splice(
      0,
      due === -1 ? Infinity : due,
    )) {
      const fleet = this.#fleetsOf().get(model);
      const known = this.#of(member);
      if (fleet === undefined || atMs <= known.reportedAtMs) continue;
      const { runningElsewhere, waitingElsewhere } = most(elsewhereAt(member), elsewhere);
      const others = Math.max(0, report.running + report.waiting - ours.running - runningElsewhere);
      // Some of our requests without a first token are already being read, so this is the lower bound.
      const othersWaiting = Math.min(others, Math.max(0, report.waiting - ours.waiting - waitingElsewhere));
      known.isNews = true;
      this.#take(fleet, member, known, atMs, [others, othersWaiting * fleet.usualTokens, report.cacheTokens]);
    }
  }

  /** Returns what this process has heard from servers since the last call, for the other processes. */
  takeNews(model: string, nowMs: number): readonly (readonly [Member, SharedReport])[] {
    const news: (readonly [Member, SharedReport])[] = [];
    for (const member of this.#fleetsOf().get(model)?.members ?? []) {
      const known = this.#known.get(member);
      if (known?.isNews !== true) continue;
      known.isNews = false;
      const { runningForeign, waitingTokensForeign } = member;
      const cacheTokens = known.cacheTokens ?? -1;
      news.push([
        member,
        [Math.round(nowMs - known.reportedAtMs), runningForeign, Math.round(waitingTokensForeign), cacheTokens],
      ]);
    }
    return news;
  }

  /**
   * Another process has queried a server, so this one need not. `processes`: how many query it. Each waits for a random time in proportion
   * to their number, so that mostly one of them queries, and the others hear its answer before their own turn.
   */
  heard(fleet: Fleet<Member>, member: Member, shared: SharedReport, processes: number, nowMs: number): void {
    const [ageMs, running, waitingTokens, cacheTokens] = shared;
    const known = this.#of(member);
    const reportedAtMs = nowMs - ageMs;
    if (reportedAtMs <= known.reportedAtMs) return;
    known.askAtMs = reportedAtMs + everyMs + sharedWithinMs * processes * this.#random();
    known.isNews = false;
    this.#take(fleet, member, known, reportedAtMs, [running, waitingTokens, cacheTokens < 0 ? undefined : cacheTokens]);
  }

  /** The server's cache capacity, as last reported; `undefined`: not reported. */
  cacheTokensOf(member: Member): number | undefined {
    return this.#known.get(member)?.cacheTokens;
  }

  /** The load of others there, as last reported; `undefined`: never reported. */
  foreignAt(member: Member): ForeignLoad | undefined {
    if ((this.#known.get(member)?.reportedAtMs ?? -Infinity) === -Infinity) return undefined;
    return { running: member.runningForeign, waitingTokens: member.waitingTokensForeign };
  }

  #take(
    fleet: Fleet<Member>,
    member: Member,
    known: Known,
    reportedAtMs: number,
    [running, waitingTokens, cacheTokens]: readonly [number, number, number | undefined],
  ): void {
    known.reportedAtMs = reportedAtMs;
    if (running !== member.runningForeign || waitingTokens !== member.waitingTokensForeign)
      fleet.loadedByOthers(member, running, waitingTokens);
    if (cacheTokens !== known.cacheTokens) fleet.sized(member, cacheTokens ?? cacheTokensUnknown);
    known.cacheTokens = cacheTokens;
  }

  /** Resets expired loads. The cache capacity stays: it does not change, but others' load does. */
  #forget(nowMs: number, keptMs: number): void {
    for (const fleet of this.#fleetsOf().values())
      for (const member of fleet.members)
        if (
          (member.runningForeign > 0 || member.waitingTokensForeign > 0) &&
          nowMs - (this.#known.get(member)?.reportedAtMs ?? -Infinity) > keptMs
        )
          fleet.loadedByOthers(member, 0, 0);
  }

  #of(member: Member): Known {
    let known = this.#known.get(member);
    if (known === undefined) {
      known = { reportedAtMs: -Infinity, cacheTokens: undefined, askAtMs: -Infinity, isAsked: false, isNews: false };
      this.#known.set(member, known);
    }
    return known;
  }
}

export const isSharedReport = (value: unknown): value is SharedReport => {
  if (!Array.isArray(value) || value.length !== 4 || !value.every(Number.isSafeInteger)) return false;
  const [ageMs, running, waitingTokens, cacheTokens] = value as [number, number, number, number];
  return (
    ageMs >= 0 &&
    running >= 0 &&
    running <= countMax &&
    waitingTokens >= 0 &&
    waitingTokens <= tokensMax &&
    cacheTokens >= -1 &&
    cacheTokens <= tokensMax
  );
};
