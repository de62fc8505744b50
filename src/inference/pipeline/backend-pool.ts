import { randomInt } from 'node:crypto';
import type { Demand, Engine } from '../engines/engine.ts';
import { lackedBy, type FeatureName } from '../../generation/feature-names.ts';
import type { Constraint, EngineRequest, FieldPaths } from '../../generation/request.ts';
import { withOwnNames } from './own-names.ts';
import type { BackendLoad } from '../routing/backend-load.ts';
import { Fleet, type OnHealth, type Placement } from '../routing/fleet.ts';
import type { OnCompared } from '../routing/comparison.ts';
import { FirstTokens } from '../routing/first-tokens.ts';
import { Silence } from '../routing/silence.ts';
import { RetryBudget } from '../routing/retry-budget.ts';
import { IdleSlots, type SlotCounts } from './idle-slots.ts';
import { WaitQueue, type WaitQueueOptions } from './wait-queue.ts';
import { PromptLengths } from './prompt-lengths.ts';

/** A backend that can run a model. */
export interface Backend extends BackendLoad {
  /** For logs and the ledger; contains no secret. */
  readonly label: string;
  /** The kind of server or engine, for traces. */
  readonly provider: string;
  /** Equal for interchangeable backends of a model. */
  readonly kind: string;
  /** Its rank in the configuration. */
  readonly rankWritten?: number | undefined;
  readonly engine: Engine;
  /** How many requests may wait because of this backend; 0 for a backend with a queue of its own, which takes them all. */
  readonly queueMax: number;
  /** Retains nothing of a request (specification §4.2.6). */
  readonly zdr: boolean;
  /** Kinds of constraints that it enforces. */
  readonly enforces: readonly Constraint['type'][];
  /** Features that it was found to lack although its kind has them. */
  lacks: readonly FeatureName[];
}

/** The backends of one model, their wait queue, and what they report about prompt lengths. */
export interface BackendPool {
  /** In the order of the configuration. Replaced when backends come or go. */
  readonly backends: readonly Backend[];
  /** The same backends, as the fleet that places requests. */
  readonly fleet: Fleet<Backend>;
  readonly queue: WaitQueue<Placement<Backend>>;
  /** What batches may use of it. */
  readonly idle: IdleSlots<Backend>;
  readonly promptLengths: PromptLengths;
  /** Salt for the hashes of prompts: secret, and the same in all processes that exchange reports about them. */
  readonly prefixSalt: number;
  /** Bounds how many requests may be tried at another backend. */
  readonly retries: RetryBudget;
  /** How long requests waited for their first content; known where they may be hedged. */
  readonly firstTokens: FirstTokens;
  /** Those who wait here for a server to be started. */
  readonly demand: Demand;
  /** Slots were given back: they go to those who wait. */
  offer(): void;
  /** A backend did not answer in time: it is probed until it does. */
  watch(backend: Backend): void;
  /**
   * Replaces the backends with others that do the same work: waiting requests may use the new ones at once, running ones stay where they
   * are. `false`: one of them differs, so earlier requests must not get there; nothing was changed.
   */
  become(backends: readonly Backend[]): boolean;
}

export interface BackendPoolOptions {
  /** How long a request may wait for a slot: the backend's time limit for its first token. */
  readonly waitMaxMs: number;
  /** An account's share of the slots beside those of others, where there are not enough; 1 when left out. */
  readonly weightOf?: WaitQueueOptions['weightOf'];
  /** The pool that this one replaces. */
  readonly before?: BackendPool | undefined;
  /** Called when a backend is left out because it fails, and when it is back. */
  readonly onHealth?: OnHealth<Backend>;
  /** Called when a backend is worse than its peers beyond chance, and when it is not any more. */
  readonly onCompared?: OnCompared<Backend>;
  readonly prefixSalt?: number;
}

