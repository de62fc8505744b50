import { useGet } from '../api/use-api.ts';
import type { Row } from '../api/use-api.ts';

type Model = Row<'/v1/models/cards'>;

/** Whether the model answers people, so that one can talk with it. */
export const isConversational = ({ endpoints }: Pick<Model, 'endpoints'>): boolean =>
  endpoints.some(({ path }) => path === '/v1/chat/completions' || path === '/v1/messages' || path === '/v1/responses');

/**
 * The first model that can be talked with: what examples of code name. `among`: only these ids; null or left out, all that the account may
 * use. undefined: not known yet, or there is none.
 */
export function useChatModel(among?: readonly string[] | null): string | undefined {
  const { data } = useGet('/v1/models/cards');
  const model = data?.data.find((card) => isConversational(card) && (among?.includes(card.model) ?? true));
  return model?.model ?? among?.[0];
}
