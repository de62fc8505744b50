import { ApiError, atCap } from '../../platform/errors.ts';
import type { GenerationBatch, TakeBatch } from '../../generation/event.ts';
import type { EngineRequest } from '../../generation/request.ts';
import { lengthRefusal } from './length-refusal.ts';
import type { Order } from './order.ts';
import { isFree, isReady, mayTake } from './backend-pool.ts';
import type { Backend, BackendPool } from './backend-pool.ts';
import type { StopSignal } from '../../platform/stop-signal.ts';

/** What `dispatch` found out on the way, for the ledger and the log. */
export interface DispatchTrace {
  /** Label of the backend that was tried last. */
  backend: string | null;
  /** An engine has been called: from here on a client that leaves pays for its input. */
  dispatched: boolean;
}

/**
 * Runs an order on one of the model's backends, and hands what it generates to `take`. Another backend, or once a shorter
 * answer (§4.2.1(4)), is tried only until the first batch with content: after it a retry would repeat text (architecture,
 * "Traps").
 */
export async function dispatch(
  order: Order,
  pool: BackendPool,
  trace: DispatchTrace,
  signal: StopSignal,
  take: TakeBatch,
): Promise<void> {
  const tried = new Set<Backend>();
  let request: EngineRequest = order.request;
  let refitted = false;
  let failure: unknown;
  for (;;) {
    const placing = pool.queue.acquire(() => freeBackend(order, pool, tried, failure), signal);
    const backend = placing instanceof Promise ? await placing : placing;
    if (typeof backend === 'string') throw allTaken(order, pool, tried);
    let content = false;
    /** Failures from here on are not the backend's. */
    let isTaking = false;
    try {
      trace.backend = backend.label;
      trace.dispatched = true;
      const taken = (goesOn: boolean): boolean => {
        isTaking = false;
        return goesOn;
      };
      await backend.engine.generate(request, signal, (batch) => {
        content ||= hasContent(batch);
        isTaking = true;
        const goesOn = take(batch);
        return typeof goesOn === 'boolean' ? taken(goesOn) : goesOn.then(taken);
      });
      return;
    } catch (error) {
      if (isTaking) throw error;
      if (content || signal.aborted) throw withModel(error, order);
      const refusal = lengthRefusal(error);
      const shorter = refusal === undefined || refitted ? undefined : order.retryWithinContext(refusal);
      if (refusal !== undefined && shorter === undefined) throw order.tooLong(refusal);
      if (shorter !== undefined) {
        request = shorter;
        refitted = true;
      } else if (mayFailOver(error)) {
        tried.add(backend);
        failure = error;
      } else {
        throw withModel(error, order);
      }
    } finally {
      backend.running--;
      pool.queue.offer();
    }
  }
}

/** §7.5: a request that waited in vain gets the same error as one that may not wait. */
function allTaken(order: Order, pool: BackendPool, tried: ReadonlySet<Backend>): ApiError {
  const bounded = pool.backends.filter((backend) => !tried.has(backend) && Number.isFinite(backend.concurrencyMax));
  const count = bounded.reduce((sum, { concurrencyMax }) => sum + concurrencyMax, 0);
  return new ApiError('backend_at_capacity', `All slots of the model '${order.model.id}' are in use.`, atCap(count, 1));
}

/**
 * Takes a slot at a backend that is ready and has not failed this request yet: of the first kind, in configuration order, that
 * has a free slot, the backend with the fewest requests. One pass and no allocation, because every request comes through here,
 * and waiters again and again.
 */
function freeBackend(
  order: Order,
  pool: Pick<BackendPool, 'backends' | 'peers'>,
  tried: ReadonlySet<Backend>,
  failure: unknown,
): Backend | undefined {
  let isAnyReady = false;
  for (const peers of pool.peers) {
    const { backends } = peers;
    let least: Backend | undefined;
    for (let step = 0; step < backends.length; step++) {
      const backend = backends[(peers.next + step) % backends.length]!;
      if (least !== undefined && backend.running >= least.running) continue;
      if (tried.has(backend) || !isReady(backend) || !mayTake(backend, order.request)) continue;
      isAnyReady = true;
      if (isFree(backend)) least = backend;
    }
    if (least === undefined) continue;
    least.running++;
    peers.next = (backends.indexOf(least) + 1) % backends.length;
    return least;
  }
  if (isAnyReady) return undefined;
  if (failure !== undefined) throw withModel(failure, order);
  throw new ApiError(
    'no_healthy_backends',
    `No backend of the model '${order.model.id}' is available. ${waitingFor(pool.backends)}`.trim(),
    { extra: { model: order.model.id }, retryAfterSeconds: retryAfterSeconds(pool.backends) },
  );
}

/** A model that is still being fetched or loaded says so; the reason why a backend is down is for the operator's log only. */
const waitingFor = (backends: readonly Backend[]): string =>
  backends.some((backend) => backend.engine.status().state === 'starting')
    ? 'It is still being loaded; try again shortly.'
    : '';

/** When the first of them may be back; a short time where none of them knows. */
function retryAfterSeconds(backends: readonly Backend[]): number {
  const known = backends
    .map(({ engine }) => engine.status())
    .map((status) => ('retryAfterSeconds' in status ? status.retryAfterSeconds : undefined));
  return Math.min(5, ...known.filter((seconds) => seconds !== undefined));
}

const hasContent = (batch: GenerationBatch): boolean =>
  batch.some((event) => event.type !== 'start' && event.type !== 'usage');

function mayFailOver(error: unknown): boolean {
  if (!(error instanceof ApiError)) return false;
  switch (error.type) {
    case 'server_error':
    case 'routing_error':
    case 'rate_limit_error':
      return true;
    case 'invalid_request_error':
    case 'authentication_error':
    case 'permission_error':
    case 'insufficient_credits':
    case 'internal_error':
      return false;
  }
}

/** §7.7: these bodies name the model; an engine does not know its public name. */
function withModel(error: unknown, order: Order): unknown {
  if (!(error instanceof ApiError)) return error;
  return error.type === 'server_error' || error.type === 'routing_error'
    ? error.with({ model: order.model.id })
    : error;
}
