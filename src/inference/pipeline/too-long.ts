import type { Catalog } from '../../catalog/catalog.ts';
import type { Model } from '../../catalog/model.ts';
import type { EngineRequest } from '../../generation/request.ts';
import type { ApiError } from '../../platform/errors.ts';
import { usableModels } from './access.ts';
import type { RequestFacts } from './request-facts.ts';
import { contextLengthExceeded, inputTooLong, readingTimeExceeded, retryTokens } from './fit.ts';
import type { LengthRefusal } from './length-refusal.ts';
import type { Order } from './order.ts';

/** §4.2.1(4): returns the one retry after a backend refused for length; `undefined` if there is none. */
export function retryWithinContext(
  { route, model, request }: Order,
  refusal: LengthRefusal,
): EngineRequest | undefined {
  const maxTokens = route.retryWithoutMaxTokens ? retryTokens(model, refusal) : undefined;
  return maxTokens === undefined ? undefined : { ...request, maxTokens, reasoningRoomTokens: 0 };
}

/** Returns the client's error when the backend finally refuses for length. The backend's window counts, not the card's. */
export function tooLong(order: Order, refusal: LengthRefusal): ApiError {
  const { model, catalog, request, at } = order;
  const { promptTokens, windowTokens, readingSeconds } = refusal;
  const larger = largerModels(model, order, catalog);
  if (request.task !== undefined) return inputTooLong(model, promptTokens, larger, longestOf(order), windowTokens);
  if (readingSeconds !== undefined) return readingTimeExceeded(model, refusal, larger, at.prompt);
  return contextLengthExceeded(model, promptTokens, request.maxTokens, larger, at.prompt, windowTokens);
}

/** What the caller may use instead, next larger window first (specification §7.2). */
export const largerModels = (model: Model, caller: RequestFacts, catalog: Catalog): readonly Model[] =>
  usableModels(caller, catalog, caller.startedAt)
    .filter(({ capabilities: { zdr } }) => zdr || !caller.zdr)
    .filter((candidate) => candidate.contextLength > model.contextLength)
    .sort((a, b) => a.contextLength - b.contextLength)
    .slice(0, 5);

/** Returns the field of a task's longest prompt: a backend that refuses one does not say which. */
function longestOf({ request: { prompt }, at }: Order): string {
  if (prompt.type === 'messages') return at.prompt;
  const lengths = prompt.prompts.map(({ length }) => length);
  return at.promptAt?.(lengths.indexOf(Math.max(...lengths))) ?? at.prompt;
}
