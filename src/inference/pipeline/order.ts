import type { Bill } from '../../billing/bill.ts';
import type { Catalog } from '../../catalog/catalog.ts';
import type { Model } from '../../catalog/model.ts';
import type { AnswerFormat } from '../dialects/dialect.ts';
import type { EngineRequest, FieldPaths, ImageTokens } from '../../generation/request.ts';
import type { RequestFacts } from './request-facts.ts';
import type { InferenceRoute } from './route.ts';
import type { UsageFallback } from '../../store/schema/tables.ts';
import type { StopSignal } from '../../platform/stop-signal.ts';

/**
 * A request that has passed every check that is cheap, and needs a slot, credit and a backend: passed from `placeOrder` to `run`.
 * It is also the bill that its hold is made for. Plain data: what can be derived from it is not in it.
 */
export interface Order extends RequestFacts, Omit<Bill, keyof RequestFacts> {
  readonly model: Model;
  readonly route: InferenceRoute;
  /** Where the model is from. */
  readonly catalog: Catalog;
  /** How the answer is encoded. */
  readonly format: AnswerFormat;
  readonly stream: boolean;
  /** The client's labels, for dedicated models; empty elsewhere. */
  readonly tags: readonly string[];
  readonly request: EngineRequest;
  /** The client's names for its fields, for errors of engines. */
  readonly at: FieldPaths;
  /** How many choices the answer has: prompts × n. */
  readonly choices: number;
  /** `promptTokensMax` is exact. */
  readonly promptCounted: boolean;
  /** Charged for the prompt when its length is never reported: on the low side; exact when `promptCounted`. */
  readonly promptTokensLikely: number;
  /** Most tokens that any tokenizer and template could make of the prompt: a backend that reports more is not believed. */
  readonly promptTokensPossible: number;
  /** The answer's limit is what the window leaves. */
  readonly limitedByContext?: boolean;
  /** The part of both figures that is images. A prompt with images is never `promptCounted`: only the model counts them. */
  readonly imageTokens: ImageTokens;
  /** What is left to do before its hold; absent for most. */
  readonly preparation?: Preparation | undefined;
  /** The models that may serve it when its own cannot; absent: there are none. */
  readonly fallbacks?: NextOrders | undefined;
}

/**
 * Work that only who may have it and can pay for it is given: a form is compiled, files are read, a prompt is counted. Until then
 * the order's prompt is without its files, and its lengths are guesses for limits (docs/decisions/052-work-behind-limits.md).
 */
export interface Preparation {
  /** The order with which the request goes on; called once. Rejects with `ApiError`, or with the reason of the signal. */
  run(signal: StopSignal): Promise<Order>;
}

/** Orders for the models that may serve a request when its own cannot, one after the other. */
export interface NextOrders {
  /** The order for the next model that can take the request; `undefined`: there is none. Those that cannot are added to `steps`. */
  next(instead: Order, steps: UsageFallback[]): Promise<Order | undefined>;
}
