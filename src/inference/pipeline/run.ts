import type { Billing } from '../../billing/billing.ts';
import { holdStepTokens } from '../../billing/bill.ts';
import { isCharged } from '../../billing/endings.ts';
import type { Hold, Receipt } from '../../billing/hold.ts';
import { ApiError, errorCodeOf } from '../../platform/errors.ts';
import type { GenerationBatch, TakeBatch, Usage } from '../../generation/event.ts';
import type { Admitted, Limits, Spent } from '../../billing/rate-limits/rate-limits.ts';
import { balanceAt } from '../../store/budget.ts';
import type { Ending } from '../../store/ledger.ts';
import type { UsageAttempt } from '../../store/schema/tables.ts';
import { endingOfCancel, errorOfCancel } from './cancellation.ts';
import type { CancelReason } from './cancellation.ts';
import type { PromptCounts } from './count.ts';
import { dispatch } from './dispatch.ts';
import type { DispatchTrace } from './dispatch.ts';
import { Fallen, mayFallBack } from './fallbacks.ts';
import { fetchImages, hasImageUrls } from './request-images.ts';
import type { ImageServices, WithImages } from './request-images.ts';
import { Meter } from './meter.ts';
import type { Order } from './order.ts';
import { withOwnNames } from './own-names.ts';
import type { BackendPool } from './backend-pool.ts';
import type { StopSignal } from '../../platform/stop-signal.ts';
import type { RequestTrace } from '../../platform/telemetry/request-trace.ts';

export interface RunServices {
  readonly limits: Pick<Limits, 'admit'>;
  readonly billing: Billing;
  readonly images: ImageServices;
  readonly promptCounts: PromptCounts;
  poolOf(modelId: string): BackendPool;
  /** Called once for an order that no limit has refused. */
  admitted(admitted: Admitted): void;
  /** Called once for an order with a preparation, with the order that came of it. */
  prepared(order: Order): void;
  /**
   * Called once for an order that had a hold, when its money is settled, with its charge and how long an engine and the servers
   * of its images worked for it.
   */
  ended(receipt: Receipt, engineMs: number): void;
  /** Called with the order for another model before that is tried, and with the first one again when none has served it. */
  falls?: ((to: Order) => void) | undefined;
  /** Receives the last batch before the charge is made; a throw leaves the answer uncharged and fails it. */
  settling?(closing: GenerationBatch): Promise<void>;
  readonly spans: RequestTrace | undefined;
  /** Records the seconds between two batches of the model. */
  chunkGaps(modelId: string): { observe(seconds: number): void };
}

/**
 * Takes a batch for the client. A promise is awaited before the next batch is read, so a slow reader holds its backend back.
 * `false`: the reader is gone.
 */
export type Deliver = (batch: GenerationBatch) => boolean | Promise<boolean>;

/**
 * Acquires a slot, has the order prepared, acquires credit and a backend, and gives everything back on every way a request can end: by returning, by an
 * error, by a cancellation through `signal` (whose reason is a `CancelReason`), or by a reader that is gone.
 *
 * The last batch, with the final usage, is delivered only after the charge is durable (reliability I4).
 */
