/**
 * Chooses the backend of a request by the least expected time to its first token. docs/decisions/030-least-expected-first-token.md
 * compares it with what other routers do.
 */

/** What is known of a backend while a request is placed. */
export interface BackendView {
  /** Backends of a higher rank are used only if no backend of a lower rank can take the request. */
  readonly rank: number;
  /** Its share of the work among backends of the same rank. */
  readonly weight: number;
  /** Maximum concurrent requests. */
  readonly concurrencyMax: number;
  /** Requests in progress there, including those that wait for their first token. */
  readonly running: number;
  /** `running` of other processes that send requests there, as last reported. */
  readonly runningElsewhere: number;
  /** Uncached prompt tokens of the requests there that have no first token yet. */
  readonly waitingTokens: number;
  /** `waitingTokens` of other processes, as last reported. */
  readonly waitingTokensElsewhere: number;
  /** Requests there that this service has not sent, and their uncached waiting prompt tokens, as the server last reported. */
  readonly runningForeign: number;
  readonly waitingTokensForeign: number;
  /** Uncached tokens of our own oldest waiting request, which is being read, and when reading began. */
  readonly readingTokens: number;
  readonly readingSinceMs: number;
  /** Prompt tokens per second, if it differs from the others; 0: like the others. */
  readonly ownTokensPerSecond: number;
  /** The index of its cached tokens for this request's prompt (`ChosenRequest`). */
  readonly cacheNumber: number;
  /** Its place in the turns of backends that would take equally long. */
  readonly turn: number;
}

/** The backend chosen for a request, and why. */
export interface Choice<View extends BackendView> {
  readonly backend: View;
  readonly reasons: ChoiceReasons;
}

/** The figures that decided. They describe the fleet, not the request's content. */
export interface ChoiceReasons {
  /** Expected milliseconds to the first token, by these figures. */
  readonly expectedMs: number;
  /** Tokens of the prompt that were expected to be in the backend's cache, and the others. */
  readonly cachedTokens: number;
  readonly uncachedTokens: number;
  /** Uncached prompt tokens of the requests that were waiting there. */
  readonly waitingTokens: number;
  readonly running: number;
  /** The part of `running` and `waitingTokens` that was not sent by this service, as the server reported; absent if none is known. */
  readonly foreign?: ForeignLoad;
  readonly tokensPerSecond: number;
  readonly rank: number;
  /** How many backends the model has. */
  readonly of: number;
}

export interface ForeignLoad {
  readonly running: number;
  /** Estimated from the usual length of our own prompts: a server reports how many requests wait, not how long they are. */
  readonly waitingTokens: number;
}

/**
 * The weight of waiting work. Part of it is already read, and part is read alongside this request. On a real trace the optimum is flat from
 * 0.25 to 1 (bench/results.md, "Choosing a backend").
 */
const waitingShare = 0.5;

/** The cost of a running answer, in tokens: in a server's step it takes the place of a prompt token, and memory that a cache would use. */
const runningTokens = 1;

/** The parts of a request that decide its backend. */
export interface ChosenRequest {
  /** Tokens of the prompt. */
  readonly promptTokens: number;
  /** How many tokens at the beginning of the prompt a backend has cached, by the backend's `cacheNumber`. */
  readonly cachedTokens: Float64Array;
}

/** The backends of a model, and the last noted figures of each. */
export interface ChosenFleet<View extends BackendView> {
  readonly members: readonly View[];
  readonly figures: FleetFigures;
}

/**
 * What a pass over a fleet reads of every backend, in columns: most backends are skipped by a bound on their time, and a pass over 1,000
 * objects waits for memory (bench/results.md, "the cost of choosing").
 */
export class FleetFigures {
  readonly ranks: Int32Array;
  /** A lower bound of the tokens before a request's own; Infinity: the backend is at its maximum of concurrent requests. */
  readonly loads: Float64Array;
  /** 1: a waiting request is being read, so `loads` is less than what has to be read. */
  readonly waits: Uint8Array;
  /** Tokens per second times the weight; below 0: the negated weight of a backend that is as fast as the others. */
  readonly paces: Float64Array;
  readonly cacheNumbers: Int32Array;
  readonly turns: Float64Array;

  constructor(length: number) {
    this.ranks = new Int32Array(length);
    this.loads = new Float64Array(length);
    this.waits = new Uint8Array(length);
    this.paces = new Float64Array(length);
    this.cacheNumbers = new Int32Array(length);
    this.turns = new Float64Array(length);
  }

  /** Must be called after each change of the backend at this index. */
  note(index: number, backend: BackendView): void {
    const { running, concurrencyMax, waitingTokens, readingTokens, ownTokensPerSecond, weight } = backend;
    this.ranks[index] = backend.rank;
    this.loads[index] =
      running >= concurrencyMax ? Infinity : loadOf(backend, waitingTokens === 0 ? 0 : waitingTokens - readingTokens);
    this.waits[index] = waitingTokens === 0 ? 0 : 1;
    this.paces[index] = ownTokensPerSecond === 0 ? -weight : ownTokensPerSecond * weight;
    this.cacheNumbers[index] = backend.cacheNumber;
    this.turns[index] = backend.turn;
  }
}

/** Slack of a bound, for rounding errors. */
const roundingMax = 1 + 1e-9;

/**
 * Returns the backend with the least expected time to the first token, of the lowest rank that can take the request; among equals, the one
 * whose turn it is. `undefined`: none can take it now. One pass without an allocation before the result.
 *
 * `tokensPerSecond`: the speed of a typical backend. `mayTake` is called only for backends that would be the best so far.
 */
