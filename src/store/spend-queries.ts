/** What was spent since a time, by whoever spends: what alerts and budgets of people and labels are judged by. */
import type { Kysely } from 'kysely';
import type { Database } from './database.ts';
import { sumUsage, sumUsageByTag } from './queries.ts';

export interface SpendRequest {
  readonly accountId: string;
  /** Milliseconds since 1970, of the end of requests: `from` is in, `to` is out. */
  readonly from: number;
  readonly to: number;
  /** `user`: by all keys of a person. `id` is left out for the whole account. */
  readonly by: 'account' | 'key' | 'user' | 'tag';
  readonly id?: string;
}

/** Microcents that requests were charged; refunds are not taken off. */
export async function spendSince(db: Kysely<Database>, request: SpendRequest): Promise<bigint> {
  const { accountId, from, to, by, id } = request;
  if (from >= to) return 0n;
  const span = { accountId, from, to };
  switch (by) {
    case 'account':
      return total(await sumUsage(db, span));
    case 'key':
      return total(await sumUsage(db, { ...span, keyId: id ?? '' }));
    case 'user': {
      const keys = await db
        .selectFrom('api_key')
        .select('id')
        .where('account_id', '=', accountId)
        .where('user_id', '=', id ?? '')
        .execute();
      const own = new Set(keys.map((key) => key.id));
      return total((await sumUsage(db, { ...span, by: 'key' })).filter(({ group }) => own.has(group)));
    }
    case 'tag':
      return total((await sumUsageByTag(db, span)).filter(({ group }) => group === id));
  }
}

const total = (sums: readonly { readonly costMicrocents: bigint }[]): bigint =>
  sums.reduce((sum, { costMicrocents }) => sum + costMicrocents, 0n);
