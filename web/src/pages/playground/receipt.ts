import { get } from '../../api/use-api.ts';
import type { Row } from '../../api/use-api.ts';

export type Receipt = Row<'/v1/generations'>;

/** A charge is durable before the end of an answer; that of a request that was stopped, a moment later. */
const waitsMs = [0, 200, 500, 1000, 2000, 4000, 8000];
/** Newer ones that there may be meanwhile. */
const newest = 50;

/** The receipt of a request; undefined: this person cannot see it, because the key is of another account for example. */
export async function receiptOf(requestId: string): Promise<Receipt | undefined> {
  for (const waitMs of waitsMs) {
    await new Promise((resolve) => setTimeout(resolve, waitMs));
    const list = await get('/v1/generations', { query: { limit: newest } }).catch(() => undefined);
    const found = list?.data.find(({ request_id: id }) => id === requestId);
    if (found !== undefined) return found;
  }
  return undefined;
}
