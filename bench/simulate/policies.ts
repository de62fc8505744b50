import { FleetPeers } from '../../src/inference/routing/fleet-peers.ts';
import { mulberry32 } from '../../tests/support/random.ts';
import type { PeerMessage } from '../../src/platform/peers/peers.ts';
import { cacheTokensUnknown } from '../../src/inference/routing/cache-index.ts';
import { idleLoad, type BackendLoad } from '../../src/inference/routing/backend-load.ts';
import { Fleet } from '../../src/inference/routing/fleet.ts';
import { ServerReports } from '../../src/inference/routing/server-reports.ts';
import { blockTokens, type TracedRequest } from './trace.ts';

/** What a policy knows of a server, besides what it sent there itself. */
export interface PolicyServer {
  readonly index: number;
  /** Requests that were sent to it and have not ended. */
  readonly running: number;
  /** Those of them that it has not begun to read. */
  readonly waiting: number;
  readonly isDown: boolean;
}

/** A request that was sent to a server. */
export interface Sent {
  readonly server: number;
  /** It is of another router, whose requests are only load. */
  readonly isForeign?: boolean;
  begun(nowMs: number): void;
  reported(cachedTokens: number): void;
  /** Its server has ended under it. */
  failed(nowMs: number): void;
  /** There was no server. */
  refused(): void;
  end(nowMs: number): void;
}

export interface Policy {
  readonly name: string;
  /** `undefined`: there is none that is up and was not tried. */
  send(request: TracedRequest, tried: ReadonlySet<number>, nowMs: number): Sent | undefined;
  /** Called every `tickMs`. */
  tick?(nowMs: number): void;
}

/** How often the service sees whom to ask; it reports to other processes every second time. */
export const tickMs = 250;

export interface PolicyOptions {
  readonly servers: readonly PolicyServer[];
  /** Blocks that a server's cache holds. */
  readonly cacheBlocks: number;
}

/** Policies by the name in the table; the first is the service's own, the same code that serves requests. */
export const policies: Readonly<Record<string, (options: PolicyOptions) => Policy>> = {
  'least expected first token': leastExpected,
  'size of caches unknown': (options) => leastExpected(options, cacheTokensUnknown),
  '2 replicas, 0.5 s between reports': replicas(2, 500),
  '2 replicas, each by itself': replicas(2, Infinity),
  '4 replicas, 0.5 s between reports': replicas(4, 500),
  '4 replicas, each by itself': replicas(4, Infinity),
  '2 replicas, 0.5 s between reports, servers asked': replicas(2, 500, true),
  'half past it by round robin': besideForeign(roundRobin, false),
  'half past it by round robin, servers asked': besideForeign(roundRobin, true),
  'half past it by another of its kind': besideForeign(leastExpected, false),
  'half past it by another of its kind, servers asked': besideForeign(leastExpected, true),
  'all to every second server by another, half of the load': besideForeign(toEverySecond, false),
  'all to every second server by another, half of the load, servers asked': besideForeign(toEverySecond, true),
  'round robin': roundRobin,
  'least connections': ({ servers }) =>
    plain('least connections', servers, (_, able) => leastOf(able, runningAt).index),
  'consistent hashing': ({ servers }) =>
    plain('consistent hashing', servers, (request, able) => leastOf(able, distanceFrom(request)).index),
  'bounded hashing, 1.25': ({ servers }) =>
    plain('bounded hashing, 1.25', servers, (request, able) => {
      const bound = Math.ceil((1.25 * (able.reduce((sum, { running }) => sum + running, 0) + 1)) / able.length);
      const free = able.filter(({ running }) => running < bound);
      return leastOf(free.length === 0 ? able : free, distanceFrom(request)).index;
    }),
};

interface SimulatedBackend extends BackendLoad {
  readonly label: string;
  readonly server: PolicyServer;
}

/** One process that routes, as the service does it. */
class Router {
  readonly #fleet: Fleet<SimulatedBackend>;
  readonly peers: FleetPeers<SimulatedBackend>;
  readonly #reports: ServerReports<SimulatedBackend>;

