/** What the service has done, over time. */
import { sql, type Kysely } from 'kysely';
import { camel } from '../../platform/camel-case.ts';
import type { Database } from '../database.ts';
import {
  addedFigures,
  begunAt,
  firstTokenBounds,
  historySpans,
  merged,
  shownSpan,
  type HistoryFigures,
  type HistoryRow,
  type HistorySpan,
} from '../history-steps.ts';
import type { Row, Rows } from '../schema/codec.ts';

type Stored = Row<'history'>;

const bucketNames = [...firstTokenBounds, 'longer'].map((end) => `first_token_${end}`);
const snake = (name: string): string => name.replaceAll(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`);
/** Columns that add up. */
const added = [...addedFigures.map(snake), ...bucketNames];

const rowsAtOnce = 500;

/**
 * Adds what happened in minutes to their rows in all steps, and removes what is older than is shown. Processes add to the same rows, so there are
 * no more of them than series and steps.
 */
export async function addHistory(
  db: Kysely<Rows>,
  { rows, now }: { readonly rows: readonly HistoryRow[]; readonly now: number },
): Promise<void> {
  await db.transaction().execute(async (transaction) => {
    for (const { stepMs, kept } of Object.values(historySpans)) {
      const oldest = begunAt(now, stepMs) - kept * stepMs;
      const due = merged(rows.map((row) => ({ ...row, at: begunAt(row.at, stepMs) }))).filter(({ at }) => at >= oldest);
      // In the order of the keys, so that two processes cannot deadlock.
      for (let at = 0; at < due.length; at += rowsAtOnce)
        await transaction
          .insertInto('history')
          .values(due.slice(at, at + rowsAtOnce).map((row) => storedOf(row, stepMs)))
          .onConflict((conflict) =>
            conflict.columns(['step', 'at', 'model', 'backend']).doUpdateSet({
              ...Object.fromEntries(
                added.map((name) => [camel(name), sql`${sql.ref(`history.${name}`)} + ${sql.ref(`excluded.${name}`)}`]),
              ),
              waitLongestMs: sql<number>`case when history.wait_longest_ms > excluded.wait_longest_ms
                then history.wait_longest_ms else excluded.wait_longest_ms end`,
            }),
          )
          .execute();
      await transaction.deleteFrom('history').where('step', '=', stepMs).where('at', '<', oldest).execute();
    }
  });
}

function storedOf({ firstTokens, ...row }: HistoryRow, step: number): Stored {
  const buckets = Object.fromEntries(bucketNames.map((name, index) => [camel(name), firstTokens[index]!]));
  return { step, ...row, ...buckets } as Stored;
}

/** What to tell apart. */
export type HistoryGroup = 'total' | 'model' | 'backend';

export interface HistoryRequest {
  readonly span: HistorySpan;
  readonly now: number;
  readonly by: HistoryGroup;
  readonly model?: string | undefined;
  readonly backend?: string | undefined;
}

/** The rows of each step and group with traffic; `since`: when the first step began of which something is known, within the span. */
export async function readHistory(
  db: Kysely<Database>,
  { span, now, by, model, backend }: HistoryRequest,
): Promise<{ readonly since: number | undefined; readonly rows: readonly HistoryRow[] }> {
  const { from, to } = shownSpan(span, now);
  const step = BigInt(historySpans[span].stepMs);
  const groups = { total: [], model: ['model'], backend: ['model', 'backend'] }[by].map((name) => sql.ref(name));
  const conditions = [
    sql`step = ${step} and at >= ${BigInt(from)} and at < ${BigInt(to)}`,
    ...(model === undefined ? [] : [sql`model = ${model}`]),
    backend !== undefined ? sql`backend = ${backend}` : by === 'backend' ? sql`backend <> ''` : sql`backend = ''`,
  ];
  const sums = added.map((name) => sql`cast(sum(${sql.ref(name)}) as bigint) as ${sql.ref(name)}`);
  const { rows } = await sql<Readonly<Record<string, bigint>> & Partial<Record<'model' | 'backend', string>>>`
    select ${sql.join([sql.ref('at'), ...groups, ...sums])}, max(wait_longest_ms) as wait_longest_ms
    from history where ${sql.join(conditions, sql` and `)}
    group by ${sql.join([sql.ref('at'), ...groups])}
    order by ${sql.join([sql.ref('at'), ...groups])}
  `.execute(db);
  const [own, longest] = [await firstOf(db, step), await firstOf(db, BigInt(historySpans.week.stepMs))];
  return {
    since: longest !== undefined && longest < from ? from : own,
    rows: rows.map((row) => ({
      at: Number(row['at']),
      model: row.model ?? '',
      backend: row.backend ?? '',
      ...figuresOf((name) => Number(row[name])),
    })),
  };
}

async function firstOf(db: Kysely<Database>, step: bigint): Promise<number | undefined> {
  const of = db.selectFrom('history').select('at').where('step', '=', step);
  const first = await of.orderBy('at').limit(1).executeTakeFirst();
  return first === undefined ? undefined : Number(first.at);
}

const figuresOf = (read: (name: string) => number): HistoryFigures => ({
  ...(Object.fromEntries(addedFigures.map((name) => [name, read(snake(name))])) as Record<
    (typeof addedFigures)[number],
    number
  >),
  waitLongestMs: read('wait_longest_ms'),
  firstTokens: bucketNames.map(read),
});
