import { ApiError, atCap, errorCodeOf } from '../../platform/errors.ts';
import type { GenerationBatch, TakeBatch, Usage } from '../../generation/event.ts';
import type { EngineRequest } from '../../generation/request.ts';
import type { UsageAttempt } from '../../store/schema/tables.ts';
import type { Placement, RoutedRequest } from '../routing/fleet.ts';
import { turnsOf } from '../routing/prompt-prefixes.ts';
import { groupsMax, hasWrongCall } from '../routing/backend-quality.ts';
import { attemptOf, routedRequest, type Attempt, type Routed } from './attempt.ts';
import { noFindings, type AnswerCheck } from './answer-check.ts';
import { hedge, type Runner } from './hedge.ts';
import { lengthRefusal } from './length-refusal.ts';
import type { Order } from './order.ts';
import { Waiter, type Refusal, type Wait } from './wait-queue.ts';
import { retryWithinContext, tooLong } from './too-long.ts';
import { isReady, mayTake } from './backend-pool.ts';
import type { Backend, BackendPool } from './backend-pool.ts';
import { UnboundFault, type Demand } from '../engines/engine.ts';
import type { StopSignal } from '../../platform/stop-signal.ts';
import type { OpenAttempt, RequestTrace } from '../../platform/telemetry/request-trace.ts';

/** What `dispatch` records, for the ledger and the log. */
export interface DispatchTrace {
  readonly attempts: UsageAttempt[];
  /** The answer has begun: no other backend and no other model may serve it. */
  hasContent: boolean;
  /** The spans of the request, if it is traced or trace context is passed on. */
  readonly spans: RequestTrace | undefined;
}

/** The slot of a line of a batch. */
export interface LinePlace {
  /** It has a slot, or waits for one. */
  placed(): void;
  /** A request waits that needs its slot: its run is to end, through the signal. */
  release(): void;
}

/** An order in progress, and the consumer of its output. */
export interface Dispatched {
  readonly order: Order;
  readonly pool: BackendPool;
  readonly trace: DispatchTrace;
  /** The figures of the answer, once it is complete. */
  readonly meter: { readonly usage: Usage };
  /** Absent where there is nothing to check. */
  readonly check: AnswerCheck | undefined;
  take(batch: GenerationBatch): boolean | Promise<boolean>;
  /** It waits for a slot from now on. */
  waiting(wait: Wait): void;
  /** Absent where it is no line of a batch. */
  readonly line: LinePlace | undefined;
}

/**
 * Runs an order on one of the model's backends, and hands what it generates to `take`. Another backend, or, once, a shorter answer
 * (§4.2.1(4)), is tried only until the first batch with content: after that a retry would repeat text.
 */
export async function dispatch(serving: Dispatched, signal: StopSignal): Promise<void> {
  const { order, pool, trace } = serving;
  const tried = new Set<Backend>();
  pool.retries.requested();
  if (order.tier !== 'batch') pool.idle.arrived(order.begunMs);
  const routed = routedRequest(order, pool);
  let request: EngineRequest = order.request;
  let refitted = false;
  let failure: unknown;
  const begunMs = order.model.hedge === undefined ? 0 : performance.now();
  for (;;) {
    const placing = pool.queue.acquire(() => place(order, routed, pool, tried, failure), signal, order);
    serving.line?.placed();
    const placement = placing instanceof Waiter ? await waited(placing, serving, tried) : placing;
    if (typeof placement === 'string')
      throw pool.backends.some(isReady) ? allTaken(order, pool, tried) : noneAvailable(order, pool.backends);
    const lineEnded = serving.line === undefined ? undefined : pool.idle.sold(placement.backend, serving.line.release);
    let isTaking = false;
    /** The current try: that at the second backend once it has won. */
    let current: Try | undefined;
    try {
      const first = (current = begin(order, routed, placement, trace));
      const taken = (goesOn: boolean): boolean => {
        isTaking = false;
        return goesOn;
      };
      const taking = (batch: GenerationBatch): boolean | Promise<boolean> => {
        if (!trace.hasContent && hasContent(batch)) {
          trace.hasContent = true;
          contentFrom(current ?? first, order, pool, begunMs);
        }
        isTaking = true;
        const goesOn = serving.take(batch);
        return typeof goesOn === 'boolean' ? taken(goesOn) : goesOn.then(taken);
      };
      const afterMs =
        order.model.hedge === undefined || refitted || tried.size > 0 ? Infinity : hedgeAfterMs(order, pool);
      if (afterMs === Infinity) await generateAt(first, request, trace, signal, taking);
      else
        await hedge(runnerOf(first, order, request, pool, trace, signal), {
          signal,
          take: taking,
          hasContent,
          afterMs,
          second: () => second(order, routed, request, pool, tried.add(first.placement.backend), trace, signal),
          secondWins: ({ at }) => (current = at),
        });
      const { usage: answered } = serving.meter;
      answeredAt(current, serving);
      current.placement.answered(answered);
      current.span?.answered(answered);
      return;
    } catch (error) {
      if (isTaking || current === undefined) throw error;
      failedAt(current, order, error, pool, signal);
      if (trace.hasContent || signal.aborted) throw withModel(error, order);
      const refusal = lengthRefusal(error);
      const shorter = refusal === undefined || refitted ? undefined : retryWithinContext(order, refusal);
      if (refusal !== undefined && shorter === undefined) throw tooLong(order, refusal);
      if (shorter !== undefined) {
        request = shorter;
        refitted = true;
        tried.delete(current.placement.backend);
      } else if (mayFailOver(error)) {
        tried.add(current.placement.backend);
        failure = error;
        // If there is no other backend, no retry is spent: the next turn ends with this failure.
        if (pool.backends.some(ableFor(order, tried)) && !pool.retries.take(performance.now()))
          throw withModel(error, order);
      } else {
        throw withModel(error, order);
      }
    } finally {
      lineEnded?.();
      (current?.placement ?? placement).end(performance.now());
      if (placing instanceof Waiter) pool.queue.ended(order, tokensOf(serving.meter.usage));
      pool.offer();
    }
  }
}

