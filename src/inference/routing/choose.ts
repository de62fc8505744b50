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
  /** Those of the oldest of these requests, which is being read, and since when. */
  readonly readingTokens: number;
  readonly readingSinceMs: number;
  /** Prompt tokens that it reads in a second, where it differs from the others; 0: like the others. */
  readonly ownTokensPerSecond: number;
  /** How many tokens at the beginning of this request's prompt it has in its cache. */
  readonly cachedTokens: number;
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
  readonly tokensPerSecond: number;
  readonly rank: number;
  /** How many backends the model has. */
  readonly of: number;
}

/**
 * How much of the work that waits counts. Part of it is already read, and a part is read beside this request. On a real trace the
 * optimum is flat from 0.25 to 1 (bench/results.md, "Choosing a backend").
 */
const waitingShare = 0.5;

/** What a running answer adds: in a step of the server it takes the place of a prompt token, and memory that a cache would use. */
const runningTokens = 1;

/**
 * The backend with the least expected time to the first token, of the lowest rank that can take the request; of those that would
 * take equally long, the one whose turn it is. `undefined`: none can take it now. One pass without an allocation before the result.
 *
 * `tokens`: of the prompt. `tokensPerSecond`: of a usual backend. `mayTake` is asked only of those that would be the best so far.
 */
export function choose<View extends BackendView>(
  tokens: number,
  fleet: readonly View[],
  tokensPerSecond: number,
  nowMs: number,
  mayTake: (backend: View) => boolean,
): Choice<View> | undefined {
  let best: View | undefined;
  let leastSeconds = Infinity;
  let leastRank = Infinity;
  for (let index = 0; index < fleet.length; index++) {
    const backend = fleet[index]!;
    if (backend.rank > leastRank || backend.running >= backend.concurrencyMax) continue;
    const seconds = secondsAt(backend, tokens, tokensPerSecond, nowMs);
    if (backend.rank === leastRank) {
      if (seconds > leastSeconds || (seconds === leastSeconds && backend.turn >= best!.turn)) continue;
    }
    if (!mayTake(backend)) continue;
    best = backend;
    leastSeconds = seconds;
    leastRank = backend.rank;
  }
  return best === undefined
    ? undefined
    : { backend: best, reasons: reasonsOf(best, tokens, tokensPerSecond, nowMs, fleet) };
}

/** The waiting part, this request's own part, and what runs. At least the last token is always read. */
function secondsAt(backend: BackendView, tokens: number, tokensPerSecond: number, nowMs: number): number {
  const own = backend.cachedTokens < tokens ? tokens - backend.cachedTokens : 1;
  const speed = backend.ownTokensPerSecond === 0 ? tokensPerSecond : backend.ownTokensPerSecond;
  const waiting =
    (backend.waitingTokens === 0 ? 0 : unreadTokens(backend, speed, nowMs)) + backend.waitingTokensElsewhere;
  const read = waitingShare * waiting + own + runningTokens * (backend.running + backend.runningElsewhere);
  return read / (speed * backend.weight);
}

/** What waits, without what the backend has read of it by its speed. */
function unreadTokens(
  { waitingTokens, readingTokens, readingSinceMs }: BackendView,
  speed: number,
  nowMs: number,
): number {
  return waitingTokens - Math.min(readingTokens, ((nowMs - readingSinceMs) * speed) / 1_000);
}

function reasonsOf(
  backend: BackendView,
  tokens: number,
  tokensPerSecond: number,
  nowMs: number,
  fleet: readonly BackendView[],
): ChoiceReasons {
  const speed = backend.ownTokensPerSecond || tokensPerSecond;
  const cachedTokens = Math.min(backend.cachedTokens, Math.max(0, tokens - 1));
  return {
    expectedMs: Math.round(1_000 * secondsAt(backend, tokens, tokensPerSecond, nowMs)),
    cachedTokens: Math.round(cachedTokens),
    uncachedTokens: Math.round(tokens - cachedTokens),
    waitingTokens: Math.round(unreadTokens(backend, speed, nowMs) + backend.waitingTokensElsewhere),
    running: backend.running + backend.runningElsewhere,
    tokensPerSecond: Math.round(speed),
    rank: backend.rank,
    of: fleet.length,
  };
}
