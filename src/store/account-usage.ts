/** What the usage of one account adds up to, read from as few rows as its roll-ups allow. */
import type { Kysely } from 'kysely';
import type { Database } from './database.ts';
import { daysOf, tagsSince } from './roll-ups.ts';
import { closedBefore } from './usage-expressions.ts';
import type { SumPlaces } from './usage-segments.ts';
import { sumBuckets } from './usage-sums.ts';

type Db = Kysely<Database>;

/** UTC, where there is no such account. */
export async function timeZoneOf(db: Db, accountId: string): Promise<string> {
  const row = await db.selectFrom('account').select('time_zone').where('id', '=', accountId).executeTakeFirst();
  return row?.time_zone ?? 'UTC';
}

export async function placesOf(db: Db, accountId: string, timeZone: string): Promise<SumPlaces> {
  return {
    closed: await closedBefore(db),
    tagsSince: await tagsSince(db),
    days: await daysOf(db, accountId, timeZone),
  };
}

/** Later than the end of any request, and still a date. */
const noEnd = Date.UTC(9999, 0);

/** Microcents of the requests that ended between two times; the first is in, the second out, or left out. */
export type CostBetween = (from: number, to?: number) => Promise<bigint>;

/** What an account was charged, as often as is asked in one moment. */
export async function costsOf(moment: Db, accountId: string): Promise<CostBetween> {
  const places = await placesOf(moment, accountId, await timeZoneOf(moment, accountId));
  return async (from, to = noEnd) => {
    if (from >= to) return 0n;
    const [sum] = await sumBuckets(moment, { accountId }, { bounds: [from, to], by: [], places });
    return sum?.cost ?? 0n;
  };
}