/** Waits for a slot. A line gives its own to a request that has not paid for waiting. */
async function waited(
  waiter: Waiter<Placement<Backend>>,
  serving: Dispatched,
  tried: ReadonlySet<Backend>,
): Promise<Placement<Backend> | Refusal> {
  const { order, pool } = serving;
  const step = serving.trace.spans?.step('queue');
  if (order.tier === 'priority' || order.tier === 'default') pool.idle.release(ableFor(order, tried));
  serving.waiting(waiter);
  const outcome = await waiter.outcome;
  if (typeof outcome !== 'string') step?.end();
  return outcome;
}

const tokensOf = ({ promptTokens, completionTokens }: Usage): number => promptTokens + completionTokens;

/** An attempt of a request at a backend. */
interface Try {
  readonly placement: Placement<Backend>;
  readonly attempt: Attempt;
  readonly span: OpenAttempt | undefined;
  /** When its first content came; 0: not yet. */
  begunMs: number;
}

function begin(order: Order, routed: Routed, placement: Placement<Backend>, trace: DispatchTrace): Try {
  const attempt = attemptOf(order, routed, placement);
  trace.attempts.push(attempt);
  return { placement, attempt, span: spanOf(order, placement, trace), begunMs: 0 };
}

const generateAt = (
  { placement, span }: Try,
  request: EngineRequest,
  { spans }: DispatchTrace,
  signal: StopSignal,
  take: TakeBatch,
): Promise<void> => placement.backend.engine.generate(request, signal, take, span?.headers ?? spans?.headers);

function contentFrom(at: Try, order: Order, pool: BackendPool, begunMs: number): void {
  const nowMs = performance.now();
  const { placement, span } = at;
  at.begunMs = nowMs;
  placement.begun(nowMs);
  span?.firstToken();
  if (order.model.hedge !== undefined) pool.firstTokens.observe(nowMs - begunMs);
}

/** Counts an answer, and what was found in it, for its backend. */
function answeredAt(at: Try, { order, pool, meter, check }: Dispatched): void {
  const { placement, attempt, begunMs } = at;
  const { backend } = placement;
  const nowMs = performance.now();
  const times =
    begunMs === 0
      ? { firstTokenMs: undefined, generatedMs: 0 }
      : { firstTokenMs: begunMs - order.begunMs - attempt.atMs, generatedMs: nowMs - begunMs };
  const { compared } = pool.fleet;
  const group = groupOf(order);
  compared.answered(backend, meter.usage, times, group, nowMs);
  if (check === undefined) return;
  const findings = check.findings(compared, nowMs);
  const isWrong = hasWrongCall(findings) || findings.formsMisfit > 0;
  compared.found(backend, findings, group, isWrong ? conversationOf(order, pool) : undefined, nowMs);
}

/** A failure that is the backend's own fault. */
function faultAt(backend: Backend, order: Order, error: unknown, pool: BackendPool): void {
  const nowMs = performance.now();
  const { compared } = pool.fleet;
  const [group, conversation] = [groupOf(order), conversationOf(order, pool)];
  if (error instanceof Error && error.cause instanceof UnboundFault) {
    const isForm = order.request.constraint !== undefined;
    const unbound = isForm ? { forms: 1, formsMisfit: 1 } : { calls: 1, callsUnreadable: 1 };
    compared.found(backend, { ...noFindings, ...unbound }, group, conversation, nowMs);
  }
  compared.failed(backend, group, conversation, nowMs);
}

