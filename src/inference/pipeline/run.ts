import { randomInt } from 'node:crypto';

import type { Billing } from '../../billing/billing.ts';
import { estimate, holdStepTokens } from '../../billing/bill.ts';
import type { Hold, Receipt } from '../../billing/hold.ts';
import { ApiError, errorCodeOf } from '../../platform/errors.ts';
import type { GenerationBatch, TakeBatch, Usage } from '../../generation/event.ts';
import type { Limits, Spending, Spent } from '../../billing/rate-limits/rate-limits.ts';
import type { Ending } from '../../store/ledger.ts';
import type { ImageFetcher } from '../images/fetcher.ts';
import type { Call } from './call.ts';
import { endingOfCancel, errorOfCancel } from './cancellation.ts';
import type { CancelReason } from './cancellation.ts';
import type { PromptCounts } from './count.ts';
import { dispatch } from './dispatch.ts';
import type { Dispatched, DispatchTrace, LinePlace } from './dispatch.ts';
import { Fallen, mayFallBack } from './fallbacks.ts';
import { fetchImages, hasImageUrls } from './request-images.ts';
import type { ByteBudget, WithImages } from './request-images.ts';
import { answerCheckOf, type AnswerCheck } from './answer-check.ts';
import { Meter } from './meter.ts';
import type { Order } from './order.ts';
import { withOwnNames } from './own-names.ts';
import type { BackendPool } from './backend-pool.ts';
import { turnsOf } from '../routing/prompt-prefixes.ts';
import { receiptOf, spentBy } from './receipt.ts';
import type { StopSignal } from '../../platform/stop-signal.ts';
import type { TrafficRecorder } from './traffic-recorder.ts';
import type { Wait } from './wait-queue.ts';
import type { RequestTrace } from '../../platform/telemetry/request-trace.ts';

export interface RunServices {
  readonly limits: Pick<Limits, 'admit'>;
  readonly billing: Billing;
  readonly imageFetcher: ImageFetcher;
  readonly promptCounts: PromptCounts;
  readonly traffic: Pick<TrafficRecorder, 'ended'>;
  readonly metrics: {
    /** Records the seconds between two batches of the model. */
    chunkGaps(modelId: string): { observe(seconds: number): void };
  };
}

/** A running request, and the callbacks for its progress. */
export interface RunningCall extends Call {
  /** Its waits for slots, if it had to wait. */
  waits: Wait[] | undefined;
  /** Its trace, if it is traced. */
  readonly trace: RequestTrace | undefined;
  /** The memory budget for its images. */
  readonly memory: ByteBudget;
  /** Called once for an order with a preparation, with the resulting order. */
  prepared(order: Order): void;
  /** Called with the order for another model before that is tried, and with the first order again if no model has served it. */
  falls(to: Order): void;
  /** Called once for an order that had a hold, with its receipt, when its charge is settled. */
  ended(receipt: Receipt): void;
}

/** A generation that runs apart from the request that started it. */
export interface Apart {
  readonly signal: StopSignal;
  /**
   * Receives the last batch before the charge is made; a throw leaves the answer uncharged and fails it. Resolves with whether the answer
   * counts if the ledger has its charge, whatever this process says of it.
   */
  settling(closing: GenerationBatch): Promise<boolean>;
  /** Absent where it is no line of a batch. */
  readonly line?: LinePlace;
}

/**
 * Acquires a slot, prepares the order, acquires credit and a backend, and gives everything back however the request ends: by returning, by
 * an error, by a cancellation through the signal (whose reason is a `CancelReason`), or by a reader that is gone.
 *
 * The last batch, with the final usage, is delivered only after the charge is durable (reliability I4). `deliver` answers `false` when the
 * reader is gone.
 */
