import { EventQueue } from './event-queue.ts';
import { tickMs, type Policy, type PolicyOptions, type Sent } from './policies.ts';
import { blockTokens, type TracedRequest } from './trace.ts';

/** A fleet of equal servers, each of which reads one prompt after another and writes its answers beside. */
export interface FleetShape {
  readonly servers: number;
  readonly cacheBlocks: number;
  /** Prompt tokens, without the cached ones, that a server reads in a second. */
  readonly tokensPerSecond: number;
  /** Times the usual speed, by server; the others have 1. */
  readonly speeds?: Readonly<Record<number, number>>;
  /** Servers that end at once and come back empty. Whoever has asked them meanwhile is refused at once. */
  readonly outages?: readonly Outage[];
}

interface Outage {
  readonly server: number;
  readonly fromMs: number;
  readonly toMs: number;
}

/** The first server is there for five seconds and away for two, from the twentieth second on: its speed is known by then. */
export function flapping(untilMs: number): readonly Outage[] {
  const outages: Outage[] = [];
  for (let fromMs = 20_000; fromMs < untilMs; fromMs += 7_000)
    outages.push({ server: 0, fromMs, toMs: fromMs + 2_000 });
  return outages;
}

/** Times in seconds. */
export interface Figures {
  /** Part of all prompt tokens that was cached, from 0 to 1. */
  readonly hitRate: number;
  /** Tokens read by the busiest server, as a multiple of the mean. */
  readonly imbalance: number;
  /** Until the first token: quantiles. */
  readonly p50: number;
  readonly p90: number;
  readonly p99: number;
  /** Longest time from the end of a server to the first token elsewhere of a request that was there. */
  readonly failover: number;
  /** From the return of a server to its next request, the longest of all outages. */
  readonly comeback: number;
  readonly failed: number;
  /** Answers that had begun at a server that ended. */
  readonly cut: number;
  /** Part of the first tokens that the first server gave, from 0 to 1. */
  readonly firstShare: number;
  /** Until the first token of the first server, the 99th percentile; 0: it gave none. */
  readonly firstP99: number;
}

/** How long one token of an answer takes. */
const answerTokenMs = 25;
/** A server that refuses is looked at this often. */
const lookMs = 1_000;

interface Server {
  readonly index: number;
  readonly tokensPerMs: number;
  /** The blocks in the cache, the last used last. */
  readonly cache: Map<number, true>;
  readonly present: Set<Running>;
  running: number;
  /** Not yet read, the one that is being read included. */
  unread: number;
  readonly waiting: number;
  isDown: boolean;
  isDead: boolean;
  freeAtMs: number;
  readTokens: number;
  returnedAtMs: number | undefined;
}

interface Running {
  readonly request: TracedRequest;
  readonly tried: Set<number>;
  sent: Sent;
  cachedTokens: number;
  lostAtMs: number | undefined;
  hasBegun: boolean;
}

/** Plays a trace on a clock of its own. */
export function runFleet(
  trace: readonly TracedRequest[],
  shape: FleetShape,
  policyOf: (options: PolicyOptions) => Policy,
): Figures {
  return new Play(trace, shape, policyOf).run();
}

class Play {
  readonly #trace: readonly TracedRequest[];
  readonly #shape: FleetShape;
  readonly #servers: readonly Server[];
  readonly #policy: Policy;
  readonly #events = new EventQueue();
  readonly #firstTokenMs: number[] = [];
  /** Those of the first server. */
  readonly #firstTokenMsThere: number[] = [];
  readonly #sums = { cached: 0, prompt: 0, failoverMs: 0, comebackMs: 0, failed: 0, cut: 0 };

