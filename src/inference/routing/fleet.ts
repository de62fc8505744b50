import { note, type BackendLoad, type Waiting } from './backend-load.ts';
import { CacheIndex } from './cache-index.ts';
import {
  choose,
  reasonsAt,
  FleetFigures,
  type Choice,
  type ChoiceReasons,
  type ChosenFleet,
  type ChosenRequest,
} from './choose.ts';
import { Comparison, type OnCompared } from './comparison.ts';
import { EarlierPrompts } from './earlier-prompts.ts';
import { answered, backElsewhere, ejectedElsewhere, failed, isInUse, isOverdue } from './health.ts';
import { noPrefixes, type PromptPrefixes } from './prompt-prefixes.ts';

/** The parts of a request that decide its backend. */
export interface RoutedRequest {
  /** Estimated tokens of the prompt. */
  readonly promptTokens: number;
  /** Called only if there is a choice. */
  readonly prefixes: () => PromptPrefixes;
}

/** A request placed at a backend: `begun` at most once, `end` exactly once. */
/** A backend with more of the prompt in its cache than the one that was chosen, with its figures, and why it was not chosen. */
export interface CachedElsewhere<Member> {
  readonly backend: Member;
  readonly reasons: ChoiceReasons;
  readonly state: 'slower' | 'full' | 'unavailable';
}

export interface Placement<Member> {
  readonly backend: Member;
  /** null: there was no choice. */
  readonly reasons: ChoiceReasons | null;
  /** Another backend that is believed to have more of the prompt in its cache, if there is one. */
  readonly elsewhere?: CachedElsewhere<Member> | undefined;
  /** The first token has arrived. */
  begun(nowMs: number): void;
  /** The answer is complete; `usage` is what the backend reports about its prompt. */
  answered(usage: { readonly cachedTokens: number }): void;
  /**
   * The request was stopped because another backend was faster. How much of the prompt is now cached is unknown, so nothing new counts as
   * cached. `isFault`: counts as a failure.
   */
  abandoned(nowMs: number, isFault: boolean): void;
  /** The backend has failed the request, by its own fault. */
  failed(nowMs: number): void;
  /** The connection was refused: the next server at this address is one that has just started. */
  refused(): void;
  end(nowMs: number): void;
}

/** The assumed speed while no backend is measured; only its ratio to the running load matters. */
const tokensPerSecondUnknown = 4_000;
/** Least weight of the latest measurement; while there are few, they have equal weights. */
const latestShare = 0.1;
/** A backend starts with the speed of the others, which has the weight of this many measurements. */
const measurementsOfOthers = 3;
/** Outliers are clamped to this factor: a pause of the server says little about its speed. */
const measuredRatioMax = 2;
/** A shorter prompt would measure the network. */
const measuredTokensMin = 64;
/** Backends whose speeds differ by less are of one kind, and the difference is noise. */
const ownSpeedRatio = 1.5;
/** A slow backend that was not measured for this long is tried again. */
const ownSpeedMs = 300_000;
/** A smaller difference in cached tokens is only due to block boundaries: 512 characters and the beginning of a template. */
const cachedSlackTokens = 256;

/** A prompt that was sent to a backend. */
export interface SentPrompt<Member> {
  readonly member: Member;
  readonly prefixes: PromptPrefixes;
}

/** Weight of the latest prompt in the moving average of prompt sizes. */
const usualShare = 0.02;

/** Maximum unreported entries; the oldest are dropped. */
const sentMax = 2_000;

/** Called with `ejectedAtMs` when a backend is left out from then on, and without it when the backend is in use again. */
export type OnHealth<Member> = (member: Member, ejectedAtMs?: number) => void;

/** The backends of one model: places requests, and learns from their results. */
export class Fleet<Member extends BackendLoad> {
  #fleet: ChosenFleet<Member>;
  /** Another fleet has replaced this one, and owns the rows of the members that both have. */
  #isReplaced = false;
  readonly #cache: CacheIndex;
  /** The geometric mean speed of the measured members; 0: none is measured. */
  #tokensPerSecond = 0;
  /** Logarithms of the measured speeds, and their sum. */
  readonly #logSpeeds = new Map<Member, number>();
  #logSpeedsSum = 0;
  readonly #prompts = { count: 0, usualTokens: 0 };
  readonly #ownSpeeds = new Set<Member>();
  readonly #onHealth: OnHealth<Member>;
  /** Prompts to report to other processes, if there are any. */
  #sent: SentPrompt<Member>[] | undefined;
  /** What their answers are like, and who is worse than the others. */
  readonly compared: Comparison<Member>;
  /** Which messages the prompts began with that were placed while there was a choice. */
  readonly earlier: EarlierPrompts;