export async function run(taken: Order, services: RunServices, signal: StopSignal, deliver: Deliver): Promise<void> {
  const admitting = services.limits.admit(taken, 'generate', tokensLikely(taken)); // 429
  const admitted = admitting instanceof Promise ? await admitting : admitting;
  services.admitted(admitted);
  let images: WithImages | undefined;
  let spent: Spent | undefined;
  try {
    const isWork = taken.preparation !== undefined || hasImageUrls(taken);
    let order = isWork ? await prepareOrder(taken, services, signal) : taken; // 402, 400
    if (hasImageUrls(order)) {
      const { backends } = services.poolOf(order.model.id);
      images = await fetchImages(order, services.images, backends, signal); // 400
      order = images.order;
    }
    if (isWork) await admitted.raise(tokensLikely(order)); // 429
    const fetchMs = images?.fetchMs ?? 0;
    const { billing, spans } = services;
    const holding = spans?.step('hold');
    const hold = billing.holdAtOnce(order) ?? (await billing.hold(order, () => exactPrompt(order, services))); // 402
    holding?.end();
    const serving = servingOf(order, services);
    let settled: Receipt | undefined;
    let ending: Ending | undefined;
    let errorCode: string | null = null;
    const askedMs = performance.now();
    let engineMs: number | undefined;
    const take = takerOf(serving, hold, deliver);
    try {
      for (;;) {
        try {
          await dispatch(
            serving.order,
            poolOf(serving, services),
            serving.trace,
            signal,
            take,
            () => serving.meter.usage,
          );
          break;
        } catch (error) {
          if (signal.aborted || !mayFallBack(serving, error)) throw error;
          await fallBack(serving, error, hold, services, images);
        }
      }
      engineMs = performance.now() - askedMs;
      // The reader has left; what was delivered until now is charged (see below).
      if (!serving.isRead) return;
      const { meter } = serving;
      if (!meter.complete) throw endedEarly();
      const receipt = receiptOf(serving, meter.cutByCredit ? 'credit' : 'finished', null);
      const closing = meter.closing();
      if (services.settling !== undefined) await services.settling(closing);
      const settling = spans?.step('settle');
      await hold.settle(receipt);
      settling?.end();
      settled = receipt;
      learnLength(serving.order, receipt, poolOf(serving, services));
      await deliver(closing);
    } catch (error) {
      engineMs ??= performance.now() - askedMs;
      if (signal.aborted) {
        const reason = signal.reason as CancelReason;
        const reported = errorOfCancel(reason, serving.order.model.id);
        if (!isClientGone(reason)) errorCode = reported.code;
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
        settled = await unfinished(receiptOf(serving, ending, errorCode), serving, services);
        const settling = spans?.step('settle');
        await hold.close(settled);
        settling?.end();
      }
      spent = spentBy(settled);
      services.ended(settled, fetchMs + (engineMs ?? serving.heardMs - askedMs));
    }
  } finally {
    images?.release();
    admitted.end(spent);
  }
}

/**
 * The order after the work that comes before its hold, for who has a slot and credit: some, because how much the request needs is
 * only known afterwards (docs/decisions/052-work-behind-limits.md).
 */
async function prepareOrder(taken: Order, { billing, prepared }: RunServices, signal: StopSignal): Promise<Order> {
  await billing.check(taken);
  if (taken.preparation === undefined) return taken;
  try {
    const order = await taken.preparation.run(signal);
    prepared(order);
    return order;
  } catch (error) {
    if (signal.aborted && error === signal.reason) throw errorOfCancel(error as CancelReason, taken.model.id);
    throw error;
  }
}

/** What serves a request: an order for one model, and what belongs to it. Replaced as a whole when another model serves. */
interface Serving {
  order: Order;
  meter: Meter;
  trace: DispatchTrace;
  gaps: ReturnType<RunServices['chunkGaps']>;
  /** When the model was last heard; 0: not yet. */
  heardMs: number;
  /** The client is there. */
  isRead: boolean;
  /** Absent while it is the model that was asked for. */
  fallen: Fallen | undefined;
}

const servingOf = (order: Order, { spans, chunkGaps }: RunServices): Serving => ({
  order,
  meter: new Meter(order),
  trace: { attempts: [], hasContent: false, spans },
  gaps: chunkGaps(order.model.id),
  heardMs: 0,
  isRead: true,
  fallen: undefined,
});

const poolOf = ({ order }: Serving, services: RunServices): BackendPool => services.poolOf(order.model.id);