  constructor(trace: readonly TracedRequest[], shape: FleetShape, policyOf: (options: PolicyOptions) => Policy) {
    this.#trace = trace;
    this.#shape = shape;
    this.#servers = Array.from({ length: shape.servers }, (_, index) => ({
      index,
      tokensPerMs: (shape.tokensPerSecond * (shape.speeds?.[index] ?? 1)) / 1_000,
      cache: new Map(),
      present: new Set(),
      running: 0,
      unread: 0,
      get waiting() {
        return Math.max(0, this.unread - 1);
      },
      isDown: false,
      isDead: false,
      freeAtMs: 0,
      readTokens: 0,
      returnedAtMs: undefined,
    }));
    this.#policy = policyOf({ servers: this.#servers, cacheBlocks: shape.cacheBlocks });
  }

  run(): Figures {
    for (const { server, fromMs, toMs } of this.#shape.outages ?? []) {
      this.#events.add(fromMs, () => this.#kill(this.#servers[server]!, fromMs));
      this.#events.add(toMs, () => {
        this.#servers[server]!.isDead = false;
        this.#servers[server]!.returnedAtMs = toMs;
      });
    }
    let next = 0;
    const arrive = (): void => {
      const request = this.#trace[next++];
      if (request === undefined) return;
      this.#events.add(request.atMs, () => {
        this.#place({ request, tried: new Set(), lostAtMs: undefined }, request.atMs);
        arrive();
      });
    };
    arrive();
    const tick = (nowMs: number): void => {
      this.#policy.tick?.(nowMs);
      if (next < this.#trace.length) this.#events.add(nowMs + tickMs, () => tick(nowMs + tickMs));
    };
    if (this.#policy.tick !== undefined) tick(this.#trace[0]?.atMs ?? 0);
    this.#events.run();
    const quantile = quantilesOf(this.#firstTokenMs);
    const read = this.#servers.map(({ readTokens }) => readTokens);
    const { cached, prompt, failoverMs, comebackMs, failed, cut } = this.#sums;
    return {
      hitRate: cached / prompt,
      imbalance: (Math.max(...read) * read.length) / read.reduce((sum, tokens) => sum + tokens, 0),
      p50: quantile(0.5),
      p90: quantile(0.9),
      p99: quantile(0.99),
      failover: failoverMs / 1_000,
      comeback: comebackMs / 1_000,
      failed,
      cut,
      firstShare: this.#firstTokenMsThere.length / this.#firstTokenMs.length,
      firstP99: quantilesOf(this.#firstTokenMsThere)(0.99),
    };
  }

  #place({ request, tried, lostAtMs }: Pick<Running, 'request' | 'tried' | 'lostAtMs'>, nowMs: number): void {
    const sent = this.#policy.send(request, tried, nowMs);
    if (sent === undefined) {
      this.#sums.failed++;
      return;
    }
    const server = this.#servers[sent.server]!;
    if (server.isDead) {
      sent.refused();
      sent.end(nowMs);
      this.#refuse(server, nowMs);
      tried.add(server.index);
      return this.#place({ request, tried, lostAtMs: lostAtMs ?? nowMs }, nowMs);
    }
    if (server.returnedAtMs !== undefined) {
      this.#sums.comebackMs = Math.max(this.#sums.comebackMs, nowMs - server.returnedAtMs);
      server.returnedAtMs = undefined;
    }
    this.#read({ request, tried, sent, lostAtMs, cachedTokens: 0, hasBegun: false }, server, nowMs);
  }

  #read(running: Running, server: Server, nowMs: number): void {
    const { request, sent } = running;
    server.running++;
    server.unread++;
    server.present.add(running);
    let known = 0;
    while (known < request.blocks.length && server.cache.has(request.blocks[known]!)) known++;
    // At least a part of the last block is always read.
    const whole = Math.max(0, Math.ceil(request.promptTokens / blockTokens) - 1);
    running.cachedTokens = Math.min(known, whole) * blockTokens;
    for (const block of request.blocks.toReversed()) {
      server.cache.delete(block);
      server.cache.set(block, true);
    }
    while (server.cache.size > this.#shape.cacheBlocks) server.cache.delete(server.cache.keys().next().value!);
    const tokens = Math.max(1, request.promptTokens - running.cachedTokens);
    server.readTokens += tokens;
    server.freeAtMs = Math.max(nowMs, server.freeAtMs) + tokens / server.tokensPerMs;
    const firstAtMs = server.freeAtMs;
    this.#events.add(firstAtMs, () => {
      if (!server.present.has(running)) return;
      running.hasBegun = true;
      server.unread--;
      sent.begun(firstAtMs);
      if (sent.isForeign === true) return;
      this.#firstTokenMs.push(firstAtMs - request.atMs);
      if (server.index === 0) this.#firstTokenMsThere.push(firstAtMs - request.atMs);
      this.#sums.cached += running.cachedTokens;
      this.#sums.prompt += request.promptTokens;
      if (running.lostAtMs !== undefined)
        this.#sums.failoverMs = Math.max(this.#sums.failoverMs, firstAtMs - running.lostAtMs);
    });
    const endAtMs = firstAtMs + request.answerTokens * answerTokenMs;
    this.#events.add(endAtMs, () => {
      if (!server.present.delete(running)) return;
      server.running--;
      sent.reported(running.cachedTokens);
      sent.end(endAtMs);
    });
  }

  /** Requests without a first token go elsewhere; an answer that has begun is lost whatever chooses. */
  #kill(server: Server, nowMs: number): void {
    server.isDead = true;
    server.cache.clear();
    server.freeAtMs = nowMs;
    const lost = [...server.present];
    server.present.clear();
    server.running = 0;
    server.unread = 0;
    for (const { sent, hasBegun } of lost) {
      if (hasBegun) this.#sums.cut++;
      sent.failed(nowMs);
      sent.end(nowMs);
    }
    this.#refuse(server, nowMs);
    for (const { hasBegun, request, tried } of lost) {
      if (hasBegun) continue;
      tried.add(server.index);
      this.#place({ request, tried, lostAtMs: nowMs }, nowMs);
    }
  }

  /** Nobody asks it until a look finds it back. */
  #refuse(server: Server, nowMs: number): void {
    if (server.isDown) return;
    server.isDown = true;
    const look = (atMs: number): void => {
      this.#events.add(atMs, () => {
        if (server.isDead) return look(atMs + lookMs);
        server.isDown = false;
      });
    };
    look(nowMs + lookMs);
  }
}

/** In seconds, of times in milliseconds. */
function quantilesOf(times: readonly number[]): (part: number) => number {
  const sorted = times.toSorted((a, b) => a - b);
  return (part) => (sorted[Math.floor(sorted.length * part)] ?? 0) / 1_000;
}
