import type { Engine } from '../engines/engine.ts';
import { ApiError } from '../errors.ts';
import type { GenerationBatch, GenerationStream } from '../generation/event.ts';
import type { EngineRequest } from '../generation/request.ts';
import { lengthRefusal } from './count.ts';
import type { Order } from './order.ts';

/** One place where a model runs. */
export interface Backend {
  /** For logs and the ledger; names no secret. */
  readonly label: string;
  readonly engine: Engine;
  readonly concurrencyMax: number;
  readonly zdr: boolean;
  /** Requests that run on it now. */
  running: number;
}

/** What `dispatch` found out on the way, for the ledger and the log. */
export interface DispatchTrace {
  /** Label of the backend that was asked last. */
  backend: string | null;
  /** An engine has been asked: from here on a client that leaves pays for its input. */
  dispatched: boolean;
}

/**
 * Runs an order on one of the model's backends. Another backend, or once a shorter answer (§4.2.1(4)), is tried only
 * until the first batch with content: after it a retry would repeat text (architecture, "Traps").
 */
export async function* dispatch(
  order: Order,
  backends: readonly Backend[],
  trace: DispatchTrace,
  signal: AbortSignal,
): GenerationStream {
  const tried = new Set<Backend>();
  let request: EngineRequest = order.request;
  let refitted = false;
  let failure: unknown;
  for (;;) {
    signal.throwIfAborted();
    const backend = choose(order, backends, tried, failure);
    trace.backend = backend.label;
    let content = false;
    backend.running++;
    try {
      trace.dispatched = true;
      for await (const batch of backend.engine.generate(request, signal)) {
        content ||= hasContent(batch);
        yield batch;
      }
      return;
    } catch (error) {
      if (content || signal.aborted) throw withModel(error, order);
      const refusal = lengthRefusal(error);
      const shorter = refusal === undefined || refitted ? undefined : order.refit(refusal.promptTokens);
      if (refusal !== undefined && shorter === undefined) throw order.tooLong(refusal.promptTokens);
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
    }
  }
}

/** The least loaded backend that is ready and has not failed this request yet. */
function choose(order: Order, backends: readonly Backend[], tried: ReadonlySet<Backend>, failure: unknown): Backend {
  const ready = backends.filter(
    (backend) =>
      !tried.has(backend) && backend.engine.status().state === 'ready' && (order.request.retain || backend.zdr),
  );
  if (ready.length === 0) {
    if (failure !== undefined) throw withModel(failure, order);
    throw new ApiError(
      'no_healthy_backends',
      `No backend of the model '${order.model.id}' is available. ${waitingFor(backends)}`.trim(),
      {
        extra: { model: order.model.id },
      },
    );
  }
  const free = ready.filter((backend) => backend.running < backend.concurrencyMax);
  const [first] = free;
  if (first === undefined) {
    throw new ApiError('backend_at_capacity', `All places of the model '${order.model.id}' are taken.`, {
      retryAfterSeconds: 1,
    });
  }
  return free.reduce((best, backend) => (backend.running < best.running ? backend : best), first);
}

/** A model that is still being fetched or loaded says so; why a backend is down is for the operator's log only. */
const waitingFor = (backends: readonly Backend[]): string =>
  backends.some((backend) => backend.engine.status().state === 'starting')
    ? 'It is still being loaded; try again shortly.'
    : '';

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

/** §7.7: these bodies carry the model; an engine does not know its public name. */
function withModel(error: unknown, order: Order): unknown {
  if (!(error instanceof ApiError)) return error;
  return error.type === 'server_error' || error.type === 'routing_error'
    ? error.with({ model: order.model.id })
    : error;
}