export function choose<View extends BackendView>(
  request: ChosenRequest,
  { members, figures }: ChosenFleet<View>,
  tokensPerSecond: number,
  nowMs: number,
  mayTake: (backend: View) => boolean,
): Choice<View> | undefined {
  let best: View | undefined;
  const least = { rank: Infinity, seconds: Number.MAX_VALUE, turn: 0 };
  let index = 0;
  for (;;) {
    index = nextBetter(index, request, members, figures, tokensPerSecond, nowMs, least);
    if (index === members.length) break;
    const backend = members[index]!;
    if (mayTake(backend)) {
      best = backend;
      least.rank = figures.ranks[index]!;
      least.seconds = secondsAt(backend, ownTokens(backend, request), tokensPerSecond, nowMs);
      least.turn = figures.turns[index]!;
    }
    index++;
  }
  return best === undefined
    ? undefined
    : { backend: best, reasons: reasonsOf(best, least.seconds, request, members.length, tokensPerSecond, nowMs) };
}

/** The first backend from `index` on that is better than the best so far; the length if there is none. Calls nothing for most of them. */
function nextBetter(
  from: number,
  { promptTokens, cachedTokens }: ChosenRequest,
  members: readonly BackendView[],
  { ranks, loads, waits, paces, cacheNumbers, turns }: FleetFigures,
  tokensPerSecond: number,
  nowMs: number,
  least: { readonly rank: number; readonly seconds: number; readonly turn: number },
): number {
  const count = members.length;
  const { rank: leastRank, seconds: leastSeconds, turn: leastTurn } = least;
  // How much a backend of the usual speed may have to read to be better, and how much another, per token that it reads in a second.
  const limitSeconds = leastSeconds * roundingMax;
  const limitUsual = limitSeconds * tokensPerSecond;
  for (let index = from; index < count; index++) {
    const cached = cachedTokens[cacheNumbers[index]!]!;
    const own = cached < promptTokens ? promptTokens - cached : 1;
    const pace = paces[index]!;
    const read = loads[index]! + own;
    const rank = ranks[index]!;
    if (read > (pace < 0 ? -pace * limitUsual : pace * limitSeconds) && rank >= leastRank) continue;
    if (rank > leastRank || read === Infinity) continue;
    const seconds =
      waits[index] === 0
        ? read / (pace < 0 ? tokensPerSecond * -pace : pace)
        : secondsAt(members[index]!, own, tokensPerSecond, nowMs);
    if (rank < leastRank || seconds < leastSeconds || (seconds === leastSeconds && turns[index]! < leastTurn))
      return index;
  }
  return count;
}

/** The last token at least is always read. */
function ownTokens({ cacheNumber }: BackendView, { promptTokens, cachedTokens }: ChosenRequest): number {
  const cached = cachedTokens[cacheNumber]!;
  return cached < promptTokens ? promptTokens - cached : 1;
}

/** The time for the waiting work, the running answers, and this request's own tokens. */
function secondsAt(backend: BackendView, own: number, tokensPerSecond: number, nowMs: number): number {
  const { waitingTokens, ownTokensPerSecond, weight } = backend;
  const unread = waitingTokens === 0 ? 0 : unreadTokens(backend, tokensPerSecond, nowMs);
  return (loadOf(backend, unread) + own) / ((ownTokensPerSecond || tokensPerSecond) * weight);
}

const loadOf = (backend: BackendView, unread: number): number =>
  waitingShare * (unread + backend.waitingTokensElsewhere + backend.waitingTokensForeign) +
  runningTokens * (backend.running + backend.runningElsewhere + backend.runningForeign);

/** Waiting tokens, less what the backend should have read by now at its speed. */
function unreadTokens(
  { waitingTokens, readingTokens, readingSinceMs, ownTokensPerSecond }: BackendView,
  tokensPerSecond: number,
  nowMs: number,
): number {
  const speed = ownTokensPerSecond || tokensPerSecond;
  return waitingTokens - Math.min(readingTokens, ((nowMs - readingSinceMs) * speed) / 1_000);
}

/** The figures of a backend that was not chosen. */
export const reasonsAt = (
  backend: BackendView,
  request: ChosenRequest,
  of: number,
  tokensPerSecond: number,
  nowMs: number,
): ChoiceReasons =>
  reasonsOf(
    backend,
    secondsAt(backend, ownTokens(backend, request), tokensPerSecond, nowMs),
    request,
    of,
    tokensPerSecond,
    nowMs,
  );

function reasonsOf(
  backend: BackendView,
  expectedSeconds: number,
  { promptTokens, cachedTokens }: ChosenRequest,
  of: number,
  tokensPerSecond: number,
  nowMs: number,
): ChoiceReasons {
  const cached = Math.min(cachedTokens[backend.cacheNumber]!, Math.max(0, promptTokens - 1));
  const { waitingTokensElsewhere, runningElsewhere, runningForeign, waitingTokensForeign } = backend;
  const unread = unreadTokens(backend, tokensPerSecond, nowMs);
  return {
    expectedMs: Math.round(1_000 * expectedSeconds),
    cachedTokens: Math.round(cached),
    uncachedTokens: Math.round(promptTokens - cached),
    waitingTokens: Math.round(unread + waitingTokensElsewhere + waitingTokensForeign),
    running: backend.running + runningElsewhere + runningForeign,
    ...(runningForeign === 0 && waitingTokensForeign === 0
      ? {}
      : { foreign: { running: runningForeign, waitingTokens: Math.round(waitingTokensForeign) } }),
    tokensPerSecond: Math.round(backend.ownTokensPerSecond || tokensPerSecond),
    rank: backend.rank,
    of,
  };
}
