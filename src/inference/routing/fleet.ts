import { CacheIndex, cacheTokensUnknown, type CacheView } from './cache-index.ts';
import { CachedPrefixes } from './cached-prefixes.ts';
import {
  choose,
  FleetFigures,
  type BackendView,
  type Choice,
  type ChoiceReasons,
  type ChosenFleet,
  type ChosenRequest,
} from './choose.ts';
import {
  answered,
  backElsewhere,
  ejectedElsewhere,
  failed,
  isInUse,
  isOverdue,
  soundHealth,
  type BackendHealth,
} from './health.ts';
import { noPrefixes, type PromptPrefixes } from './prompt-prefixes.ts';

/** A backend as the fleet sees it; only the fleet changes it. */
export interface BackendLoad extends BackendView, CacheView, BackendHealth {
  rank: number;
  cacheNumber: number;
  running: number;
  runningElsewhere: number;
  runningForeign: number;
  waitingTokens: number;
  waitingTokensElsewhere: number;
  waitingTokensForeign: number;
  readingTokens: number;
  readingSinceMs: number;
  /** The requests that wait for their first token, the oldest first. */
  readonly waiting: Set<Waiting>;
  /** The same of other processes, when they last told. */
  waitingElsewhere: number;
  /** How many requests were ever put there, where there was a choice. */
  placed: number;
  ownTokensPerSecond: number;
  turn: number;
  /** Tokens per second of its answers, weighted towards the latest; 0: none was measured. */
  measuredTokensPerSecond: number;
  /** How much that is worth, in measurements. */
  measurements: number;
  measuredAtMs: number;
  /** Where its fleet reads its figures; `undefined`: it is alone there, or in none. */
  row: FiguresRow | undefined;
  /** It has once reported that it had tokens in its cache; many servers report none unless told to. */
  reportsCache: boolean;
  /** Prompt tokens that were expected in its cache, and those that it found there, of the same requests. */
  cachedTokensExpected: number;
  cachedTokensFound: number;
}

interface FiguresRow {
  readonly figures: FleetFigures;
  readonly index: number;
}

interface Waiting {
  /** What the backend has to read of its prompt. */
  readonly tokens: number;
}

/** A backend that does nothing yet. */
export function idleLoad({ concurrencyMax = Infinity, weight = 1 } = {}): BackendLoad {
  return {
    rank: 1,
    weight,
    concurrencyMax,
    running: 0,
    runningElsewhere: 0,
    runningForeign: 0,
    waitingTokens: 0,
    waitingTokensElsewhere: 0,
    waitingTokensForeign: 0,
    waitingElsewhere: 0,
    placed: 0,
    readingTokens: 0,
    readingSinceMs: 0,
    waiting: new Set(),
    ownTokensPerSecond: 0,
    cacheNumber: 0,
    turn: 0,
    row: undefined,
    cacheTokensMax: cacheTokensUnknown,
    cached: new CachedPrefixes(),
    cacheTokens: 0,
    measuredTokensPerSecond: 0,
    measurements: 0,
    measuredAtMs: 0,
    reportsCache: false,
    cachedTokensExpected: 0,
    cachedTokensFound: 0,
    ...soundHealth(),
  };
}

/** A request as far as its place depends on it. */
export interface RoutedRequest {
  /** Of the prompt, estimated. */
  readonly promptTokens: number;
  /** Asked only where there is a choice. */
  readonly prefixes: () => PromptPrefixes;
}

/** A request at a backend: `begun` at most once, `end` exactly once. */
export interface Placement<Member> {
  readonly backend: Member;
  /** null: there was no choice. */
  readonly reasons: ChoiceReasons | null;
  /** The first token is there. */
  begun(nowMs: number): void;
  /** The answer is complete; what the backend says of its prompt. */
  answered(usage: { readonly cachedTokens: number }): void;
  /** It was stopped because another backend was faster: how much of the prompt is in the cache is not known, so none of what was new. `isFault`: it counts as a failure. */
  abandoned(nowMs: number, isFault: boolean): void;
  /** The backend has failed it, by its own fault. */
  failed(nowMs: number): void;
  /** Nothing was there that takes connections: what is there next is a server that has just started. */
  refused(): void;
  end(nowMs: number): void;
}