/** Ids end at random. */
const groupOf = ({ account: { id } }: Order): number =>
  (31 * id.charCodeAt(id.length - 2) + id.charCodeAt(id.length - 1)) % groupsMax;

/** The key stands for the conversation if not even a hash of its content may be kept. */
const conversationOf = ({ request, key }: Order, { prefixSalt }: BackendPool): number | string | undefined =>
  turnsOf(request, key.id, prefixSalt)[0] ?? (request.retain ? undefined : key.id);

function failedAt(
  { placement, attempt, span }: Try,
  order: Order,
  error: unknown,
  pool: BackendPool,
  signal: StopSignal,
): void {
  attempt.failed = signal.aborted ? null : errorCodeOf(error);
  span?.failed(attempt.failed);
  const { backend } = placement;
  if (attempt.failed === 'backend_connect_error') placement.refused();
  if (signal.aborted || !isFaultOf(backend, error)) return;
  faultAt(backend, order, error, pool);
  placement.failed(performance.now());
  if (attempt.failed === 'backend_timeout') pool.watch(backend);
}

/** The delay before a second backend is tried, in milliseconds; Infinity: none is tried, because too little is known yet. */
const hedgeAfterMs = ({ model }: Order, { firstTokens }: BackendPool): number =>
  model.hedge === 'p95' ? firstTokens.p95 : (model.hedge ?? Infinity);

interface HedgeRunner extends Runner {
  readonly at: Try;
}

/** A try that races with another. `ended` is called only if the other one decides the outcome. */
function runnerOf(
  at: Try,
  order: Order,
  request: EngineRequest,
  pool: BackendPool,
  trace: DispatchTrace,
  signal: StopSignal,
): HedgeRunner {
  const { placement, attempt, span } = at;
  const { backend } = placement;
  return {
    at,
    generate: (stop, take) => generateAt(at, request, trace, stop, take),
    slower: () => (attempt.hedge = attempt.hedge === 'second' ? 'second_stopped' : 'overtaken'),
    ended: (failed) => {
      const nowMs = performance.now();
      if (failed !== undefined) failedAt(at, order, failed.error, pool, signal);
      else {
        span?.failed(null);
        // A backend overtaken by one that was asked later is in trouble; the later one may just have been asked too late.
        placement.abandoned(nowMs, attempt.hedge === 'overtaken');
        if (backend.ejectedUntilMs > 0) pool.watch(backend);
      }
      placement.end(nowMs);
      pool.offer();
    },
  };
}

/** Another backend that is free now, within the retry budget. */
function second(
  order: Order,
  routed: Routed,
  request: EngineRequest,
  pool: BackendPool,
  tried: Set<Backend>,
  trace: DispatchTrace,
  signal: StopSignal,
): HedgeRunner | undefined {
  const isAble = ableFor(order, tried);
  if (order.tier === 'batch' || isReservedFor(order, pool.backends)) return undefined;
  if (!pool.backends.some((backend) => isAble(backend) && backend.running < backend.concurrencyMax)) return undefined;
  const nowMs = performance.now();
  if (!pool.retries.take(nowMs, hedgeReserve)) return undefined;
  const placement = pool.fleet.place(routed, isAble, nowMs);
  if (placement === undefined) return undefined;
  tried.add(placement.backend);
  const at = begin(order, routed, placement, trace);
  at.attempt.hedge = 'second';
  return runnerOf(at, order, request, pool, trace, signal);
}

/** Retries that hedging leaves for failures. */
const hedgeReserve = 50;

function spanOf(
  { model, route }: Order,
  { backend, reasons }: Placement<Backend>,
  { spans, attempts }: DispatchTrace,
): OpenAttempt | undefined {
  return spans?.attempt({
    operation: route.operation,
    model: model.id,
    backend: backend.label,
    provider: backend.provider,
    number: attempts.length,
    chosen: reasons,
  });
}

/** Whether the backend is at fault: not for an unservable request, a full server, or an engine that knows it is down. */
function isFaultOf(backend: Backend, error: unknown): boolean {
  const code = errorCodeOf(error);
  if (code === 'backend_http_error' || code === 'backend_timeout') return true;
  // A wrong path, or a missing model.
  return code === 'no_healthy_backends' && isReady(backend);
}