export function openBackendPool(
  backends: readonly Backend[],
  { waitMaxMs, weightOf, before, onHealth, onCompared, prefixSalt = randomInt(2 ** 32) }: BackendPoolOptions,
): BackendPool {
  let current = backends;
  const queue = new WaitQueue<Placement<Backend>>({
    get lengthMax() {
      return current.reduce((sum, backend) => sum + backend.queueMax, 0);
    },
    get timeoutMs() {
      return waitMaxMs + startTimeoutMs(current);
    },
    isStarting: () => !current.some(isReady),
    mayHaveChanged: () => current.some(isFree) || !current.some(isReady),
    weightOf,
  });
  const idle = new IdleSlots<Backend>(() =>
    slotCounts(current, queue.length - queue.lengthOf('batch'), queue.lengthOf('batch')),
  );
  const offer = (): void => {
    queue.offer();
    idle.changed();
  };
  setRanks(backends);
  const fleet = new Fleet(backends, before?.fleet, onHealth, onCompared);
  const silence = new Silence<Backend>({
    look: ({ engine }) => engine.look?.() ?? Promise.resolve('closed'),
    changed: (backend, atMs) => {
      if (atMs !== undefined) return fleet.leftOut(backend, atMs);
      // Its return is reported with its first answer.
      fleet.goesOn(backend, performance.now());
      offer();
    },
  });
  return {
    get backends() {
      return current;
    },
    fleet,
    queue,
    idle,
    offer,
    demand: {
      get waiting() {
        return queue.length - queue.lengthOf('batch');
      },
      get isRecent() {
        return idle.isRecent;
      },
      offer,
    },
    promptLengths: new PromptLengths(),
    prefixSalt,
    retries: before?.retries ?? new RetryBudget(),
    firstTokens: before?.firstTokens ?? new FirstTokens(),
    // A single backend has no alternative to use meanwhile.
    watch: (backend) => void (current.length > 1 && silence.watch(backend)),
    become: (next) => {
      const kinds = new Set(current.map(({ kind }) => kind));
      if (!next.every(({ kind }) => kinds.has(kind))) return false;
      current = next;
      setRanks(next);
      fleet.become(next);
      offer();
      return true;
    },
  };
}

/** How long the longest start of a server may take that is waited for now. */
function startTimeoutMs(backends: readonly Backend[]): number {
  if (backends.some(isReady)) return 0;
  return Math.max(0, ...backends.map(({ engine }) => engine.startTimeoutMs ?? 0));
}

function slotCounts(backends: readonly Backend[], waitingHere: number, linesWaiting: number): SlotCounts {
  let slots = 0;
  let running = linesWaiting;
  let waiting = waitingHere;
  for (const backend of backends) {
    if (!isReady(backend)) continue;
    slots += Math.min(backend.concurrencyMax, backend.engine.slots ?? Infinity);
    running += backend.running;
    waiting += backend.engine.waiting ?? 0;
  }
  const mayStart = !backends.some(isReady) && backends.some(({ engine }) => engine.isSpare === true);
  return { slots, running, waiting, mayStart };
}

/**
 * Sets ranks as configured. If none is configured, interchangeable backends share the first rank of any of them, and each other kind comes
 * after the kinds before it.
 */
function setRanks(backends: readonly Backend[]): void {
  const kinds = [...new Set(backends.map(({ kind }) => kind))];
  const isWritten = backends.some(({ rankWritten }) => rankWritten !== undefined);
  for (const backend of backends)
    backend.rank = isWritten ? (backend.rankWritten ?? 1) : kinds.indexOf(backend.kind) + 1;
}

/**
 * Fails closed: a backend gets no request whose privacy or constraint it would not honor (§4.2.6, §4.2.3), or parts of which it would
 * silently drop (contracts §1.0).
 */
export const mayTake = (backend: Backend, request: EngineRequest): boolean =>
  keeps(backend, request) && backend.engine.refusal?.(request) === undefined;

const keeps = (backend: Backend, request: EngineRequest): boolean =>
  (request.retain || backend.zdr) &&
  (request.constraint === undefined || backend.enforces.includes(request.constraint.source.type)) &&
  (backend.lacks.length === 0 || lackedBy(request, backend.lacks) === undefined);

/** Throws the client's error when no backend supports what the request asks for, regardless of how many of them are up. */
export function refuseImpossible(backends: readonly Backend[], request: EngineRequest, at: FieldPaths): void {
  const refusals = backends.filter((backend) => keeps(backend, request)).map(({ engine }) => engine.refusal?.(request));
  const [first] = refusals;
  if (first !== undefined && !refusals.includes(undefined)) throw withOwnNames(at, first);
}

/** Whether it can take requests at all. */
export const isReady = (backend: Backend): boolean => backend.engine.status().state === 'ready';

/** Whether it can take one more request now. */
export const isFree = (backend: Backend): boolean => backend.running < backend.concurrencyMax && isReady(backend);
