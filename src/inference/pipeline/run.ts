import type { Billing } from '../../billing/billing.ts';
import { holdStepTokens } from '../../billing/bill.ts';
import { isCharged } from '../../billing/endings.ts';
import type { Receipt } from '../../billing/hold.ts';
import { ApiError, errorCodeOf } from '../../platform/errors.ts';
import type { GenerationBatch, Usage } from '../../generation/event.ts';
import type { Admitted, Limits, Spent } from '../../billing/rate-limits/rate-limits.ts';
import { balanceAt } from '../../store/budget.ts';
import type { Ending } from '../../store/ledger.ts';
import { endingOfCancel, errorOfCancel } from './cancellation.ts';
import type { CancelReason } from './cancellation.ts';
import { countPrompt } from './count.ts';
import { dispatch } from './dispatch.ts';
import type { DispatchTrace } from './dispatch.ts';
import { fetchImages, hasImageUrls } from './request-images.ts';
import type { ImageServices, WithImages } from './request-images.ts';
import { Meter } from './meter.ts';
import type { Order } from './order.ts';
import type { BackendPool } from './backend-pool.ts';
import type { StopSignal } from '../../platform/stop-signal.ts';
import type { RequestTrace } from '../../platform/telemetry/request-trace.ts';

export interface RunServices {
  readonly limits: Pick<Limits, 'admit'>;
  readonly billing: Billing;
  readonly images: ImageServices;
  poolOf(modelId: string): BackendPool;
  /** Called once for an order that no limit has refused. */
  admitted(admitted: Admitted): void;
  /**
   * Called once for an order that had a hold, when its money is settled, with its charge and how long an engine and the servers
   * of its images worked for it.
   */
  ended(receipt: Receipt, engineMs: number): void;
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
 * Acquires a slot, credit and a backend, and gives everything back on every way a request can end: by returning, by an
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
    // Contracts decision 10: after the limits, before the credit, which needs the sizes.
    const { backends } = services.poolOf(taken.model.id);
    if (hasImageUrls(taken)) images = await fetchImages(taken, services.images, backends, signal); // 400
    const { order, fetchMs } = images ?? { order: taken, fetchMs: 0 };
    const { billing, spans } = services;
    const holding = spans?.step('hold');
    const hold = billing.holdAtOnce(order) ?? (await billing.hold(order, () => exactPrompt(order, services))); // 402
    holding?.end();
    const meter = new Meter(order);
    const trace: DispatchTrace = { attempts: [], spans };
    let settled: Receipt | undefined;
    let ending: Ending | undefined;
    let errorCode: string | null = null;
    const gaps = services.chunkGaps(order.model.id);
    const askedMs = performance.now();
    let heardMs = 0;
    let engineMs: number | undefined;
    let before: Usage = meter.usage;
    let isRead = true;
    const delivered = (goesOn: boolean): boolean => (isRead = goesOn);
    const cut = (usage: Usage): false => cutByCredit(meter, usage, before);
    const pass = (usage: Usage): boolean | Promise<boolean> => {
      before = usage;
      if (meter.pass.length === 0) return true;
      const goesOn = deliver(meter.pass);
      return typeof goesOn === 'boolean' ? delivered(goesOn) : goesOn.then(delivered);
    };
    // For every batch, mostly without a promise: with many streams one promise costs as much as everything else here.
    const take = (batch: GenerationBatch): boolean | Promise<boolean> => {
      // One clock reading per batch (0.2 µs with the bucket): the gap to the one before, and the engine's last word.
      const nowMs = performance.now();
      if (heardMs > 0) gaps.observe((nowMs - heardMs) / 1_000);
      heardMs = nowMs;
      const usage = meter.read(batch);
      const covered = hold.cover(usage);
      if (covered === true) return pass(usage);
      if (covered === false) return cut(usage);
      return covered.then((isCovered) => (isCovered ? pass(usage) : cut(usage)));
    };
    try {
      await dispatch(order, services.poolOf(order.model.id), trace, signal, take, () => meter.usage);
      engineMs = performance.now() - askedMs;
      // The reader has left; what was delivered until now is charged (see below).
      if (!isRead) return;
      if (!meter.complete) throw endedEarly();
      const receipt = receiptOf(order, meter, trace, meter.cutByCredit ? 'credit' : 'finished', null);
      const closing = meter.closing();
      if (services.settling !== undefined) await services.settling(closing);
      const settling = spans?.step('settle');
      await hold.settle(receipt);
      settling?.end();
      settled = receipt;
      learnLength(order, receipt, services.poolOf(order.model.id));
      await deliver(closing);
    } catch (error) {
      engineMs ??= performance.now() - askedMs;
      if (signal.aborted) {
        const reason = signal.reason as CancelReason;
        const reported = errorOfCancel(reason, order.model.id);
        if (!isClientGone(reason)) errorCode = reported.code;
        throw reported;
      }
      // The first cause wins: a client that leaves after a failure does not pay for it.
      ending = hold.lost ? 'lost' : 'failed';
      errorCode = errorCodeOf(error);
      throw error;
    } finally {
      if (settled === undefined) {
        // Cancelled, or a reader that stopped before the end, which is a client that left.
        ending ??= signal.aborted ? endingOfCancel(signal.reason as CancelReason) : 'client_left';
        settled = await unfinished(receiptOf(order, meter, trace, ending, errorCode), order, services, meter, trace);
        const settling = spans?.step('settle');
        await hold.close(settled);
        settling?.end();
      }
      spent = spentBy(settled);
      services.ended(settled, fetchMs + (engineMs ?? heardMs - askedMs));
    }
  } finally {
    images?.release();
    admitted.end(spent);
  }
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
async function unfinished(
  receipt: Receipt,
  order: Order,
  services: RunServices,
  meter: Meter,
  trace: DispatchTrace,
): Promise<Receipt> {
  if (meter.started) return receipt;
  const nothing = { ...receipt, promptTokens: 0, cachedTokens: 0, completionTokens: 0, reasoningTokens: 0 };
  const left = receipt.ending === 'client_left' || receipt.ending === 'reader_stalled' || receipt.ending === 'revoked';
  // Only when an engine has been called.
  if (!left || trace.attempts.length === 0) return nothing;
  return {
    ...receipt,
    promptTokens: order.promptCounted
      ? order.promptTokensMax
      : ((await counted(order, services, order.imageTokens.likely)) ?? order.promptTokensLikely),
    counted: true,
  };
}