export async function run(
  taken: Order,
  call: RunningCall,
  services: RunServices,
  deliver: TakeBatch,
  apart?: Apart,
): Promise<void> {
  const { signal } = apart ?? call;
  const admitting = services.limits.admit(taken, workOf(taken), tokensLikely(taken), spending); // 429, 402
  const admitted = admitting instanceof Promise ? await admitting : admitting;
  call.admitted = admitted;
  let images: WithImages | undefined;
  let spent: Spent | undefined;
  try {
    const isWork = taken.preparation !== undefined || hasImageUrls(taken);
    let order = isWork ? await prepareOrder(taken, call, services, signal) : taken; // 402, 400
    if (hasImageUrls(order)) {
      images = await fetchImages(order, services.imageFetcher, call, signal); // 400
      order = images.order;
    }
    if (isWork) await admitted.raise(tokensLikely(order)); // 429
    const holding = call.trace?.step('hold');
    const hold =
      services.billing.holdAtOnce(order) ??
      (await services.billing.hold(order, () => exactPrompt(order, call, services))); // 402
    holding?.end();
    let serving = new Serving(order, hold, deliver, call, services, apart?.line, undefined);
    let settled: Receipt | undefined;
    let ending: Ending | undefined;
    let errorCode: string | null = null;
    const askedMs = performance.now();
    let engineMs: number | undefined;
    try {
      for (;;) {
        try {
          await dispatch(serving, signal);
          break;
        } catch (error) {
          if (signal.aborted || !mayFallBack(serving, error)) throw error;
          const fallen = fallenWith(serving, error);
          // Drops the attempts at the model that failed: a client that leaves from here on does not pay for them.
          serving = new Serving(fallen.firstOrder, hold, deliver, call, services, apart?.line, fallen);
          const next = await nextOrder(fallen, hold, call, services, images);
          call.falls(next ?? fallen.firstOrder);
          if (next === undefined) throw fallen.firstError;
          serving = new Serving(next, hold, deliver, call, services, apart?.line, fallen);
        }
      }
      engineMs = performance.now() - askedMs;
      if (!serving.isRead) return; // what has been delivered is charged (see below)
      if (!serving.meter.complete) throw endedEarly();
      const receipt = receiptOf(serving, serving.meter.cutByCredit ? 'credit' : 'finished', null);
      const closing = serving.meter.closing();
      const isKept = apart !== undefined && (await apart.settling(closing));
      const settling = call.trace?.step('settle');
      await hold.settle(receipt, isKept);
      settling?.end();
      settled = receipt;
      learnLength(serving.order, receipt, serving.pool);
      const last = deliver(closing);
      if (last instanceof Promise) await last; // an await of what is none makes two
    } catch (error) {
      engineMs ??= performance.now() - askedMs;
      if (signal.aborted) {
        const reported = errorOfCancel(signal.reason as CancelReason, serving.order.model.id);
        if (!isClientGone(signal.reason as CancelReason)) errorCode = reported.code;
        throw reported;
      }
      // The first cause wins: a client that leaves after a failure does not pay for it.
      ending = hold.lost ? 'lost' : 'failed';
      errorCode = errorCodeOf(error);
      throw withOwnNames(serving.order.at, error);
    } finally {
      if (settled === undefined) {
        // Cancelled, or a reader that stopped before the end, which is a client that left.
        ending ??= signal.aborted ? endingOfCancel(signal.reason as CancelReason) : 'client_left';
        settled = await unfinished(receiptOf(serving, ending, errorCode), serving, call, services);
        const settling = call.trace?.step('settle');
        await hold.close(settled);
        settling?.end();
      }
      spent = spentBy(settled);
      call.engineMs += engineMs!;
      ended(settled, serving, call, services);
    }
  } finally {
    images?.release();
    admitted.end(spent);
  }
}

/**
 * Returns the order after the work that precedes its hold. The request has a slot and some credit: how much it needs is only known
 * afterwards (docs/decisions/052-work-behind-limits.md).
 */