/** §7.5: a request that waited in vain gets the same error as one that may not wait. */
function allTaken(order: Order, pool: BackendPool, tried: ReadonlySet<Backend>): ApiError {
  const bounded = pool.backends.filter((backend) => !tried.has(backend) && Number.isFinite(backend.concurrencyMax));
  const count = bounded.reduce((sum, { concurrencyMax }) => sum + concurrencyMax, 0);
  return new ApiError('backend_at_capacity', `All slots of the model '${order.model.id}' are in use.`, atCap(count, 1));
}

/** Matches a backend that is ready, can take the request, and has not failed it yet. */
const ableFor =
  ({ request }: Order, tried: ReadonlySet<Backend>) =>
  (backend: Backend): boolean =>
    !tried.has(backend) && isReady(backend) && mayTake(backend, request);

/** Slots that no request has. */
function freeSlots(backends: readonly Backend[]): number {
  let free = 0;
  let running = 0;
  for (const backend of backends) {
    if (!isReady(backend)) continue;
    free += Math.max(0, backend.concurrencyMax - backend.running);
    running += backend.running;
  }
  // With nothing running, nothing will be given back that could end a wait.
  return running === 0 ? Infinity : free;
}

/** Whether what is free is kept for another tier. */
function isReservedFor({ tier, model }: Order, backends: readonly Backend[]): boolean {
  const reserved = tier === 'priority' ? 0 : (model.tiers?.priority?.reservedSlots ?? 0);
  return reserved > 0 && freeSlots(backends) <= reserved;
}

/** Places the request at a backend that is ready, can take it, and has not failed it yet; throws when no backend ever will. */
function place(
  order: Order,
  routed: RoutedRequest,
  { backends, fleet, demand }: Pick<BackendPool, 'backends' | 'fleet' | 'demand'>,
  tried: ReadonlySet<Backend>,
  failure: unknown,
): Placement<Backend> | undefined {
  const isAble = ableFor(order, tried);
  const nowMs = performance.now();
  const placement = isReservedFor(order, backends)
    ? undefined
    : (placedWarm(routed, { backends, fleet }, isAble, nowMs) ?? fleet.place(routed, isAble, nowMs));
  // All able backends are full.
  if (placement !== undefined || backends.some(isAble)) return placement;
  if (isSummoned(order, backends, tried, demand)) return undefined;
  if (failure !== undefined) throw withModel(failure, order);
  throw noneAvailable(order, backends);
}

/**
 * Places the request where nothing has to be loaded for it, if such a backend has room to spare; `undefined`: there is no difference, or all
 * that are warm have much to do, so that another one is worth the loading.
 */
function placedWarm(
  routed: RoutedRequest,
  { backends, fleet }: Pick<BackendPool, 'backends' | 'fleet'>,
  isAble: (backend: Backend) => boolean,
  nowMs: number,
): Placement<Backend> | undefined {
  if (backends.length === 1 || !backends.some(isCold)) return undefined;
  const isWarm = (backend: Backend): boolean => !isCold(backend) && 2 * backend.running < backend.concurrencyMax;
  return fleet.place(routed, (backend) => isWarm(backend) && isAble(backend), nowMs);
}

const isCold = ({ engine }: Backend): boolean => engine.isCold === true;

/** Asks for the servers that are started when they are needed; false: there is none that the request could wait for. */
function isSummoned(
  { request, tier }: Order,
  backends: readonly Backend[],
  tried: ReadonlySet<Backend>,
  demand: Demand,
): boolean {
  let comes = false;
  for (const backend of backends) {
    if (backend.engine.summon === undefined || tried.has(backend) || !mayTake(backend, request)) continue;
    comes = backend.engine.summon(demand, tier === 'batch') || comes;
  }
  return comes;
}

const noneAvailable = ({ model: { id: model } }: Order, backends: readonly Backend[]): ApiError =>
  new ApiError(
    'no_healthy_backends',
    `No backend of the model '${model}' is available. ${waitingFor(backends)}`.trim(),
    { extra: { model }, retryAfterSeconds: retryAfterSeconds(backends) },
  );

/** A model that is being fetched or loaded says so; why a backend is down is for the operator's log only. */
const waitingFor = (backends: readonly Backend[]): string =>
  backends.some((backend) => backend.engine.status().state === 'starting')
    ? 'It is still being loaded; try again shortly.'
    : '';

/** When the first of them may be back; a short time if none of them knows. */
function retryAfterSeconds(backends: readonly Backend[]): number {
  const known = backends
    .map(({ engine }) => engine.status())
    .map((status) => ('retryAfterSeconds' in status ? status.retryAfterSeconds : undefined));
  return Math.min(5, ...known.filter((seconds) => seconds !== undefined));
}

const hasContent = (batch: GenerationBatch): boolean =>
  batch.some((event) => event.type !== 'start' && event.type !== 'usage');

/** Whether another backend may succeed. */
export function mayFailOver(error: unknown): boolean {
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