/** Takes the batches of the model: meters them, holds what they cost, and passes on what the client may have now. */
function takerOf(serving: Serving, hold: Hold, deliver: Deliver): TakeBatch {
  let before: Usage = serving.meter.usage;
  const delivered = (goesOn: boolean): boolean => (serving.isRead = goesOn);
  const cut = (usage: Usage): false => cutByCredit(serving.meter, usage, before);
  const pass = (usage: Usage): boolean | Promise<boolean> => {
    before = usage;
    const { meter } = serving;
    if (meter.pass.length === 0) return true;
    const goesOn = deliver(meter.pass);
    return typeof goesOn === 'boolean' ? delivered(goesOn) : goesOn.then(delivered);
  };
  // For every batch, mostly without a promise: with many streams one promise costs as much as everything else here.
  return (batch) => {
    // One clock reading per batch (0.2 µs with the bucket): the gap to the one before, and the engine's last word.
    const nowMs = performance.now();
    if (serving.heardMs > 0) serving.gaps.observe((nowMs - serving.heardMs) / 1_000);
    serving.heardMs = nowMs;
    const usage = serving.meter.read(batch);
    const covered = hold.cover(usage);
    if (covered === true) return pass(usage);
    if (covered === false) return cut(usage);
    return covered.then((isCovered) => (isCovered ? pass(usage) : cut(usage)));
  };
}

/** Lets the next model serve that can take the request and that can be paid. Throws the first model's error when there is none. */
async function fallBack(
  serving: Serving,
  error: unknown,
  hold: Hold,
  services: RunServices,
  images: WithImages | undefined,
): Promise<void> {
  const fallen = serving.fallen ?? new Fallen(serving.order, error);
  fallen.add(serving.order, error, serving.trace);
  const next = await nextOrder(fallen, hold, services, images);
  // Without the tries at the model that failed: a client that leaves from here on does not pay for them.
  Object.assign(serving, servingOf(next ?? fallen.firstOrder, services), { fallen });
  services.falls?.(serving.order);
  if (next === undefined) throw fallen.firstError;
}

/** With money held for it; `undefined`: there is none. */
async function nextOrder(
  { firstOrder, steps }: Fallen,
  hold: Hold,
  services: RunServices,
  images: WithImages | undefined,
): Promise<Order | undefined> {
  for (;;) {
    const made = await firstOrder.fallbacks?.next(firstOrder, steps);
    if (made === undefined) return undefined;
    const order = images?.into(made, services.poolOf(made.model.id).backends) ?? made;
    if (await rebound(hold, order, services)) return order;
    steps.push({ model: order.model.id, reason: 'insufficient_credits', isSkipped: true });
  }
}

/** The bound from bytes is several times the real count: before the hold is refused the prompt is counted, as for a first hold. */
async function rebound(hold: Hold, order: Order, services: RunServices): Promise<boolean> {
  if (await hold.rebind(order)) return true;
  const exact = await exactPrompt(order, services).catch(uncounted);
  return exact !== undefined && (await hold.rebind(order, exact));
}

/** The answer ends before the last batch, whose tokens are not charged. */
function cutByCredit(meter: Meter, usage: Usage, { completionTokens, reasoningTokens }: Usage): false {
  meter.cut('credit', { ...usage, completionTokens, reasoningTokens });
  return false;
}

const endedEarly = (): ApiError =>
  new ApiError('backend_http_error', 'The backend ended its answer without finishing it.');

/** Then it gets no error. */
const isClientGone = (reason: CancelReason): boolean => reason === 'client-left' || reason === 'reader-stalled';

/** What a request counts for until its usage is known: the prompt and one step of the answer, like its hold. */
const tokensLikely = ({ completionTokensMax, promptTokensLikely }: Order): number =>
  promptTokensLikely + Math.min(completionTokensMax, holdStepTokens);

function spentBy({ ending, promptTokens, completionTokens }: Receipt): Spent {
  const isCounted = isCharged(ending);
  return { isCounted, tokens: isCounted ? promptTokens + completionTokens : 0 };
}

/** A client that left before the backend reported the prompt's length pays the counted input, and nothing before dispatch. */
async function unfinished(receipt: Receipt, { order, meter, trace }: Serving, services: RunServices): Promise<Receipt> {
  if (meter.started) return receipt;
  const nothing = { ...receipt, promptTokens: 0, cachedTokens: 0, completionTokens: 0, reasoningTokens: 0 };
  const left = receipt.ending === 'client_left' || receipt.ending === 'reader_stalled' || receipt.ending === 'revoked';
  // Only when an engine has been called.
  if (!left || trace.attempts.length === 0) return nothing;
  return {
    ...receipt,
    promptTokens: order.promptCounted
      ? order.promptTokensMax
      : ((await counted(order, services, order.imageTokens.likely).catch(uncounted)) ?? order.promptTokensLikely),
    counted: true,
  };
}