async function prepareOrder(
  taken: Order,
  call: RunningCall,
  { billing }: RunServices,
  signal: StopSignal,
): Promise<Order> {
  await billing.check(taken);
  if (taken.preparation === undefined) return taken;
  try {
    const order = await taken.preparation.run(signal);
    call.prepared(order);
    return order;
  } catch (error) {
    if (signal.aborted && error === signal.reason) throw errorOfCancel(error as CancelReason, taken.model.id);
    throw error;
  }
}

/** What serves a request: an order for one model, and its state. */
class Serving implements Dispatched {
  readonly order: Order;
  readonly pool: BackendPool;
  readonly meter: Meter;
  readonly check: AnswerCheck | undefined;
  readonly trace: DispatchTrace;
  /** Absent while the requested model serves it. */
  readonly fallen: Fallen | undefined;
  readonly line: LinePlace | undefined;
  readonly #hold: Hold;
  readonly #deliver: TakeBatch;
  readonly #gaps: ReturnType<RunServices['metrics']['chunkGaps']>;
  readonly #call: RunningCall;
  #before: Usage;
  /** When the model last sent a batch. */
  #heardMs: number | undefined;
  /** The client is connected. */
  isRead = true;

  constructor(
    order: Order,
    hold: Hold,
    deliver: TakeBatch,
    call: RunningCall,
    { metrics }: RunServices,
    line: LinePlace | undefined,
    fallen: Fallen | undefined,
  ) {
    const { lease, trace } = call;
    this.order = order;
    this.pool = lease.poolOf(order.model.id);
    this.meter = new Meter(order);
    this.check = answerCheckOf(order.request);
    this.trace = { attempts: [], hasContent: false, spans: trace };
    this.fallen = fallen;
    this.line = line;
    this.#hold = hold;
    this.#deliver = deliver;
    this.#call = call;
    this.#gaps = metrics.chunkGaps(order.model.id);
    this.#before = this.meter.usage;
  }

