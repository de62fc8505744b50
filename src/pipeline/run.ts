import type { Billing } from '../billing/billing.ts';
import type { Receipt } from '../billing/hold.ts';
import { costMicrocents } from '../catalog/pricing.ts';
import { ApiError } from '../errors.ts';
import type { GenerationStream, Usage } from '../generation/event.ts';
import type { Concurrency } from '../limits/concurrency.ts';
import type { Ending } from '../store/ledger.ts';
import { endingOfCancel, errorOfCancel } from './cancellation.ts';
import type { CancelReason } from './cancellation.ts';
import { countPrompt } from './count.ts';
import { dispatch } from './dispatch.ts';
import type { Backend, DispatchTrace } from './dispatch.ts';
import { Meter } from './meter.ts';
import type { Order } from './order.ts';

export interface RunServices {
  readonly concurrency: Concurrency;
  readonly billing: Billing;
  backendsOf(modelId: string): readonly Backend[];
  /** Called once for an order that had a hold, when its money is settled, with what it was charged. */
  ended(receipt: Receipt): void;
}

/**
 * Acquires a slot, credit and a backend, and gives everything back on every way a request can end: by returning, by an
 * error, by a cancellation through `signal` (whose reason is a `CancelReason`), or by a reader that stops reading.
 *
 * The last batch, with the final usage, is yielded only after the charge is durable (reliability I4).
 */
export async function* run(order: Order, services: RunServices, signal: AbortSignal): GenerationStream {
  const slot = services.concurrency.admit(order.account.id); // 429
  try {
    const hold = await services.billing.hold(billOf(order, services)); // 402
    const meter = new Meter(order);
    const trace: DispatchTrace = { backend: null, dispatched: false };
    let settled: Receipt | undefined;
    let ending: Ending | undefined;
    let errorCode: string | null = null;
    try {
      let before: Usage = meter.usage;
      for await (const batch of dispatch(order, services.backendsOf(order.model.id), trace, signal)) {
        const usage = meter.read(batch);
        const covered = hold.cover(usage);
        if (covered !== true && !(await covered)) {
          meter.cut('credit', {
            ...usage,
            completionTokens: before.completionTokens,
            reasoningTokens: before.reasoningTokens,
          });
          break;
        }
        before = usage;
        if (meter.pass.length > 0) yield meter.pass;
      }
      if (!meter.complete)
        throw new ApiError('backend_http_error', 'The backend ended its answer without finishing it.');
      const receipt = receiptOf(order, meter, trace, meter.cutByCredit ? 'credit' : 'finished', null);
      await hold.settle(receipt);
      settled = receipt;
      yield meter.closing();
    } catch (error) {
      if (signal.aborted) {
        const reason = signal.reason as CancelReason;
        const told = errorOfCancel(reason, order.model.id);
        // A client that is gone is told nothing.
        if (reason !== 'client-left' && reason !== 'reader-stalled') errorCode = told.code;
        throw told;
      }
      // The first cause wins: a client that leaves after a failure does not pay for it.
      ending = hold.lost ? 'lost' : 'failed';
      errorCode = error instanceof ApiError ? error.code : 'internal_error';
      throw error;
    } finally {
      if (settled === undefined) {
        // Cancelled, or a reader that stopped before the end, which is a client that left.
        ending ??= signal.aborted ? endingOfCancel(signal.reason as CancelReason) : 'client_left';
        settled = await unfinished(receiptOf(order, meter, trace, ending, errorCode), order, services, meter, trace);
        await hold.close(settled);
      }
      services.ended(settled);
    }
  } finally {
    slot.release();
  }
}

/** A client that left before the backend told the prompt's length pays the counted input, and nothing before dispatch. */
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
  if (!left || !trace.dispatched) return nothing;
  return {
    ...receipt,
    promptTokens: order.promptCounted
      ? order.promptTokensMax
      : ((await counted(order, services)) ?? order.promptTokensLikely),
    counted: true,
  };
}

/** How long an engine may take to count; one that does not answer leaves us with our own estimate. */
const countTimeoutMs = 2_000;

async function counted(order: Order, services: RunServices): Promise<number | undefined> {
  const backends = services.backendsOf(order.model.id);
  const count = await countPrompt(order.request, backends, AbortSignal.timeout(countTimeoutMs));
  return count === 'too-long' ? undefined : count;
}

function billOf(order: Order, services: RunServices) {
  return {
    requestId: order.id,
    accountId: order.account.id,
    keyId: order.key.id,
    modelId: order.model.id,
    startedAt: order.startedAt,
    promptTokens: order.promptTokensMax,
    completionTokensMax: order.request.maxTokens * order.choices,
    cost: (usage: Usage) => costMicrocents(usage, order.prices),
    countPrompt: async () => (order.promptCounted ? undefined : await counted(order, services)),
  };
}

function receiptOf(
  order: Order,
  meter: Meter,
  trace: DispatchTrace,
  ending: Ending,
  errorCode: string | null,
): Receipt {
  const { promptTokens, cachedTokens, completionTokens, reasoningTokens } = meter.usage;
  const endedAt = Date.now();
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
    endedAt,
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
    backend: trace.backend,
    firstTokenMs: meter.firstTokenMs,
    totalMs: endedAt - order.startedAt,
    tags: null,
    // The hold fills these in.
    costMicrocents: 0n,
    unchargedMicrocents: 0n,
    holdMicrocents: 0n,
  };
}
