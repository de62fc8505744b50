import { sql, type Kysely } from 'kysely';
import type { Row, Rows } from '../schema/codec.ts';

/** The usage in one window of one limit. */
export interface WindowCount {
  /** The id of an account or a key, or the result of `ofModel`. */
  readonly subject: string;
  /** `quota`: requests included in a plan; `cost`: microcents. */
  readonly kind: 'quota' | 'requests' | 'tokens' | 'cost';
  readonly lengthMs: number;
  readonly startsAt: number;
  readonly used: number;
}

/** A store where counts outlive the process. */
export interface WindowStore {
  /** Returns a page of the counts whose window is not over; the last page is empty. */
  load(request: { readonly at: number; readonly after?: WindowCount }): Promise<readonly WindowCount[]>;
  /** Adds each `used`, which may be negative, and resolves with the new counts. Each limit appears at most once. */
  add(changes: readonly WindowCount[]): Promise<readonly WindowCount[]>;
}

const pageRows = 1000;

/** In the order of their keys. */
export async function loadLimitWindows(
  db: Kysely<Rows>,
  { at, after }: { readonly at: number; readonly after?: WindowCount },
): Promise<readonly WindowCount[]> {
  let query = db
    .selectFrom('limit_window')
    .selectAll()
    .where(sql<number>`starts_at + length`, '>', at)
    .orderBy('subject')
    .orderBy('kind')
    .orderBy('length')
    .limit(pageRows);
  if (after !== undefined) {
    query = query.where((is) =>
      is(is.refTuple('subject', 'kind', 'length'), '>', is.tuple(after.subject, after.kind, after.lengthMs)),
    );
  }
  return (await query.execute()).map(toCount);
}

/**
 * Writes one row for each limit: a later window replaces the previous one. A window further ahead than the next one results from a wrong
 * clock, and is replaced, too.
 */
export async function addLimitWindows(
  db: Kysely<Rows>,
  { changes }: { readonly changes: readonly WindowCount[] },
): Promise<readonly WindowCount[]> {
  if (changes.length === 0) return [];
  const isSame = sql`excluded.starts_at = limit_window.starts_at`;
  const isNext = sql`(excluded.starts_at > limit_window.starts_at or limit_window.starts_at > excluded.starts_at + limit_window.length)`;
  const rows = await db
    .insertInto('limit_window')
    .values(
      // The same order everywhere, so that two replicas cannot deadlock.
      changes
        .toSorted((a, b) => compare(a.subject, b.subject) || compare(a.kind, b.kind) || a.lengthMs - b.lengthMs)
        .map(({ subject, kind, lengthMs: length, startsAt, used }) => ({ subject, kind, length, startsAt, used })),
    )
    .onConflict((conflict) =>
      conflict.columns(['subject', 'kind', 'length']).doUpdateSet({
        used: sql<number>`case when ${isSame} then limit_window.used + excluded.used when ${isNext} then excluded.used else limit_window.used end`,
        startsAt: sql<number>`case when ${isNext} then excluded.starts_at else limit_window.starts_at end`,
      }),
    )
    .returningAll()
    .execute();
  return rows.map(toCount);
}

const compare = (a: string, b: string): number => (a < b ? -1 : a > b ? 1 : 0);

const toCount = ({ kind, length, ...row }: Row<'limit_window'>): WindowCount => ({
  ...row,
  kind: kind as WindowCount['kind'],
  lengthMs: length,
});

/** The newest windows of these subjects, at most a page. With several processes `used` is what they have leased, never less than actual use. */
export async function limitWindowsOf(
  db: Kysely<Rows>,
  { subjects }: { readonly subjects: readonly string[] },
): Promise<readonly WindowCount[]> {
  const rows = await db
    .selectFrom('limit_window')
    .selectAll()
    .where('subject', 'in', subjects.slice(0, pageRows))
    .execute();
  return rows.map(toCount);
}