  /**
   * Takes a batch of the model: meters it, holds its cost, and passes on what the client may have now. Mostly without a promise: with many
   * streams, one promise per batch costs as much as everything else here.
   */
  take(batch: GenerationBatch): boolean | Promise<boolean> {
    // One clock reading per batch (0.2 µs with the bucket).
    const nowMs = performance.now();
    if (this.#heardMs !== undefined) this.#gaps.observe((nowMs - this.#heardMs) / 1_000);
    this.#heardMs = nowMs;
    const usage = this.meter.read(batch);
    this.check?.read(batch);
    const covered = this.#hold.cover(usage);
    if (typeof covered === 'boolean') return this.#pass(usage, covered);
    return covered.then((isCovered) => this.#pass(usage, isCovered));
  }

  get waits(): readonly Wait[] | undefined {
    return this.#call.waits;
  }

  waiting(wait: Wait): void {
    (this.#call.waits ??= []).push(wait);
  }

  #pass(usage: Usage, isCovered: boolean): boolean | Promise<boolean> {
    if (!isCovered) {
      // The answer ends before this batch, whose tokens are not charged.
      const { completionTokens, reasoningTokens } = this.#before;
      this.meter.cut('credit', { ...usage, completionTokens, reasoningTokens });
      return false;
    }
    this.#before = usage;
    const { pass } = this.meter;
    if (pass.length === 0) return true;
    const goesOn = this.#deliver(pass);
    if (typeof goesOn === 'boolean') return (this.isRead = goesOn);
    return goesOn.then((later) => (this.isRead = later));
  }
}

/** What happened to the request so far, including the model that has just failed it. */
function fallenWith({ order, trace, fallen }: Serving, error: unknown): Fallen {
  const all = fallen ?? new Fallen(order, error);
  all.add(order, error, trace);
  return all;
}

/** Returns the order for the next model that can take the request, with credit held for it; `undefined`: there is none. */
async function nextOrder(
  { firstOrder, steps }: Fallen,
  hold: Hold,
  call: RunningCall,
  services: RunServices,
  images: WithImages | undefined,
): Promise<Order | undefined> {
  for (;;) {
    const made = await firstOrder.fallbacks?.next(firstOrder, steps);
    if (made === undefined) return undefined;
    const order = images?.into(made) ?? made;
    if (await rebound(hold, order, call, services)) return order;
    steps.push({ model: order.model.id, reason: 'insufficient_credits', isSkipped: true });
  }
}

/** The bound from bytes is several times the real count: before the hold is refused, the prompt is counted, as for a first hold. */
async function rebound(hold: Hold, order: Order, call: RunningCall, services: RunServices): Promise<boolean> {
  if (await hold.rebind(order)) return true;
  const exact = await exactPrompt(order, call, services).catch(uncounted);
  return exact !== undefined && (await hold.rebind(order, exact));
}

function ended(receipt: Receipt, { order }: Serving, call: RunningCall, { traffic }: RunServices): void {
  call.ended(receipt);
  traffic.ended(order, receipt);
}

const endedEarly = (): ApiError =>
  new ApiError('backend_http_error', 'The backend ended its answer without finishing it.');

/** Whether the client is gone, and gets no error. */
const isClientGone = (reason: CancelReason): boolean => reason === 'client-left' || reason === 'reader-stalled';

/** What a request counts towards limits until its usage is known: the prompt and one step of the answer, like its hold. */
const tokensLikely = ({ completionTokensMax, promptTokensLikely }: Order): number =>
  promptTokensLikely + Math.min(completionTokensMax, holdStepTokens);

/** A secret of the process, so that nobody can write prompts that are taken for others. */
const turnSalt = randomInt(2 ** 31);

const spending: Spending<Order> = {
  // Nothing of what a plan pays.
  microcentsLikely: (order) => (order.plan === null ? Number(estimate(order, order.promptTokensLikely).amount) : 0),
  turns: ({ request, key }) => turnsOf(request, key.id, turnSalt),
};

const workOf = ({ batchId }: Order): 'generate' | 'line' => (batchId === null ? 'generate' : 'line');

/** A client that left before the backend reported the prompt's length pays for the counted input, but for nothing before dispatch. */
async function unfinished(
  receipt: Receipt,
  { order, meter, trace }: Serving,
  call: RunningCall,
  services: RunServices,
): Promise<Receipt> {
  if (meter.started) return receipt;
  const nothing = { ...receipt, promptTokens: 0, cachedTokens: 0, completionTokens: 0, reasoningTokens: 0 };
  const left = receipt.ending === 'client_left' || receipt.ending === 'reader_stalled' || receipt.ending === 'revoked';
  // Only if an engine was called.
  if (!left || trace.attempts.length === 0) return nothing;
  return {
    ...receipt,
    promptTokens: order.promptCounted
      ? order.promptTokensMax
      : ((await counted(order, call, services, order.imageTokens.likely).catch(uncounted)) ?? order.promptTokensLikely),
    counted: true,
  };
}

/** Counting failed, took too long, or too many are waiting: our own estimate is used. */
const uncounted = (): undefined => undefined;

/** How long an engine may take to count; after that our own estimate is used. */
const countTimeoutMs = 2_000;

async function counted(
  { model, request }: Order,
  { lease }: RunningCall,
  { promptCounts }: RunServices,
  imageTokens: number,
): Promise<number | undefined> {
  const { backends } = lease.poolOf(model.id);
  const count = await promptCounts.count(request, backends, AbortSignal.timeout(countTimeoutMs));
  return count === 'too-long' || count === undefined ? undefined : count + imageTokens;
}

const exactPrompt = async (order: Order, call: RunningCall, services: RunServices): Promise<number | undefined> =>
  order.promptCounted ? undefined : await counted(order, call, services, order.imageTokens.most);

/** Records the backend's figure for a prompt that was not counted. Nothing is recorded under zero data retention. */
function learnLength(order: Order, { counted, promptTokens }: Receipt, { promptLengths }: BackendPool): void {
  const isReported = !counted && !order.promptCounted && order.imageTokens.most === 0;
  if (isReported && order.request.retain) promptLengths.learn(order.account.id, order.promptTokensMax, promptTokens);
}
