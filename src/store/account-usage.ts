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
export const noEnd = Date.UTC(9999, 0);

/** Microcents of the requests that ended between two times; the first is in, the second out. */
export async function usageCost(db: Db, accountId: string, from: number, to = noEnd): Promise<bigint> {
  if (from >= to) return 0n;
  const places = await placesOf(db, accountId, await timeZoneOf(db, accountId));
  const [sum] = await sumBuckets(db, { accountId }, { bounds: [from, to], by: [], places });
  return sum?.cost ?? 0n;
}