/** The speed of backends that nobody has measured; only its ratio to what runs matters. */
const tokensPerSecondUnknown = 4_000;
/** Least weight of the latest measurement; while there are few, they have equal weights. */
const latestShare = 0.1;
/** A backend begins with the speed of the others, which is worth so many measurements. */
const measurementsOfOthers = 3;
/** A measurement that is farther off counts as one so many times as fast or as slow: a pause of the server says little of its speed. */
const measuredRatioMax = 2;
/** A shorter prompt measures the network. */
const measuredTokensMin = 64;
/** Backends whose speeds differ by less are of one kind, measured imprecisely. */
const ownSpeedRatio = 1.5;
/** A backend that was slow and got nothing since is tried again. */
const ownSpeedMs = 300_000;
/** A difference in the cached tokens that is only a matter of where blocks end: 512 characters and the beginning of a template. */
const cachedSlackTokens = 256;

/** A prompt that was sent to a backend. */
export interface SentPrompt<Member> {
  readonly member: Member;
  readonly prefixes: PromptPrefixes;
}

/** Weight of the latest prompt in what is usual. */
const usualShare = 0.02;

/** How many of them are kept until they are told; of more, the latest. */
const sentMax = 2_000;

/** A backend is left out from `ejectedAtMs` on, or without that in use again. */
export type OnHealth<Member> = (member: Member, ejectedAtMs?: number) => void;

/** The backends of one model: who gets a request, and what was learned from those that they got. */
export class Fleet<Member extends BackendLoad> {
  #fleet: ChosenFleet<Member>;
  /** Another fleet has taken its place, and has the rows of the members that both have. */
  #isReplaced = false;
  readonly #cache: CacheIndex;
  /** Of a usual member, the geometric mean of those that were measured; 0: none was. */
  #tokensPerSecond = 0;
  /** Logarithms of the measured speeds, and their sum. */
  readonly #logSpeeds = new Map<Member, number>();
  #logSpeedsSum = 0;
  readonly #prompts = { count: 0, usualTokens: 0 };
  readonly #ownSpeeds = new Set<Member>();
  readonly #onHealth: OnHealth<Member>;
  /** For other processes, where there are some. */
  #sent: SentPrompt<Member>[] | undefined;