/** It could not be counted in time, or too many are: our own estimate is used. */
const uncounted = (): undefined => undefined;

/** How long an engine may take to count; after that our own estimate is used. */
const countTimeoutMs = 2_000;

async function counted(order: Order, services: RunServices, imageTokens: number): Promise<number | undefined> {
  const { backends } = services.poolOf(order.model.id);
  const count = await services.promptCounts.count(order.request, backends, AbortSignal.timeout(countTimeoutMs));
  return count === 'too-long' || count === undefined ? undefined : count + imageTokens;
}

const exactPrompt = async (order: Order, services: RunServices): Promise<number | undefined> =>
  order.promptCounted ? undefined : await counted(order, services, order.imageTokens.most);

/** Remembers the backend's figure for a prompt that was not counted. Zero data retention holds for this too. */
function learnLength(order: Order, { counted, promptTokens }: Receipt, { promptLengths }: BackendPool): void {
  const isReported = !counted && !order.promptCounted && order.imageTokens.most === 0;
  if (isReported && order.request.retain) promptLengths.learn(order.account.id, order.promptTokensMax, promptTokens);
}

/** What is worth keeping of them: there was a choice, or something failed. */
function attemptsOf({ trace: { attempts }, fallen }: Serving): Pick<Receipt, 'attempts' | 'fallbacks'> {
  if (fallen !== undefined) return { attempts: [...fallen.attempts, ...attempts], fallbacks: fallen.steps };
  return attempts.length > 1 || (attempts[0]?.chosen ?? null) !== null ? { attempts } : {};
}

function receiptOf(serving: Serving, ending: Ending, errorCode: string | null): Receipt {
  const { order, meter, trace, fallen } = serving;
  const { promptTokens, cachedTokens, completionTokens, reasoningTokens } = meter.usage;
  const totalMs = order.elapsedMs();
  return {
    requestId: order.id,
    publicId: order.publicId,
    clientId: order.clientId,
    accountId: order.account.id,
    keyId: order.key.id,
    modelId: order.model.id,
    api: order.route.api,
    streamed: order.stream,
    startedAt: order.startedAt,
    endedAt: order.startedAt + totalMs,
    promptTokens,
    cachedTokens,
    completionTokens,
    reasoningTokens,
    ending,
    finish: ending === 'finished' || ending === 'credit' ? meter.finishReason : null,
    errorCode,
    counted: meter.counted,
    inputPrice: order.prices.input,
    outputPrice: order.prices.output,
    cacheReadPrice: order.prices.cacheRead,
    backend: (lastOf(trace.attempts) ?? fallen?.attempts.at(-1))?.backend ?? null,
    firstTokenMs: meter.firstTokenMs,
    totalMs,
    tags: order.tags.length === 0 ? null : JSON.stringify(order.tags),
    plan: order.plan,
    keyBudget: order.plan === null ? (order.key.budget?.per ?? null) : null,
    accountBudget: order.plan === null ? (order.account.budget?.per ?? null) : null,
    memberBudget: order.plan === null ? memberBalanceOf(order) : null,
    zdr: order.zdr,
    ...attemptsOf(serving),
    // The hold fills these in.
    costMicrocents: 0n,
    unchargedMicrocents: 0n,
    holdMicrocents: 0n,
  };
}

/** The one that decided: of two that raced, not the one that was stopped or failed first. */
const lastOf = (attempts: readonly UsageAttempt[]): UsageAttempt | undefined =>
  attempts.findLast(({ failed, hedge }) => failed === null && hedge !== 'second_stopped') ?? attempts.at(-1);

function memberBalanceOf({ key: { member }, startedAt }: Order): string | null {
  return member === undefined ? null : balanceAt(member.id, member.budget.per, startedAt).id;
}
