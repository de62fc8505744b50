import type { BackendQuality } from './backend-quality.ts';
import { cacheTokensUnknown, type CacheView } from './cache-index.ts';
import { CachedPrefixes } from './cached-prefixes.ts';
import type { BackendView, FleetFigures } from './choose.ts';
import { soundHealth, type BackendHealth } from './health.ts';

/** A backend as the fleet sees it; only the fleet modifies it. */
export interface BackendLoad extends BackendView, CacheView, BackendHealth {
  rank: number;
  /** As configured, less while it is worse than its peers. */
  weight: number;
  readonly weightWritten: number;
  cacheNumber: number;
  running: number;
  runningElsewhere: number;
  runningForeign: number;
  waitingTokens: number;
  waitingTokensElsewhere: number;
  waitingTokensForeign: number;
  readingTokens: number;
  readingSinceMs: number;
  /** Requests that wait for their first token, oldest first. */
  readonly waiting: Set<Waiting>;
  /** Number of requests of other processes that wait there, as last reported. */
  waitingElsewhere: number;
  /** Number of requests ever placed there while there was a choice. */
  placed: number;
  ownTokensPerSecond: number;
  turn: number;
  /** Measured tokens per second, weighted towards the latest; 0: not measured. */
  measuredTokensPerSecond: number;
  /** The weight of that figure, in measurements. */
  measurements: number;
  measuredAtMs: number;
  /** Its row in its fleet's figures; `undefined`: it is the only member, or in no fleet. */
  row: FiguresRow | undefined;
  /** It has reported cached tokens at least once; many servers report none unless configured to. */
  reportsCache: boolean;
  /** Prompt tokens that were expected in its cache, and those that it reported as cached, for the same requests. */
  cachedTokensExpected: number;
  cachedTokensFound: number;
  /** What its answers were like, from the first of them on. */
  quality: BackendQuality | undefined;
}

export interface FiguresRow {
  readonly figures: FleetFigures;
  readonly index: number;
}

export interface Waiting {
  /** Uncached tokens of its prompt. */
  readonly tokens: number;
}

/** Returns the state of an idle backend. */
export function idleLoad({ concurrencyMax = Infinity, weight = 1 } = {}): BackendLoad {
  return {
    rank: 1,
    weight,
    weightWritten: weight,
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
    quality: undefined,
    ...soundHealth(),
  };
}

/** Must be called after each change of what `choose` reads. */
export function note(member: BackendLoad): void {
  const { row } = member;
  row?.figures.note(row.index, member);
}
