import type { Engine } from '../engines/engine.ts';
import type { Constraint, EngineRequest } from '../../generation/request.ts';
import { WaitQueue } from './wait-queue.ts';
import { PromptLengths } from './prompt-lengths.ts';

/** A backend that can run a model. */
export interface Backend {
  /** For logs and the ledger; contains no secret. */
  readonly label: string;
  /** Equal for interchangeable backends of a model: they share its load. */
  readonly kind: string;
  readonly engine: Engine;
  readonly concurrencyMax: number;
  /** How many requests may wait because of this backend. One with a queue of its own takes them all and has 0 here. */
  readonly queueMax: number;
  /** Retains nothing of a request (specification §4.2.6). */
  readonly zdr: boolean;
  /** Kinds of constraints that it enforces. */
  readonly enforces: readonly Constraint['type'][];
  /** Number of requests that run on it now. */
  running: number;
}

/** Backends of one kind. */
export interface Peers {
  readonly backends: readonly Backend[];
  /** Index of the backend to look at first, so that equally loaded ones take turns. */
  next: number;
}

/** The backends of one model, their wait queue, and what they report about prompt lengths. */
export interface BackendPool {
  /** In the order of the configuration. */
  readonly backends: readonly Backend[];
  /** The same, in the order in which they are tried: a kind stands where its first backend does. */
  readonly peers: readonly Peers[];
  readonly queue: WaitQueue<Backend>;
  readonly promptLengths: PromptLengths;
}

/** `waitMax`: how long a request may wait for a slot; it equals a backend's time limit for its first token. */
export function openBackendPool(backends: readonly Backend[], waitMaxMs: number): BackendPool {
  const queue = new WaitQueue<Backend>({
    lengthMax: backends.reduce((sum, backend) => sum + backend.queueMax, 0),
    timeoutMs: waitMaxMs,
    mayHaveChanged: () => backends.some(isFree) || !backends.some(isReady),
  });
  return { backends, peers: peersOf(backends), queue, promptLengths: new PromptLengths() };
}

function peersOf(backends: readonly Backend[]): readonly Peers[] {
  const kinds = new Map<string, Backend[]>();
  for (const backend of backends) {
    const known = kinds.get(backend.kind);
    if (known === undefined) kinds.set(backend.kind, [backend]);
    else known.push(backend);
  }
  return [...kinds.values()].map((alike) => ({ backends: alike, next: 0 }));
}

/**
 * Fails closed: a backend gets no request whose privacy or constraint it would not keep (§4.2.6, §4.2.3), or of which it would
 * silently leave something out (contracts §1.0).
 */
export const mayTake = (backend: Backend, request: EngineRequest): boolean =>
  keeps(backend, request) && backend.engine.refusal?.(request) === undefined;

const keeps = (backend: Backend, { retain, constraint }: EngineRequest): boolean =>
  (retain || backend.zdr) && (constraint === undefined || backend.enforces.includes(constraint.source.type));

/** Throws the client's error when no backend can do what the request asks for, however many of them are up. */
export function refuseImpossible(backends: readonly Backend[], request: EngineRequest): void {
  const refusals = backends.filter((backend) => keeps(backend, request)).map(({ engine }) => engine.refusal?.(request));
  const [first] = refusals;
  if (first !== undefined && !refusals.includes(undefined)) throw first;
}

/** Whether it can take work at all. */
export const isReady = (backend: Backend): boolean => backend.engine.status().state === 'ready';

/** Whether it can take one more request now. */
export const isFree = (backend: Backend): boolean => backend.running < backend.concurrencyMax && isReady(backend);