  /** `before`: what it takes the place of; what was learned about members of both is kept. */
  constructor(members: readonly Member[], before?: Fleet<Member>, onHealth: OnHealth<Member> = ignore) {
    this.#fleet = withFigures(members);
    this.#onHealth = onHealth;
    this.#cache = before === undefined ? new CacheIndex() : before.#cache;
    if (before === undefined) return;
    before.#isReplaced = true;
    this.#sent = before.#sent;
    this.#prompts = { ...before.#prompts };
    for (const member of before.#ownSpeeds) this.#ownSpeeds.add(member);
    for (const [member, logSpeed] of before.#logSpeeds) this.#setLogSpeed(member, logSpeed);
    this.#forgetLeft(before.members);
  }

  get members(): readonly Member[] {
    return this.#fleet.members;
  }

  /** Members come and go while requests are placed; what was learned about those that stay is kept. */
  become(members: readonly Member[]): void {
    const before = this.#fleet;
    for (const member of before.members) if (member.row?.figures === before.figures) member.row = undefined;
    this.#fleet = withFigures(members);
    this.#forgetLeft(before.members);
  }

  #forgetLeft(before: readonly Member[]): void {
    const kept = new Set(this.members);
    for (const member of before) {
      if (kept.has(member)) continue;
      this.#cache.drop(member);
      this.#forgetSpeed(member);
    }
  }

  /** Prompts that were sent since the last call; from the first call on they are kept. */
  takeSent(): readonly SentPrompt<Member>[] {
    const sent = this.#sent ?? [];
    this.#sent = [];
    return sent;
  }

  /** Another process has sent a prompt there: its beginnings are in the backend's cache. */
  sentElsewhere(member: Member, prefixes: PromptPrefixes): void {
    this.#cache.use(member, prefixes);
    note(member);
  }

  /** What runs and waits there of all other processes. */
  loadedElsewhere(member: Member, running: number, waitingTokens: number, waiting: number): void {
    member.runningElsewhere = running;
    member.waitingTokensElsewhere = waitingTokens;
    member.waitingElsewhere = waiting;
    note(member);
  }

  /** What others than this service have sent there; 0, 0: nothing that is known. */
  loadedByOthers(member: Member, running: number, waitingTokens: number): void {
    member.runningForeign = running;
    member.waitingTokensForeign = waitingTokens;
    note(member);
  }

  /** How much its cache holds, as it says. */
  sized(member: Member, cacheTokensMax: number): void {
    this.#cache.resize(member, cacheTokensMax);
  }

  /** How many prompts were placed, where there was a choice. */
  get placements(): number {
    return this.#prompts.count;
  }

  /** What a backend usually has to read of a prompt, lately. */
  get usualTokens(): number {
    return this.#prompts.usualTokens;
  }

  /** The speed that another process has measured; one's own measurements count instead. */
  measuredElsewhere(member: Member, tokensPerSecond: number, nowMs: number): void {
    if (member.measuredTokensPerSecond > 0 || member.ejectedUntilMs > 0) return;
    member.measuredTokensPerSecond = tokensPerSecond;
    member.measuredAtMs = nowMs;
    this.#setLogSpeed(member, Math.log(tokensPerSecond));
    this.#compareSpeed(member);
  }

  /** Another process has left it out just now, for that long: three failures there need not become three here too. */
  ejectedElsewhere(member: Member, forMs: number, nowMs: number): void {
    if (ejectedElsewhere(member, forMs, nowMs)) this.leftOut(member, nowMs);
  }

  /**
   * It gets nothing from now on. How fast it was, under the load of that time, does not compare with what is measured of others until it is
   * back: one of two vLLMs that was killed got 1 of the 102 requests of the first minute after its return.
   */
  leftOut(member: Member, nowMs: number): void {
    this.#forgetSpeed(member);
    this.#onHealth(member, nowMs);
  }

  /** It was stopped until now and goes on, so what waits there has not waited for longer than reading takes. */
  goesOn(member: Member, nowMs: number): void {
    readOldest(member, nowMs);
    note(member);
  }

  /** It has answered another process that had left it out. */
  backElsewhere(member: Member, nowMs: number): void {
    backElsewhere(member, nowMs);
  }

  /** Puts a request at a backend; `undefined`: none can take it now. Costs nothing worth measuring where there is one backend. */
  place(request: RoutedRequest, mayTake: (member: Member) => boolean, nowMs: number): Placement<Member> | undefined {
    if (this.members.length === 1) return this.#only(this.members[0]!, mayTake);
    const prefixes = request.prefixes();
    const chosen = { promptTokens: request.promptTokens, cachedTokens: this.#cache.look(prefixes) };
    if (this.#ownSpeeds.size > 0) this.#forgetSpeeds(nowMs);
    if (this.#isReplaced) this.#noteAll();
    const isSound = (member: Member): boolean => this.#isSound(member, nowMs) && mayTake(member);
    const choice =
      this.#choose(chosen, nowMs, isSound) ??
      // Unsound backends are better than none; while there is a sound one that is full, its requests wait.
      (this.members.some(isSound) ? undefined : this.#choose(chosen, nowMs, mayTake));
    return choice === undefined ? undefined : this.#placed(choice, prefixes, nowMs);
  }

  #choose(request: ChosenRequest, nowMs: number, mayTake: (member: Member) => boolean): Choice<Member> | undefined {
    return choose(request, this.#fleet, this.#tokensPerSecond || tokensPerSecondUnknown, nowMs, mayTake);
  }

  /** Requests that began before a reload may still come; what concerns members that others have too is noted elsewhere. */
  #noteAll(): void {
    const { members, figures } = this.#fleet;
    for (const [index, member] of members.entries()) figures.note(index, member);
  }

  #isSound(member: Member, nowMs: number): boolean {
    if (!isInUse(member, nowMs)) return false;
    const speed = member.ownTokensPerSecond || this.#tokensPerSecond;
    return speed === 0 || !isOverdue(member, speed, nowMs);
  }

  #only(member: Member, mayTake: (member: Member) => boolean): Placement<Member> | undefined {
    if (member.running >= member.concurrencyMax || !mayTake(member)) return undefined;
    member.running++;
    // In the fleet that has taken this one's place it may not be alone.
    note(member);
    return {
      backend: member,
      reasons: null,
      begun: ignore,
      answered: ignore,
      abandoned: ignore,
      failed: ignore,
      refused: ignore,
      end: () => {
        member.running--;
        note(member);
      },
    };
  }

  #placed({ backend, reasons }: Choice<Member>, prefixes: PromptPrefixes, nowMs: number): Placement<Member> {
    const { waitingTokens, uncachedTokens, cachedTokens } = reasons;
    const usedAt = prefixes === noPrefixes ? 0 : this.#cache.use(backend, prefixes);
    const placedAt = this.#cache.uses;
    if (this.#sent !== undefined && prefixes !== noPrefixes) this.#note({ member: backend, prefixes });
    backend.running++;
    backend.placed++;
    const isProbe = backend.ejectedUntilMs > 0;
    if (isProbe) backend.probes++;
    const placed = this.#prompts;
    backend.turn = ++placed.count;
    placed.usualTokens += (uncachedTokens - placed.usualTokens) * Math.max(usualShare, 1 / placed.count);
    const waiting = { tokens: uncachedTokens };
    wait(backend, waiting, nowMs);
    note(backend);
    return {
      backend,
      reasons,
      begun: (begunAtMs) => {
        if (!stopWaiting(backend, waiting, begunAtMs)) return;
        note(backend);
        // What waits before a short prompt says nothing of its speed either: several that came at once are read together. And what
        // was sent before the measurement before this would say the same again, of one pause as often as there were requests.
        if (uncachedTokens >= measuredTokensMin && nowMs >= backend.measuredAtMs)
          this.#measure(backend, waitingTokens + uncachedTokens, begunAtMs - nowMs, begunAtMs);
      },
      answered: (usage) => {
        if (answered(backend)) this.#onHealth(backend);
        if (usage.cachedTokens > 0) backend.reportsCache = true;
        backend.cachedTokensExpected += cachedTokens;
        backend.cachedTokensFound += usage.cachedTokens;
        // Where the server has lost it, it has lost what was used before it.
        if (backend.reportsCache && usedAt > 0 && usage.cachedTokens + cachedSlackTokens < cachedTokens)
          this.#cache.dropUsedUntil(backend, usedAt);
      },
      abandoned: (abandonedAtMs, isFault) => {
        this.#cache.reverse(backend, prefixes, placedAt, cachedTokens);
        if (isFault && failed(backend, abandonedAtMs)) this.leftOut(backend, abandonedAtMs);
      },
      failed: (failedAtMs) => {
        if (failed(backend, failedAtMs)) this.leftOut(backend, failedAtMs);
      },
      refused: () => this.#forgetSpeed(backend),
      end: (endedAtMs) => {
        stopWaiting(backend, waiting, endedAtMs);
        backend.running--;
        if (isProbe) backend.probes--;
        note(backend);
      },
    };
  }

  #note(sent: SentPrompt<Member>): void {
    const all = this.#sent!;
    // Half at once, so that it is seldom.
    if (all.length >= sentMax) all.splice(0, sentMax / 2);
    all.push(sent);
  }

  /** A backend reads what waits before a request too. */
  #measure(member: Member, tokens: number, elapsedMs: number, nowMs: number): void {
    const latest = (1_000 * tokens) / Math.max(1, elapsedMs);
    const isFirst = member.measuredTokensPerSecond === 0;
    const before = isFirst ? this.#tokensPerSecond || latest : member.measuredTokensPerSecond;
    member.measurements = 1 + (isFirst ? measurementsOfOthers : member.measurements);
    const ratio = Math.min(measuredRatioMax, Math.max(1 / measuredRatioMax, latest / before));
    member.measuredTokensPerSecond = before * ratio ** Math.max(latestShare, 1 / member.measurements);
    member.measuredAtMs = nowMs;
    this.#setLogSpeed(member, Math.log(member.measuredTokensPerSecond));
    this.#compareSpeed(member);
  }

