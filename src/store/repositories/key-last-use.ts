import { sql, type Kysely } from 'kysely';
import type { Database } from '../database.ts';
import { inOneMoment } from '../one-moment.ts';
import { hourMs, nextDay } from '../../platform/calendar/time-zone.ts';
import { placesOf, timeZoneOf } from '../reports/account-usage.ts';
import { inMonthsOf } from '../reports/usage-months.ts';
import { rollUpRange } from '../reports/usage-range.ts';

/**
 * When each of these keys of an account last ended a request: to the millisecond since the hour before the last one with requests, and as
 * the end of its hour for earlier ones. Unused keys are omitted. Hours are located through the account's summed-up days, so that an idle
 * key costs a query of its days rather than of all hours ever recorded.
 */
export async function lastUseOfKeys(
  db: Kysely<Database>,
  request: { readonly accountId: string; readonly keyIds: readonly string[] },
): Promise<readonly { readonly keyId: string; readonly at: number }[]> {
  const { accountId, keyIds } = request;
  if (keyIds.length === 0) return [];
  return await inOneMoment(db, async (moment) => {
    const { closed, days } = await placesOf(moment, accountId, await timeZoneOf(moment, accountId));
    const last = new Map<string, number>();
    const rest = (): readonly string[] => keyIds.filter((keyId) => !last.has(keyId));
    const rows = await moment
      .selectFrom('usage')
      .select(['key_id', sql<bigint>`max(ended_at)`.as('at')])
      .where('account_id', '=', accountId)
      .where('key_id', 'in', keyIds)
      .where('ended_at', '>=', BigInt(closed))
      .where(inMonthsOf(moment, { from: closed }))
      .groupBy('key_id')
      .execute();
    for (const { key_id, at } of rows) last.set(key_id, Number(at));
    const until = Math.min(days?.until ?? 0, closed);
    // The hour in which a day begins may itself begin before the day.
    const before = hourMs - 1;
    const hours = { accountId, keyIds: rest(), from: until - before, to: closed };
    for (const { key_id, at } of await newest(moment, 'hour', hours)) last.set(key_id, Number(at) + hourMs - 1);
    for (const { key_id, at } of await newest(moment, 'day', { accountId, keyIds: rest(), from: 0, to: until })) {
      const day = Number(at);
      const span = { from: day - before, to: Math.min(nextDay(days!.timeZone, day), closed) };
      const [hour] = await newest(moment, 'hour', { accountId, keyIds: [key_id], ...span });
      if (hour !== undefined) last.set(key_id, Number(hour.at) + hourMs - 1);
    }
    return keyIds.flatMap((keyId) => (last.has(keyId) ? [{ keyId, at: last.get(keyId)! }] : []));
  });
}

/** The newest hour or day with usage in a span, by key. */
async function newest(
  db: Kysely<Database>,
  time: 'hour' | 'day',
  request: {
    readonly accountId: string;
    readonly keyIds: readonly string[];
    readonly from: number;
    readonly to: number;
  },
): Promise<readonly { readonly key_id: string; readonly at: bigint }[]> {
  const { accountId, keyIds, from, to } = request;
  if (keyIds.length === 0 || from >= to) return [];
  return (await (db as Kysely<Record<string, Record<string, never>>>)
    .selectFrom(`usage_${time}`)
    .select(['key_id', sql<bigint>`max(${sql.ref(time)})`.as('at')] as never)
    .where(rollUpRange({ accountId, tag: undefined, time, from, to }))
    .where('key_id', 'in', keyIds as never)
    .groupBy('key_id')
    .execute()) as never;
}
