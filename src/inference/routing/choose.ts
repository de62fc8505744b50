/**
 * Chooses the backend of a request by the least expected time to its first token. docs/decisions/030-least-expected-first-token.md
 * compares it with what other routers do.
 */

/** What is known of a backend while one request is placed. */
export interface BackendView {
  /** Backends of a higher rank are used when none of a lower one can take the request. */
  readonly rank: number;
  /** Share of the work beside backends of the same rank. */
  readonly weight: number;
  /** Requests at once. */
  readonly concurrencyMax: number;
  /** Requests that it works on now, those that wait for their first token included. */
  readonly running: number;
  /** The same of other processes that send requests there, when they last told. */
  readonly runningElsewhere: number;
  /** Uncached prompt tokens of the requests there that have no first token yet. */
  readonly waitingTokens: number;
  /** Of the requests of other processes, when they last told. */
  readonly waitingTokensElsewhere: number;
  /** Requests there that this service has not sent, and their uncached prompt tokens that wait, when the server last told. */
  readonly runningForeign: number;
  readonly waitingTokensForeign: number;
  /** Those of the oldest of our own requests that wait, which is being read, and since when. */
  readonly readingTokens: number;
  readonly readingSinceMs: number;
  /** Prompt tokens that it reads in a second, where it differs from the others; 0: like the others. */
  readonly ownTokensPerSecond: number;
  /** Where its cached tokens of this request's prompt are found (`ChosenRequest`). */
  readonly cacheNumber: number;
  /** Where it stands in the turns of backends that would take equally long. */
  readonly turn: number;
}

/** The backend of a request, and why. */
export interface Choice<View extends BackendView> {
  readonly backend: View;
  readonly reasons: ChoiceReasons;
}

/** The figures that decided. Of the fleet, not of the request's content. */
export interface ChoiceReasons {
  /** Until the first token, in milliseconds, by these figures. */
  readonly expectedMs: number;
  /** Tokens of the prompt that were expected to be in the backend's cache, and the others. */
  readonly cachedTokens: number;
  readonly uncachedTokens: number;
  /** Uncached prompt tokens of requests that were waiting there. */
  readonly waitingTokens: number;
  readonly running: number;
  /** What of `running` and `waitingTokens` others than this service have sent there, as the server told; absent: nothing that is known. */
  readonly foreign?: ForeignLoad;
  readonly tokensPerSecond: number;
  readonly rank: number;
  /** How many backends the model has. */
  readonly of: number;
}

export interface ForeignLoad {
  readonly running: number;
  /** By the usual length of our own prompts: a server tells how many wait, not how long they are. */
  readonly waitingTokens: number;
}

/**
 * How much of the work that waits counts. Part of it is already read, and a part is read beside this request. On a real trace the
 * optimum is flat from 0.25 to 1 (bench/results.md, "Choosing a backend").
 */
const waitingShare = 0.5;

/** What a running answer adds: in a step of the server it takes the place of a prompt token, and memory that a cache would use. */
const runningTokens = 1;

/** A request as far as its place depends on it. */
export interface ChosenRequest {
  /** Of the prompt. */
  readonly promptTokens: number;
  /** How many tokens at the beginning of its prompt a backend has in its cache, by the backend's `cacheNumber`. */
  readonly cachedTokens: Float64Array;
}

/** Backends of a model, and what was last noted of each. */
export interface ChosenFleet<View extends BackendView> {
  readonly members: readonly View[];
  readonly figures: FleetFigures;
}

/**
 * What a pass over a fleet reads of every backend, in columns: most are passed over by a bound of their time, and a pass over 1,000 objects
 * waits for memory (bench/results.md, "the cost of choosing").
 */
export class FleetFigures {
  readonly ranks: Int32Array;
  /** Tokens before a request's own part, at least; Infinity: it has as many requests as it may have. */
  readonly loads: Float64Array;
  /** 1: something waits there that is being read, so that the load is less than what has to be read. */
  readonly waits: Uint8Array;
  /** Tokens that it reads in a second, times its weight; below 0: the weight of one that reads as fast as the others. */
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

  /** Has to follow each change of the backend at this place. */
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

/** A bound may be off by what rounding takes. */
const roundingMax = 1 + 1e-9;

/**
 * The backend with the least expected time to the first token, of the lowest rank that can take the request; of those that would
 * take equally long, the one whose turn it is. `undefined`: none can take it now. One pass without an allocation before the result.
 *
 * `tokensPerSecond`: of a usual backend. `mayTake` is asked only of those that would be the best so far.
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

/** The first backend from `index` on that comes before the best so far; past the end: none does. Calls nothing for most of them. */
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
  // What a backend that reads as fast as the others may have to read, and what another may, for each token that it reads in a second.
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

/** At least the last token is always read. */
function ownTokens({ cacheNumber }: BackendView, { promptTokens, cachedTokens }: ChosenRequest): number {
  const cached = cachedTokens[cacheNumber]!;
  return cached < promptTokens ? promptTokens - cached : 1;
}

/** The waiting part, what runs, and this request's own part. */
function secondsAt(backend: BackendView, own: number, tokensPerSecond: number, nowMs: number): number {
  const { waitingTokens, ownTokensPerSecond, weight } = backend;
  const unread = waitingTokens === 0 ? 0 : unreadTokens(backend, tokensPerSecond, nowMs);
  return (loadOf(backend, unread) + own) / ((ownTokensPerSecond || tokensPerSecond) * weight);
}

const loadOf = (backend: BackendView, unread: number): number =>
  waitingShare * (unread + backend.waitingTokensElsewhere + backend.waitingTokensForeign) +
  runningTokens * (backend.running + backend.runningElsewhere + backend.runningForeign);

/** What waits, without what the backend has read of it by its speed. */
function unreadTokens(
  { waitingTokens, readingTokens, readingSinceMs, ownTokensPerSecond }: BackendView,
  tokensPerSecond: number,
  nowMs: number,
): number {
  const speed = ownTokensPerSecond || tokensPerSecond;
  return waitingTokens - Math.min(readingTokens, ((nowMs - readingSinceMs) * speed) / 1_000);
}

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
