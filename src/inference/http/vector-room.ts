import type { GenerationBatch, TakeBatch } from '../../generation/event.ts';
import { ApiError } from '../../platform/errors.ts';
import type { Order } from '../pipeline/order.ts';
import { copiesWhileParsed, largestBody, type BodyBudget, type BodyShare } from './body-budget.ts';

/** Bytes of memory per number of a vector: as text from the backend, as a number, and as printed. */
const bytesPerNumber = 48;
/** The assumed dimensions of a model that has not answered yet. */
const dimensionsUnknown = 1_024;

/**
 * Reserves memory for the answers of embedding models, which are complete before they are sent, and larger than their requests: two
 * thousand inputs of a word each become millions of numbers. Their length is known once a model has answered.
 */
export class VectorRoom {
  readonly #dimensions = new Map<string, number>();

  /** Takes the memory that the answer to an order needs beyond its body; throws 413 if that is more than one request can have. */
  take({ model, request: { prompt, task } }: Order, share: BodyShare, budget: BodyBudget): void {
    if (task?.type !== 'embed' || prompt.type === 'messages') return;
    const { length } = prompt.prompts;
    const bytesEach = (this.#dimensions.get(model.id) ?? dimensionsUnknown) * bytesPerNumber;
    const lengthMax = Math.floor((largestBody(budget.bytesMax) * copiesWhileParsed) / bytesEach);
    if (length > lengthMax) {
      const message = `The vectors of ${length} inputs need more memory than there is; send at most ${lengthMax} at once.`;
      throw new ApiError('request_body_too_large', message, { param: task.field });
    }
    share.take(length * bytesEach);
  }

  learn({ model, request: { task } }: Order, batch: GenerationBatch): void {
    if (task?.type !== 'embed' || task.dimensions !== undefined) return;
    for (const event of batch) {
      if (event.type !== 'vector') continue;
      this.#dimensions.set(model.id, event.vector.length);
      return;
    }
  }
}

/** Learns from tasks only: other batches are passed on unread. */
export const learning = (order: Order, room: VectorRoom, deliver: TakeBatch): TakeBatch =>
  order.request.task === undefined ? deliver : (batch) => (room.learn(order, batch), deliver(batch));
