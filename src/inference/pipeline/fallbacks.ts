import { ApiError, errorCodeOf } from '../../platform/errors.ts';
import type { UsageAttempt, UsageFallback } from '../../store/schema/tables.ts';
import { mayFailOver } from './dispatch.ts';
import type { DispatchTrace } from './dispatch.ts';
import type { NextOrders, Order } from './order.ts';

/**
 * The models that may serve a request when its own cannot (docs/decisions/040-another-model.md): those that the operator has listed, each
 * tried once. An order for one of them is created only when needed.
 */
export class Fallbacks implements NextOrders {
  readonly #models: Iterator<string>;
  readonly #orderFor: (model: string, instead: Order) => Promise<Order>;

  /** `orderFor` throws `ApiError` if the model cannot serve this request for this caller. */
  constructor(models: readonly string[], orderFor: (model: string, instead: Order) => Promise<Order>) {
    this.#models = models.values();
    this.#orderFor = orderFor;
  }

  async next(instead: Order, steps: UsageFallback[]): Promise<Order | undefined> {
    for (let next = this.#models.next(); next.done !== true; next = this.#models.next()) {
      try {
        return await this.#orderFor(next.value, instead);
      } catch (error) {
        // The request or its caller does not fit that model, which is not a failure.
        if (!(error instanceof ApiError)) throw error;
        steps.push({ model: next.value, reason: error.code, isSkipped: true });
      }
    }
    return undefined;
  }
}

/** What happened to a request before the model that serves it now. */
export class Fallen {
  readonly steps: UsageFallback[] = [];
  /** Attempts at backends of the models that failed. */
  readonly attempts: UsageAttempt[] = [];
  readonly firstOrder: Order;
  /** The error for the client if no model serves it. */
  readonly firstError: unknown;

  constructor(firstOrder: Order, firstError: unknown) {
    this.firstOrder = firstOrder;
    this.firstError = firstError;
  }

  /** Records that the order's model has failed the request. */
  add({ model }: Order, error: unknown, { attempts }: DispatchTrace): void {
    this.steps.push({ model: model.id, reason: errorCodeOf(error), isSkipped: false });
    for (const attempt of attempts) this.attempts.push({ ...attempt, model: model.id });
  }
}

/**
 * Whether another model may serve the request: no content has been sent, and the request is not at fault. If a fallback refuses what the
 * first model took, because its server counts longer prompts, the next one is tried.
 */
export function mayFallBack(
  {
    order,
    trace,
    fallen,
  }: { readonly order: Order; readonly trace: DispatchTrace; readonly fallen: Fallen | undefined },
  error: unknown,
): boolean {
  if ((fallen?.firstOrder ?? order).fallbacks === undefined || trace.hasContent) return false;
  return fallen === undefined ? mayFailOver(error) : error instanceof ApiError;
}