  #compareSpeed(member: Member): void {
    const toOthers = member.measuredTokensPerSecond / this.#speedWithout(member);
    const isOwn = toOthers > ownSpeedRatio || toOthers < 1 / ownSpeedRatio;
    member.ownTokensPerSecond = isOwn ? member.measuredTokensPerSecond : 0;
    if (isOwn) this.#ownSpeeds.add(member);
    else this.#ownSpeeds.delete(member);
    note(member);
  }

  /** `undefined`: it is forgotten. */
  #setLogSpeed(member: Member, logSpeed: number | undefined): void {
    this.#logSpeedsSum += (logSpeed ?? 0) - (this.#logSpeeds.get(member) ?? 0);
    if (logSpeed === undefined) this.#logSpeeds.delete(member);
    else this.#logSpeeds.set(member, logSpeed);
    const { size } = this.#logSpeeds;
    this.#tokensPerSecond = size === 0 ? 0 : Math.exp(this.#logSpeedsSum / size);
  }

  /** Of the others; its own where it is the only one that was measured. */
  #speedWithout(member: Member): number {
    const logSpeed = this.#logSpeeds.get(member)!;
    const count = this.#logSpeeds.size - 1;
    return Math.exp(count === 0 ? logSpeed : (this.#logSpeedsSum - logSpeed) / count);
  }

  #forgetSpeeds(nowMs: number): void {
    for (const member of this.#ownSpeeds) if (nowMs - member.measuredAtMs >= ownSpeedMs) this.#forgetSpeed(member);
  }

  #forgetSpeed(member: Member): void {
    this.#setLogSpeed(member, undefined);
    this.#ownSpeeds.delete(member);
    member.ownTokensPerSecond = 0;
    member.measuredTokensPerSecond = 0;
    member.measurements = 0;
    note(member);
  }
}

