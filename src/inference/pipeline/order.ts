import type { Bill } from '../../billing/bill.ts';
import type { Catalog } from '../../catalog/catalog.ts';
import type { Model } from '../../catalog/model.ts';
import type { AnswerFormat } from '../dialects/dialect.ts';
import type { Tier } from '../../generation/tier.ts';
import type { EngineRequest, FieldPaths, ImageTokens } from '../../generation/request.ts';
import type { RequestFacts } from './request-facts.ts';
import type { InferenceRoute } from './route.ts';
import type { Warnings } from './warnings.ts';
import type { UsageFallback } from '../../store/schema/tables.ts';
import type { StopSignal } from '../../platform/stop-signal.ts';

/**
 * A request that has passed every cheap check, and needs a slot, credit and a backend: passed from `placeOrder` to `run`. It is also the
 * bill that its hold is made for. Plain data, without derived values.
 */
export interface Order extends RequestFacts, Omit<Bill, keyof RequestFacts> {
  readonly model: Model;
  readonly route: InferenceRoute;
  /** The catalog that the model comes from. */
  readonly catalog: Catalog;
  /** How the answer is encoded. */
  readonly format: AnswerFormat;
  readonly stream: boolean;
  /** Its place in the queue of its model, and what it costs. */
  readonly tier: Tier;
  /** What its prices are of the usual ones because of that, in ten-thousandths; undefined: all of them. */
  readonly priceMultiple: number | undefined;
  /** The body names a tier, so the answer does. */
  readonly tierAsked: boolean;
  /** The client's labels, for dedicated models; empty elsewhere. */
  readonly tags: readonly string[];
  readonly request: EngineRequest;
  /** The client's names for its fields, for errors of engines. */
  readonly at: FieldPaths;
  /** How many choices the answer has: prompts × n. */
  readonly choices: number;
  /** Whether `promptTokensMax` is exact. */
  readonly promptCounted: boolean;
  /** The charge for the prompt if its length is never reported: a low estimate; exact if `promptCounted`. */
  readonly promptTokensLikely: number;
  /** Most tokens that any tokenizer and template could make of the prompt: a backend's larger figure is not trusted. */
  readonly promptTokensPossible: number;
  /** Whether the answer's limit is the rest of the window. */
  readonly limitedByContext?: boolean;
  /** The images' part of both figures. A prompt with images is never `promptCounted`: only the model counts them. */
  readonly imageTokens: ImageTokens;
  /** What it asked for and does not get. */
  readonly warnings?: Warnings;
  /** Work left to do before the hold; absent for most. */
  readonly preparation?: Preparation | undefined;
  /** The models that may serve it if its own cannot, if there are any. */
  readonly fallbacks?: NextOrders | undefined;
}

/**
 * Work done only for callers that are allowed and can pay: compiling a form, reading files, counting a prompt. Until then the order's
 * prompt lacks its files, and its lengths are estimates for limits (docs/decisions/052-work-behind-limits.md).
 */
export interface Preparation {
  /** Returns the order with which the request continues; called once. Rejects with `ApiError`, or with the reason of the signal. */
  run(signal: StopSignal): Promise<Order>;
}

/** Orders for the models that may serve a request if its own cannot, one after the other. */
export interface NextOrders {
  /** Returns the order for the next model that can take the request, if any. Models that cannot are added to `steps`. */
  next(instead: Order, steps: UsageFallback[]): Promise<Order | undefined>;
}
