/**
 * The time since which request details are kept (decision 037). Of requests that ended earlier, only sums are kept: in roll-ups, and in
 * `pruned_usage` for what roll-ups do not contain. Their rows are removed a few at a time (removal.ts), so some may still exist; figures
 * that must be exact at any moment add up both.
 */
import { sql, type Kysely } from 'kysely';
import { hourMs } from '../../platform/calendar/time-zone.ts';
import type { Database } from '../database.ts';
import { closedBefore, hourOfAll, latencyDaysBefore } from '../reports/usage-expressions.ts';
import { inMonthsOf } from '../reports/usage-months.ts';
import { StoreError } from '../store-error.ts';

type Db = Kysely<Database>;

export interface Retention {
  /** Requests that ended before this time have no details, ms since 1970; 0: all have. */
  readonly keptSince: number;
  /** When all earlier rows had been removed; null: not yet. */
  readonly removedAt: number | null;
}

export async function retentionOf(db: Db): Promise<Retention> {
  const row = await db.selectFrom('usage_retention').selectAll().executeTakeFirst();
  return {
    keptSince: Number(row?.kept_since ?? 0n),
    removedAt: row === undefined || row.removed_at === null ? null : Number(row.removed_at),
  };
}

export const keptSinceOf = async (db: Db): Promise<number> => (await retentionOf(db)).keptSince;

const dayMs = 24 * hourMs;
/** The activity of the last 30 days, and its cost at a new price, are computed from rows. */
const keptDaysMin = 31;

/** Why details are kept for longer than requested. */
export type RetentionLimit = 'recent' | 'statements' | 'roll-ups';

export interface RetentionPlan {
  /** The start of a UTC day: details of requests that ended then or later stay. */
  readonly keptSince: number;
  /** undefined: it is as requested. */
  readonly limitedBy: RetentionLimit | undefined;
  /** Number of earlier requests that have a row now, and the minimum of these that stay. */
  readonly rows: number;
  readonly staying: number;
  /** Approximate size of a row, without its index entries. */
  readonly rowBytes: number;
}

/** Computes what would be removed, without changing anything. `before`: ms since 1970. */
export async function planRetention(
  db: Db,
  { before, now }: { readonly before: number; readonly now: number },
): Promise<RetentionPlan> {
  const { keptSince, limitedBy } = await boundFor(db, { before, now });
  const rows = await rowsBefore(db, keptSince);
  return {
    keptSince,
    limitedBy,
    rows,
    staying: Math.min(rows, await stayingBefore(db, keptSince)),
    rowBytes: await rowBytes(db, keptSince),
  };
}

/**
 * Sets the time since which request details are kept, as late as requested or possible; an existing later time stays. From then on no
 * reader finds earlier details, whether their rows are removed yet or not.
 */
export async function keepUsageSince(
  db: Db,
  { before, now }: { readonly before: number; readonly now: number },
): Promise<Retention & Pick<RetentionPlan, 'limitedBy'>> {
  // Each limit only grows, so the result stays valid.
  const { keptSince, limitedBy } = await boundFor(db, { before, now });
  await db
    .updateTable('usage_retention')
    .set({ kept_since: keptSince, removed_at: null })
    .where('kept_since', '<', BigInt(keptSince))
    .execute();
  return { ...(await retentionOf(db)), limitedBy };
}

/** Catches up with history seven times as fast as it grows; a clock that is wrong for a day removes no more than this. */
const stepMs = 7 * dayMs;
/** Less than a day, so that one late step does not delay all later ones. */
const pauseMs = 20 * hourMs;

/**
 * The next time for `keepUsageSince` on the way to `before`, for use without a person's review: a week after the current one, once a day,
 * and only when all earlier rows have been removed. undefined: nothing to do now.
 */
export async function nextKeptSince(
  db: Db,
  { before, now }: { readonly before: number; readonly now: number },
): Promise<number | undefined> {
  const { keptSince, removedAt } = await retentionOf(db);
  if (removedAt === null) return undefined;
  // A time in the future results from a wrong clock.
  if (keptSince > 0 && removedAt <= now && now - removedAt < pauseMs) return undefined;
  const first = await db.selectFrom('usage_hour').select('hour').orderBy(hourOfAll).limit(1).executeTakeFirst();
  if (first === undefined) return undefined;
  const from = Math.max(keptSince, Math.floor(Number(first.hour) / dayMs) * dayMs);
  const next = await boundFor(db, { before: Math.min(before, from + stepMs), now });
  return next.keptSince > from ? next.keptSince : undefined;
}

async function boundFor(
  db: Db,
  { before, now }: { readonly before: number; readonly now: number },
): Promise<Pick<RetentionPlan, 'keptSince' | 'limitedBy'>> {
  const limits: readonly (readonly [RetentionLimit | undefined, number])[] = [
    [undefined, before],
    ['recent', now - keptDaysMin * dayMs],
    ['statements', await statementsIssuedUntil(db)],
    ['roll-ups', await closedBefore(db)],
    ['roll-ups', await closedBefore(db, 'usage_tier_hour')],
    ['roll-ups', await latencyDaysBefore(db)],
  ];
  const [limitedBy, at] = limits.reduce((one, other) => (other[1] < one[1] ? other : one));
  return { keptSince: Math.max(0, Math.floor(at / dayMs) * dayMs), limitedBy };
}