/** One alone is not chosen, and has no figures. */
function withFigures<Member extends BackendLoad>(members: readonly Member[]): ChosenFleet<Member> {
  const figures = new FleetFigures(members.length > 1 ? members.length : 0);
  if (members.length < 2) return { members, figures };
  for (const [index, member] of members.entries()) {
    member.row = { figures, index };
    note(member);
  }
  return { members, figures };
}

/** Has to follow each change of what `choose` reads. */
function note(member: BackendLoad): void {
  const { row } = member;
  row?.figures.note(row.index, member);
}

function wait(backend: BackendLoad, waiting: Waiting, nowMs: number): void {
  backend.waiting.add(waiting);
  backend.waitingTokens += waiting.tokens;
  if (backend.waiting.size === 1) read(backend, waiting, nowMs);
}

/** Whether it was waiting. */
function stopWaiting(backend: BackendLoad, waiting: Waiting, nowMs: number): boolean {
  if (!backend.waiting.delete(waiting)) return false;
  backend.waitingTokens -= waiting.tokens;
  readOldest(backend, nowMs);
  return true;
}

function readOldest(backend: BackendLoad, nowMs: number): void {
  const [oldest] = backend.waiting;
  read(backend, oldest, nowMs);
}

function read(backend: BackendLoad, waiting: Waiting | undefined, nowMs: number): void {
  backend.readingTokens = waiting?.tokens ?? 0;
  backend.readingSinceMs = nowMs;
}

const ignore = (): void => {};