  /** `before`: the fleet that this one replaces; what was learned about members of both is kept. */
  constructor(
    members: readonly Member[],
    before?: Fleet<Member>,
    onHealth: OnHealth<Member> = ignore,
    onCompared: OnCompared<Member> = ignore,
  ) {
    this.#fleet = withFigures(members);
    this.#onHealth = onHealth;
    this.compared = new Comparison(() => this.members, onCompared);
    this.#cache = before === undefined ? new CacheIndex() : before.#cache;
    this.earlier = before === undefined ? new EarlierPrompts() : before.earlier;
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

  /** Replaces the members while requests are placed; what was learned about those that stay is kept. */
  become(members: readonly Member[]): void {
    const before = this.#fleet;
    for (const member of before.members) if (member.row?.figures === before.figures) member.row = undefined;
    this.#fleet = withFigures(members);
    this.compared.membersChanged();
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

  /** Returns the prompts sent since the last call; they are recorded from the first call on. */
  takeSent(): readonly SentPrompt<Member>[] {
    const sent = this.#sent ?? [];
    this.#sent = [];
    return sent;
  }

  /** Records that another process has sent a prompt to a backend, so its prefixes are in the backend's cache. */
  sentElsewhere(member: Member, prefixes: PromptPrefixes): void {
    this.#cache.use(member, prefixes);
    note(member);
  }

  /** Sets what all other processes run and have waiting there. */
  loadedElsewhere(member: Member, running: number, waitingTokens: number, waiting: number): void {
    member.runningElsewhere = running;
    member.waitingTokensElsewhere = waitingTokens;
    member.waitingElsewhere = waiting;
    note(member);
  }

  /** Sets the load of requests that were not sent by this service; 0, 0: none known. */
  loadedByOthers(member: Member, running: number, waitingTokens: number): void {
    member.runningForeign = running;
    member.waitingTokensForeign = waitingTokens;
    note(member);
  }

  /** Sets the cache capacity that the backend reports. */
  sized(member: Member, cacheTokensMax: number): void {
    this.#cache.resize(member, cacheTokensMax);
  }

  /** Number of prompts placed while there was a choice. */
  get placements(): number {
    return this.#prompts.count;
  }

  /** The recent average of uncached tokens per prompt. */
  get usualTokens(): number {
    return this.#prompts.usualTokens;
  }

  /** Takes over a speed measured by another process; our own measurements take precedence. */
  measuredElsewhere(member: Member, tokensPerSecond: number, nowMs: number): void {
    if (member.measuredTokensPerSecond > 0 || member.ejectedUntilMs > 0) return;
    member.measuredTokensPerSecond = tokensPerSecond;
    member.measuredAtMs = nowMs;
    this.#setLogSpeed(member, Math.log(tokensPerSecond));
    this.#compareSpeed(member);
  }

  /** Another process has just left the backend out, for that long: three failures there need not become three here too. */
  ejectedElsewhere(member: Member, forMs: number, nowMs: number): void {
    if (ejectedElsewhere(member, forMs, nowMs)) this.leftOut(member, nowMs);
  }

  /**
   * The backend gets nothing from now on. Its speed, measured under the load before, is not comparable with the others' speeds when it is
   * back: one of two vLLMs that was killed got 1 of the 102 requests of the first minute after its return.
   */
  leftOut(member: Member, nowMs: number): void {
    this.#forgetSpeed(member);
    this.#onHealth(member, nowMs);
  }

  /** The backend was frozen until now and goes on, so what waits there has not waited for longer than reading takes. */
  goesOn(member: Member, nowMs: number): void {
    readOldest(member, nowMs);
    note(member);
  }

  /** The backend has answered another process that had left it out. */
  backElsewhere(member: Member, nowMs: number): void {
    backElsewhere(member, nowMs);
  }

  /** Places a request at a backend; `undefined`: none can take it now. Costs nothing measurable for a single backend. */
  place(request: RoutedRequest, mayTake: (member: Member) => boolean, nowMs: number): Placement<Member> | undefined {
    if (this.members.length === 1) return this.#only(this.members[0]!, mayTake);
    const prefixes = request.prefixes();
    const chosen = { promptTokens: request.promptTokens, cachedTokens: this.#cache.look(prefixes) };
    if (this.#ownSpeeds.size > 0) this.#forgetSpeeds(nowMs);
    if (this.#isReplaced) this.#noteAll();
    const isSound = (member: Member): boolean => this.#isSound(member, nowMs) && mayTake(member);
    const choice =
      this.#choose(chosen, nowMs, isSound) ??
      // Unsound backends are better than none; while a sound one is full, its requests wait.
      (this.members.some(isSound) ? undefined : this.#choose(chosen, nowMs, mayTake));
    if (choice === undefined) return undefined;
    return this.#placed(choice, prefixes, nowMs, this.#elsewhere(choice.backend, chosen, nowMs, isSound));
  }

  #elsewhere(
    chosen: Member,
    request: ChosenRequest,
    nowMs: number,
    isSound: (member: Member) => boolean,
  ): CachedElsewhere<Member> | undefined {
    const { number, tokens } = this.#cache.longest;
    if (number === 0 || tokens <= request.cachedTokens[chosen.cacheNumber]!) return undefined;
    const backend = this.members.find(({ cacheNumber }) => cacheNumber === number);
    if (backend === undefined) return undefined;
    const reasons = reasonsAt(
      backend,
      request,
      this.members.length,
      this.#tokensPerSecond || tokensPerSecondUnknown,
      nowMs,
    );
    const isFull = backend.running >= backend.concurrencyMax;
    return { backend, reasons, state: isFull ? 'full' : isSound(backend) ? 'slower' : 'unavailable' };
  }

  #choose(request: ChosenRequest, nowMs: number, mayTake: (member: Member) => boolean): Choice<Member> | undefined {
    return choose(request, this.#fleet, this.#tokensPerSecond || tokensPerSecondUnknown, nowMs, mayTake);
  }

  /** Requests that began before a reload may still arrive; changes of members that both fleets have are noted in the other one. */
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
    // It may not be the only member of the fleet that has replaced this one.
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

  #placed(
    { backend, reasons }: Choice<Member>,
    prefixes: PromptPrefixes,
    nowMs: number,
    elsewhere: CachedElsewhere<Member> | undefined,
  ): Placement<Member> {
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
    this.compared.placed(backend);
    placed.usualTokens += (uncachedTokens - placed.usualTokens) * Math.max(usualShare, 1 / placed.count);
    const waiting = { tokens: uncachedTokens };
    wait(backend, waiting, nowMs);
    note(backend);
    return {
      backend,
      reasons,
      elsewhere,
      begun: (begunAtMs) => {
        if (!stopWaiting(backend, waiting, begunAtMs)) return;
        note(backend);
        // What waits before a short prompt says nothing about its speed either: several that came together are read together. And a request
        // that was sent before the previous measurement would repeat it: one pause would count once for each request.
        if (uncachedTokens >= measuredTokensMin && nowMs >= backend.measuredAtMs)
          this.#measure(backend, waitingTokens + uncachedTokens, begunAtMs - nowMs, begunAtMs);
      },
      answered: (usage) => {
        if (answered(backend)) this.#onHealth(backend);
        if (usage.cachedTokens > 0) backend.reportsCache = true;
        backend.cachedTokensExpected += cachedTokens;
        backend.cachedTokensFound += usage.cachedTokens;
        // If the server has evicted it, it has evicted what was used before it too.
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
    // Half of them, so that it happens seldom.
    if (all.length >= sentMax) all.splice(0, sentMax / 2);
    all.push(sent);
  }

  /** The backend has also read what was waiting before the request. */
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

  /** `undefined` removes it. */
  #setLogSpeed(member: Member, logSpeed: number | undefined): void {
    this.#logSpeedsSum += (logSpeed ?? 0) - (this.#logSpeeds.get(member) ?? 0);
    if (logSpeed === undefined) this.#logSpeeds.delete(member);
    else this.#logSpeeds.set(member, logSpeed);
    const { size } = this.#logSpeeds;
    this.#tokensPerSecond = size === 0 ? 0 : Math.exp(this.#logSpeedsSum / size);
  }

  /** The mean speed of the others; its own if it is the only one measured. */
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

/** A single member is not chosen, and has no figures. */
function withFigures<Member extends BackendLoad>(members: readonly Member[]): ChosenFleet<Member> {
  const figures = new FleetFigures(members.length > 1 ? members.length : 0);
  if (members.length < 2) return { members, figures };
  for (const [index, member] of members.entries()) {
    member.row = { figures, index };
    note(member);
  }
  return { members, figures };
}

function wait(backend: BackendLoad, waiting: Waiting, nowMs: number): void {
  backend.waiting.add(waiting);
  backend.waitingTokens += waiting.tokens;
  if (backend.waiting.size === 1) read(backend, waiting, nowMs);
}

/** Returns whether it was waiting. */
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