/**
 * Statements are built from rows: until when those of all customers are issued, or there was no customer. Infinity: there are no customers.
 */
async function statementsIssuedUntil(db: Db): Promise<number> {
  const { at } = await db
    .selectFrom('account')
    .leftJoin('closed_until', 'closed_until.account_id', 'account.id')
    .where('kind', '=', 0n)
    .select(sql<bigint | null>`min(coalesce(closed_until.at, created_at))`.as('at'))
    .executeTakeFirstOrThrow();
  return at === null ? Infinity : Number(at);
}

/** Counted from the sums, so that no row is read. */
async function rowsBefore(db: Db, keptSince: number): Promise<number> {
  const all = await db
    .selectFrom('usage_hour')
    .where(hourOfAll, '<', BigInt(keptSince))
    .select(sql<bigint | null>`sum(requests)`.as('requests'))
    .executeTakeFirstOrThrow();
  return Number(all.requests ?? 0n) - (await prunedRequests(db));
}

/** Number of requests whose rows are removed. */
export async function prunedRequests(db: Db): Promise<number> {
  const { requests } = await db
    .selectFrom('pruned_usage')
    .select(sql<bigint | null>`sum(requests)`.as('requests'))
    .executeTakeFirstOrThrow();
  return Number(requests ?? 0n);
}

async function stayingBefore(db: Db, keptSince: number): Promise<number> {
  const { requests } = await db
    .selectFrom('usage_hour')
    .where(hourOfAll, '<', BigInt(keptSince))
    .where((is) =>
      is.or(
        (['debit_account', 'credit_account'] as const).map((side) =>
          is.exists(
            is
              .selectFrom('transfer')
              .select('id')
              .whereRef(side, '=', 'usage_hour.account_id')
              .whereRef('at', '>=', 'usage_hour.hour')
              .where(sql<boolean>`transfer.at < usage_hour.hour + ${sql.lit(hourMs)}`),
          ),
        ),
      ),
    )
    .select(sql<bigint | null>`sum(requests)`.as('requests'))
    .executeTakeFirstOrThrow();
  return Number(requests ?? 0n);
}

const sampleRows = 200;

async function rowBytes(db: Db, keptSince: number): Promise<number> {
  const rows = await db
    .selectFrom('usage')
    .selectAll()
    .where('ended_at', '<', BigInt(keptSince))
    .orderBy('request_id')
    .limit(sampleRows)
    .execute();
  const bytesOf = (value: unknown): number =>
    typeof value === 'string' ? Buffer.byteLength(value) : value instanceof Uint8Array ? value.length : 8;
  const bytes = rows.flatMap((row) => Object.values(row).filter((value) => value !== null)).map(bytesOf);
  return rows.length === 0 ? 0 : Math.ceil(bytes.reduce((sum, value) => sum + value, 0) / rows.length);
}

/**
 * Call before summing usage rows that ended between two times, if these begin before `keptSince`. Rejects with `gone` if rows of those
 * hours are removed: their hourly sums are known, but not the distribution within the hours.
 */
export async function refuseRemoved(
  db: Db,
  span: { readonly accountId?: string | undefined; readonly from: number; readonly to: number },
  keptSince: number,
): Promise<void> {
  const { accountId } = span;
  const from = Math.floor(span.from / hourMs) * hourMs;
  const to = Math.min(Math.ceil(span.to / hourMs) * hourMs, keptSince);
  if (from >= to) return;
  let there = db
    .selectFrom('account')
    .crossJoin('usage') // by account, as in sumUsageByHour
    .whereRef('usage.account_id', '=', 'account.id')
    .where('ended_at', '>=', BigInt(from))
    .where('ended_at', '<', BigInt(to))
    .where(inMonthsOf(db, { from, to }))
    .select((is) => is.fn.countAll<bigint>().as('requests'));
  const hour = accountId === undefined ? hourOfAll : sql<bigint>`hour`;
  let all = db
    .selectFrom('usage_hour')
    .where(hour, '>=', BigInt(from))
    .where(hour, '<', BigInt(to))
    .select(sql<bigint | null>`sum(requests)`.as('requests'));
  if (accountId !== undefined) {
    there = there.where('account.id', '=', accountId);
    all = all.where('account_id', '=', accountId);
  }
  const summed = (await all.executeTakeFirstOrThrow()).requests ?? 0n;
  if ((await there.executeTakeFirstOrThrow()).requests >= summed) return;
  throw new StoreError(
    'gone',
    `Usage before ${new Date(keptSince).toISOString()} is kept by the hour: let spans and buckets begin and end there at full hours.`,
  );
}
