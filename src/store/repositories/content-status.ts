import type { Kysely } from 'kysely';
import type { Database } from '../database.ts';
import { keptSinceOf, prunedRequests } from '../retention/retention.ts';
import { migrationsThatRan } from '../migrations/migrate.ts';

export interface ContentStatus {
  readonly migrations: readonly string[];
  readonly accounts: number;
  readonly liveKeys: number;
  readonly transfers: number;
  readonly requests: number;
  readonly openRequests: number;
  /** The time since which requests have details, ms since 1970 (0: all have), and how many of the older ones no longer have a row. */
  readonly keptSince: number;
  readonly prunedRequests: number;
  readonly lastEndedAt: number | undefined;
  /** Ids of the secrets that the live keys were hashed with. */
  readonly pepperIds: readonly string[];
}

/** Counts each kind of content in a database. */
export async function contentStatus(db: Kysely<Database>): Promise<ContentStatus> {
  const count = async (
    table: 'account' | 'api_key' | 'transfer' | 'usage' | 'open_request',
    where?: [string, unknown],
  ) => {
    let query = db.selectFrom(table).select((is) => is.fn.countAll<bigint>().as('count'));
    if (where !== undefined) query = query.where(db.dynamic.ref(where[0]), '=', where[1]);
    return Number((await query.executeTakeFirstOrThrow()).count);
  };
  const newest = await db
    .selectFrom('usage')
    .select('ended_at')
    .orderBy('request_id', 'desc')
    .limit(1)
    .executeTakeFirst();
  return {
    migrations: await migrationsThatRan(db),
    accounts: await count('account', ['kind', 0n]),
    liveKeys: await count('api_key', ['status', 'active']),
    transfers: await count('transfer'),
    requests: await count('usage'),
    openRequests: await count('open_request'),
    keptSince: await keptSinceOf(db),
    prunedRequests: await prunedRequests(db),
    lastEndedAt: newest === undefined ? undefined : Number(newest.ended_at),
    pepperIds: await livePepperIds(db),
  };
}

/** Ids of the secrets that the live keys were hashed with. */
export async function livePepperIds(db: Kysely<Database>): Promise<readonly string[]> {
  const rows = await db.selectFrom('api_key').select('pepper_id').distinct().where('status', '=', 'active').execute();
  return rows.map((row) => row.pepper_id);
}