  constructor({ servers, cacheBlocks }: PolicyOptions, cacheTokensMax = cacheBlocks * blockTokens) {
    this.#fleet = new Fleet<SimulatedBackend>(
      servers.map((server) => ({
        ...idleLoad(),
        cacheTokensMax,
        label: String(server.index),
        server,
      })),
    );
    const fleets = new Map([['model', this.#fleet]]);
    this.#reports = new ServerReports(() => fleets, mulberry32(1));
    this.peers = new FleetPeers(() => fleets, this.#reports);
  }

  askServers(nowMs: number): void {
    for (const question of this.#reports.due(nowMs, () => true, this.peers.count > 0)) {
      const { running, waiting } = question.member.server;
      this.#reports.answered(question, { running: running - waiting, waiting, cacheTokens: undefined }, nowMs);
    }
  }

  send(request: TracedRequest, tried: ReadonlySet<number>, nowMs: number): Sent | undefined {
    // As in prompts of the service, only whole blocks are beginnings.
    const count = Math.max(0, Math.ceil(request.promptTokens / blockTokens) - 1);
    const hashes = request.blocks.slice(0, count);
    const tokens = hashes.map((_, index) => (index + 1) * blockTokens);
    const placement = this.#fleet.place(
      { promptTokens: request.promptTokens, prefixes: () => ({ hashes, tokens }) },
      ({ server }) => !server.isDown && !tried.has(server.index),
      nowMs,
    );
    if (placement === undefined) return undefined;
    return {
      server: placement.backend.server.index,
      begun: (at) => placement.begun(at),
      reported: (cachedTokens) => placement.answered({ cachedTokens }),
      failed: (at) => placement.failed(at),
      refused: () => placement.refused(),
      end: (at) => placement.end(at),
    };
  }
}

/** The service's own policy, in one process. */
function leastExpected(options: PolicyOptions, cacheTokensMax?: number): Policy {
  const router = new Router(options, cacheTokensMax);
  return {
    name: 'least expected first token',
    send: (request, tried, nowMs) => router.send(request, tried, nowMs),
  };
}

/** The same in several processes, which get requests in turn and tell each other what they know in an interval; Infinity: they never do. */
function replicas(count: number, everyMs: number, asks = false): (options: PolicyOptions) => Policy {
  return (options) => {
    const routers = Array.from({ length: count }, () => new Router(options));
    let next = 0;
    let reportedAtMs = 0;
    return {
      name: `${count} replicas`,
      send: (request, tried, nowMs) => routers[next++ % count]!.send(request, tried, nowMs),
      tick: (nowMs) => {
        if (nowMs - reportedAtMs >= everyMs) {
          reportedAtMs = nowMs;
          exchangeAll(routers, nowMs);
        }
        if (asks) for (const router of routers) router.askServers(nowMs);
      },
    };
  };
}

function exchangeAll(routers: readonly Router[], nowMs: number): void {
  const messages = routers.flatMap(({ peers }, index): readonly PeerMessage[] => {
    const text = peers.report(nowMs);
    return text === undefined ? [] : [{ from: String(index), text }];
  });
  for (const [index, { peers }] of routers.entries())
    peers.hear(
      messages.filter(({ from }) => from !== String(index)),
      nowMs,
    );
}

/** Every second request goes to the same servers by a router that is not of the service, which sees it only by what servers say. */
function besideForeign(
  foreignOf: (options: PolicyOptions) => Policy,
  asks: boolean,
): (options: PolicyOptions) => Policy {
  return (options) => {
    const own = new Router(options);
    const foreign = foreignOf(options);
    let next = 0;
    return {
      name: `beside ${foreign.name}`,
      send: (request, tried, nowMs) => {
        if (next++ % 2 === 0) return own.send(request, tried, nowMs);
        const sent = foreign.send(request, tried, nowMs);
        return sent === undefined ? undefined : { ...sent, isForeign: true };
      },
      tick: (nowMs) => {
        if (asks) own.askServers(nowMs);
      },
    };
  };
}

function roundRobin({ servers }: PolicyOptions): Policy {
  let next = 0;
  return plain('round robin', servers, () => next++ % servers.length);
}

function toEverySecond({ servers }: PolicyOptions): Policy {
  let next = 0;
  return plain('every second', servers, () => (2 * next++) % servers.length);
}

function plain(
  name: string,
  servers: readonly PolicyServer[],
  pick: (request: TracedRequest, able: readonly PolicyServer[]) => number,
): Policy {
  const nothing = (): void => {};
  return {
    name,
    send: (request, tried) => {
      const able = servers.filter(({ index, isDown }) => !isDown && !tried.has(index));
      if (able.length === 0) return undefined;
      const wanted = pick(request, able);
      const server = able.find(({ index }) => index >= wanted)?.index ?? able[0]!.index;
      return { server, begun: nothing, reported: nothing, failed: nothing, refused: nothing, end: nothing };
    },
  };
}

const runningAt = ({ running }: PolicyServer): number => running;

/** Rendezvous hashing of the first four blocks. */
function distanceFrom({ blocks }: TracedRequest): (server: PolicyServer) => number {
  const head = mixed(blocks.slice(0, 4).join());
  return ({ index }) => mixed(`${head}:${index}`);
}

function mixed(text: string): number {
  let hash = 2_166_136_261;
  for (let at = 0; at < text.length; at++) hash = Math.imul(hash ^ text.charCodeAt(at), 16_777_619);
  hash = Math.imul(hash ^ (hash >>> 16), 0x85ebca6b);
  hash = Math.imul(hash ^ (hash >>> 13), 0xc2b2ae35);
  return (hash ^ (hash >>> 16)) >>> 0;
}

function leastOf(servers: readonly PolicyServer[], figureOf: (server: PolicyServer) => number): PolicyServer {
  let best = servers[0]!;
  let least = Infinity;
  for (const server of servers) {
    const figure = figureOf(server);
    if (figure >= least) continue;
    best = server;
    least = figure;
  }
  return best;
}
