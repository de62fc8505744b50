/**
 * From when on details of requests are kept (decision 037). Of requests that ended before, only sums are: in roll-ups, and in
 * `pruned_usage` for what roll-ups cannot tell. Their rows are removed a few at a time (removal.ts), so some may still be there;
 * what has to be exact at any moment adds both up.
 */
import { sql, type Kysely } from 'kysely';
import { hourMs } from '../../platform/calendar/time-zone.ts';
import type { Database } from '../database.ts';
import { closedBefore, hourOfAll } from '../reports/usage-expressions.ts';
import { inMonthsOf } from '../reports/usage-months.ts';
import { StoreError } from '../store-error.ts';

type Db = Kysely<Database>;

export interface Retention {
  /** Requests that ended before have no details, ms since 1970; 0: all have. */
  readonly keptSince: number;
  /** When the rows of those before were all removed; null: not yet. */
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
/** The activity of the last 30 days, and what a new price would have made of them, are read from rows. */
const keptDaysMin = 31;

/** Why details are kept for longer than was asked for. */
export type RetentionLimit = 'recent' | 'statements' | 'roll-ups';

export interface RetentionPlan {
  /** The start of a UTC day: details of requests that ended then or later stay. */
  readonly keptSince: number;
  /** Undefined: it is as was asked for. */
  readonly limitedBy: RetentionLimit | undefined;
  /** Of requests before it: how many have a row now, and how many of these stay, at least. */
  readonly rows: number;
  readonly staying: number;
  /** About what a row takes, without its entries in indexes. */
  readonly rowBytes: number;
}

/** What would be removed: nothing is changed. `before`: ms since 1970. */
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
 * Says that details of requests are kept since a time, or as late as can be; what was said before holds when it is later. From then
 * on no reader finds those before, whether their rows are removed yet or not.
 */
export async function keepUsageSince(
  db: Db,
  { before, now }: { readonly before: number; readonly now: number },
): Promise<Retention & Pick<RetentionPlan, 'limitedBy'>> {
  // Each limit only grows, so that what is found stays true.
  const { keptSince, limitedBy } = await boundFor(db, { before, now });
  await db
    .updateTable('usage_retention')
    .set({ kept_since: keptSince, removed_at: null })
    .where('kept_since', '<', BigInt(keptSince))
    .execute();
  return { ...(await retentionOf(db)), limitedBy };
}

/** A history is caught up with seven times as fast as it grows, and a clock that is wrong for a day takes no more than this. */
const stepMs = 7 * dayMs;
/** Less than a day, so that a step that was late does not make all later ones so. */
const pauseMs = 20 * hourMs;

/**
 * The next time for `keepUsageSince` on the way to `before`, where that is not one that somebody has just looked at: a week later
 * than the one that is in force, once a day, and only when the rows before that are removed. Undefined: nothing is to be done now.
 */
export async function nextKeptSince(
  db: Db,
  { before, now }: { readonly before: number; readonly now: number },
): Promise<number | undefined> {
  const { keptSince, removedAt } = await retentionOf(db);
  if (removedAt === null) return undefined;
  // A time to come is of a clock that was wrong.
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
  ];
  const [limitedBy, at] = limits.reduce((one, other) => (other[1] < one[1] ? other : one));
  return { keptSince: Math.max(0, Math.floor(at / dayMs) * dayMs), limitedBy };
}

/** Statements are made of rows: until when those of all customers are issued, or there was no customer. Infinity: there is none. */
async function statementsIssuedUntil(db: Db): Promise<number> {
  const { at } = await db
    .selectFrom('account')
    .leftJoin('closed_until', 'closed_until.account_id', 'account.id')
    .where('kind', '=', 0n)
    .select(sql<bigint | null>`min(coalesce(closed_until.at, created_at))`.as('at'))
    .executeTakeFirstOrThrow();
  return at === null ? Infinity : Number(at);
}

/** From the sums, so that no row is read. */
async function rowsBefore(db: Db, keptSince: number): Promise<number> {
  const all = await db
    .selectFrom('usage_hour')
    .where(hourOfAll, '<', BigInt(keptSince))
    .select(sql<bigint | null>`sum(requests)`.as('requests'))
    .executeTakeFirstOrThrow();
  return Number(all.requests ?? 0n) - (await prunedRequests(db));
}

/** Requests whose rows are removed. */
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
 * Call before rows of usage are added up that ended between two times, where these begin before `keptSince`. Rejects as `gone`
 * where rows of those hours are removed: what they come to by the hour is known, but not how it is spread within.
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
