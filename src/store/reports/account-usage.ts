/** Usage totals of one account, read from as few rows as its roll-ups allow. */
import type { Kysely } from 'kysely';
import type { Database } from '../database.ts';
import { keptSinceOf } from '../retention/retention.ts';
import { daysOf } from './roll-ups.ts';
import { closedBefore } from './usage-expressions.ts';
import type { SumPlaces } from './usage-segments.ts';
import { sumBuckets } from './usage-sums.ts';

type Db = Kysely<Database>;

/** Returns the account's time zone, or UTC if there is no such account. */
export async function timeZoneOf(db: Db, accountId: string): Promise<string> {
  const row = await db.selectFrom('account').select('time_zone').where('id', '=', accountId).executeTakeFirst();
  return row?.time_zone ?? 'UTC';
}

export async function placesOf(db: Db, accountId: string, timeZone: string): Promise<SumPlaces> {
  return {
    closed: await closedBefore(db),
    tiersClosed: await closedBefore(db, 'usage_tier_hour'),
    days: await daysOf(db, accountId, timeZone),
    keptSince: await keptSinceOf(db),
  };
}

/** Later than the end of any request, but still a valid date. */
const noEnd = Date.UTC(9999, 0);

/** What an account was charged since each of several times, in microcents: for requests that ended then or later. */
export async function costsSince(moment: Db, accountId: string, times: readonly number[]): Promise<CostSince> {
  const places = await placesOf(moment, accountId, await timeZoneOf(moment, accountId));
  const bounds = [...new Set(times), noEnd].sort((one, other) => one - other);
  const sums = await sumBuckets(moment, { accountId }, { bounds, by: [], places });
  const costs = new Map(sums.map(({ bucket, cost }) => [bucket, cost]));
  const since = new Map<number, bigint>();
  let total = 0n;
  for (let index = bounds.length - 1; index >= 0; index--) {
    total += costs.get(index) ?? 0n;
    since.set(bounds[index]!, total);
  }
  return (at) => since.get(at)!;
}

/** Takes one of the requested times. */
export type CostSince = (at: number) => bigint;

/** When the first request of an account ended, or the hour of that end. */
export async function firstEnd(db: Db, accountId: string): Promise<number | undefined> {
  const row = await db
    .selectFrom('usage')
    .select('ended_at as at')
    .where('account_id', '=', accountId)
    .orderBy('ended_at')
    .limit(1)
    .executeTakeFirst();
  // Its row may have been removed.
  const hour = await db
    .selectFrom('usage_hour')
    .select('hour as at')
    .where('account_id', '=', accountId)
    .orderBy('hour')
    .limit(1)
    .executeTakeFirst();
  const times = [row, hour].flatMap((one) => (one === undefined ? [] : [Number(one.at)]));
  return times.length === 0 ? undefined : Math.min(...times);
}
