/** Keys as the account host queries them. */
import { sql, type Kysely } from 'kysely';
import type { AccountStatus, Database } from '../database.ts';
import { placesOf, timeZoneOf } from '../reports/account-usage.ts';
import { inOneMoment } from '../one-moment.ts';
import { toKey } from './queries.ts';
import type { ApiKey } from './queries.ts';
import { hourMs, nextDay } from '../../platform/calendar/time-zone.ts';
import { inMonthsOf } from '../reports/usage-months.ts';
import { rollUpRange } from '../reports/usage-range.ts';

type Db = Kysely<Database>;

/** A live key, as the account host needs it. */
export interface PresentedKey {
  readonly id: string;
  readonly accountId: string;
  readonly name: string;
  /** null: an inference key, which manages nothing. */
  readonly role: string | null;
  readonly isOperator: boolean;
  /** JSON; see accounts/key-limits.ts. */
  readonly limits: string | null;
  readonly accountStatus: AccountStatus;
}

/** The live key with this hash, also by a previous secret that a rotation has left valid for a while. */
export async function findPresentedKey(
  db: Db,
  { hash, at }: { readonly hash: Uint8Array; readonly at: number },
): Promise<PresentedKey | undefined> {
  const row = await db
    .selectFrom('api_key')
    .innerJoin('account', 'account.id', 'api_key.account_id')
    .select(['api_key.id', 'api_key.account_id', 'api_key.name', 'api_key.role', 'api_key.is_operator'])
    .select(['api_key.limits', 'account.status'])
    .where('api_key.status', '=', 'active')
    .where('api_key.disabled_at', 'is', null)
    .where((by) => by.or([by('expires_at', 'is', null), by('expires_at', '>', BigInt(at))]))
    .where((by) =>
      by.or([
        by('hash', '=', hash),
        by.and([by('previous_hash', '=', hash), by('previous_hash_until', '>', BigInt(at))]),
      ]),
    )
    .executeTakeFirst();
  return row === undefined
    ? undefined
    : {
        id: row.id,
        accountId: row.account_id,
        name: row.name,
        role: row.role,
        isOperator: row.is_operator !== 0n,
        limits: row.limits,
        accountStatus: row.status,
      };
}

/** Also a revoked one; undefined when the account has no such key. */
export async function getKey(
  db: Db,
  { keyId, accountId }: { readonly keyId: string; readonly accountId?: string },
): Promise<ApiKey | undefined> {
  let query = db.selectFrom('api_key').selectAll().where('id', '=', keyId);
  if (accountId !== undefined) query = query.where('account_id', '=', accountId);
  const row = await query.executeTakeFirst();
  return row === undefined ? undefined : toKey(row);
}

/** Keys of an account that are not revoked, newest first, after the one that is named. */
export async function listAccountKeys(
  db: Db,
  request: {
    readonly accountId: string;
    /** Only inference keys of this user; null: of no user. */
    readonly userId?: string | null | undefined;
    readonly after?: string | undefined;
    /** Left out: also paused keys. */
    readonly isEnabled?: boolean | undefined;
    readonly limit: number;
  },
): Promise<readonly ApiKey[]> {
  const { accountId, userId, after, limit } = request;
  let query = db
    .selectFrom('api_key')
    .selectAll()
    .where('account_id', '=', accountId)
    .where('status', '=', 'active')
    .orderBy('created_at', 'desc')
    .orderBy('id', 'desc')
    .limit(limit);
  if (userId !== undefined) query = query.where('role', 'is', null);
  if (userId !== undefined && userId !== null) query = query.where('user_id', '=', userId);
  if (userId === null) query = query.where('user_id', 'is', null);
  if (request.isEnabled === true) query = query.where('disabled_at', 'is', null);
  if (after !== undefined) {
    const last = await db
      .selectFrom('api_key')
      .select('created_at')
      .where('id', '=', after)
      .where('account_id', '=', accountId)
      .executeTakeFirst();
    if (last === undefined) return [];
    query = query.where((is) => is(is.refTuple('created_at', 'id'), '<', is.tuple(last.created_at, after)));
  }
  return (await query.execute()).map(toKey);
}

/**
 * When each of these keys of an account last ended a request: to the millisecond since the hour before the last one with
 * requests, and as the end of its hour for earlier ones. Keys that were never used are left out. Hours are searched in the
 * summed-up days of the account, so that an idle key costs a look at its days and not at all hours ever recorded.
 */
export async function lastUseOfKeys(
  db: Db,
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
    // The hour that a day begins in may have begun before the day.
    const before = hourMs - 1;
    const hours = { accountId, keyIds: rest(), from: until - before, to: closed };
    for (const { key_id, at } of await newest(moment, 'hour', hours)) last.set(key_id, Number(at) + hourMs - 1);
    for (const { key_id, at } of await newest(moment, 'day', { accountId, keyIds: rest(), from: 0, to: until })) {
      const day = Number(at);
      const span = { from: day - before, to: Math.min(nextDay(days!.timeZone, day), closed) };
      const [hour] = await newest(moment, 'hour', { accountId, keyIds: [key_id], ...span });
      if (hour !== undefined) last.set(key_id, Number(hour.at) + hourMs - 1);
    }
    return [...last].map(([keyId, at]) => ({ keyId, at }));
  });
}

/** The newest hour or day with usage in a span, by key. */
async function newest(
  db: Db,
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
