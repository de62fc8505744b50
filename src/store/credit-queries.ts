/** What an account has, holds and has spent, and how it came to that. */
import { sql, type Kysely } from 'kysely';
import type { Database } from './database.ts';
import { leased } from './queries.ts';

type Db = Kysely<Database>;

export interface Held {
  readonly microcents: bigint;
  readonly requests: number;
}

/**
 * What requests hold that are running now, in any process on these books, and have been for a quarter of a second:
 * younger ones are in no table (money.md, "Durability"). It is what they held when they were listed, without extensions.
 */
export async function heldOf(db: Db, request: { readonly accountId: string }): Promise<Held> {
  const row = await db
    .selectFrom('open_request')
    .select((of) => [of.fn.sum<bigint | null>('hold').as('hold'), of.fn.countAll<bigint>().as('requests')])
    .where('account_id', '=', request.accountId)
    .executeTakeFirstOrThrow();
  return { microcents: row.hold ?? 0n, requests: Number(row.requests) };
}