/** How long an engine may take to count; after that our own estimate is used. */
const countTimeoutMs = 2_000;

async function counted(order: Order, services: RunServices, imageTokens: number): Promise<number | undefined> {
  const { backends } = services.poolOf(order.model.id);
  const count = await countPrompt(order.request, backends, AbortSignal.timeout(countTimeoutMs));
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
const attemptsOf = ({ attempts }: DispatchTrace): Pick<Receipt, 'attempts'> =>
  attempts.length > 1 || (attempts[0]?.chosen ?? null) !== null ? { attempts } : {};

function receiptOf(
  order: Order,
  meter: Meter,
  trace: DispatchTrace,
  ending: Ending,
  errorCode: string | null,
): Receipt {
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
    backend: trace.attempts.at(-1)?.backend ?? null,
    firstTokenMs: meter.firstTokenMs,
    totalMs,
    tags: order.tags.length === 0 ? null : JSON.stringify(order.tags),
    plan: order.plan,
    keyBudget: order.plan === null ? (order.key.budget?.per ?? null) : null,
    accountBudget: order.plan === null ? (order.account.budget?.per ?? null) : null,
    memberBudget: order.plan === null ? memberBalanceOf(order) : null,
    zdr: order.zdr,
    ...attemptsOf(trace),
    // The hold fills these in.
    costMicrocents: 0n,
    unchargedMicrocents: 0n,
    holdMicrocents: 0n,
  };
}

function memberBalanceOf({ key: { member }, startedAt }: Order): string | null {
  return member === undefined ? null : balanceAt(member.id, member.budget.per, startedAt).id;
}
