/**
 * How long the requests of an account took, as percentiles: whole UTC days come from usage_latency_day, the ends of the span and the open
 * day from rows. Of days whose rows are removed, only whole ones count.
 */
import { PostgresAdapter, sql, type Kysely, type RawBuilder, type SqlBool } from 'kysely';
import { hourMs } from '../../platform/calendar/time-zone.ts';
import type { Database } from '../database.ts';
import { inOneMoment } from '../one-moment.ts';
import { keptSinceOf } from '../retention/retention.ts';
import { latencyRange, percentile, type LatencyCounts } from './latency-buckets.ts';
import { ownersOf, type ReportDimension, type ReportRow } from './reports.ts';
import { latencyColumns } from './tier-roll-ups.ts';
import { latencyDaysBefore, tierOfRow } from './usage-expressions.ts';
import { inMonthsOf } from './usage-months.ts';
import { conditions, tooManyGroups, type SumFilter } from './usage-sums.ts';

type Db = Kysely<Database>;

export type LatencyDimension = Exclude<ReportDimension, 'tag'>;

export interface LatencyRequest extends Omit<SumFilter, 'tag'> {
  /** Inclusive. */
  readonly from: number;
  /** Exclusive. */
  readonly to: number;
  readonly by: readonly LatencyDimension[];
}

interface Percentiles {
  readonly requests: number;
  /** In milliseconds; null if there are no requests. */
  readonly p50: number | null;
  readonly p95: number | null;
}

/** Dimensions that were not requested are null. */
export interface LatencyRow extends Pick<ReportRow, 'model' | 'key' | 'user' | 'tier' | 'ending'> {
  /** Without the requests that ended before their first token. */
  readonly firstToken: Percentiles;
  readonly total: Percentiles;
}

/** Rejects with `invalid` if there are too many groups. */
export async function reportLatency(db: Db, request: LatencyRequest): Promise<readonly LatencyRow[]> {
  return await inOneMoment(db, async (moment) => {
    const owners = request.by.includes('user') ? await ownersOf(moment, request.accountId) : undefined;
    const groups = new Map<string, Counted>();
    for (const { range, requests, ...row } of await countsOf(moment, request)) {
      const name = {
        model: row.model,
        key: request.by.includes('key') ? row.key : null,
        user: owners?.get(row.key!) ?? null,
        tier: row.tier === '' ? null : row.tier,
        ending: row.ending === '' ? null : row.ending,
      };
      const id = JSON.stringify(name);
      const group = groups.get(id) ?? { name, f: new Map<number, number>(), t: new Map<number, number>() };
      groups.set(id, group);
      const counts = range.startsWith('f') ? group.f : group.t;
      const number = Number(range.slice(1));
      counts.set(number, (counts.get(number) ?? 0) + Number(requests));
    }
    return [...groups.values()].map(({ name, f, t }) => ({
      ...name,
      firstToken: percentilesOf(f),
      total: percentilesOf(t),
    }));
  });
}

interface Counted {
  readonly name: Omit<LatencyRow, 'firstToken' | 'total'>;
  readonly f: Map<number, number>;
  readonly t: Map<number, number>;
}

const percentilesOf = (counts: LatencyCounts): Percentiles => ({
  requests: [...counts.values()].reduce((sum, one) => sum + one, 0),
  p50: percentile(counts, 0.5),
  p95: percentile(counts, 0.95),
});

const dayMs = 24 * hourMs;
const rowsMax = 200_000;

interface CountRow {
  readonly model: string | null;
  readonly key: string | null;
  readonly tier: string | null;
  readonly ending: string | null;
  /** A letter and a number, as in `counts`. */
  readonly range: string;
  readonly requests: bigint;
}

async function countsOf(db: Db, request: LatencyRequest): Promise<readonly CountRow[]> {
  const { from, to } = request;
  const keptSince = await keptSinceOf(db);
  const daysFrom = Math.ceil(from / dayMs) * dayMs;
  const daysTo = Math.min(Math.floor(to / dayMs) * dayMs, await latencyDaysBefore(db));
  const spans: readonly (readonly [number, number])[] =
    daysFrom < daysTo
      ? [
          [from, daysFrom],
          [daysTo, to],
        ]
      : [[from, to]];
  const rows = daysFrom < daysTo ? [...(await countDays(db, request, daysFrom, daysTo))] : [];
  for (const [first, last] of spans) {
    const start = Math.max(first, keptSince);
    if (start >= last) continue;
    for (const letter of ['f', 't'] as const) rows.push(...(await countRows(db, request, letter, start, last)));
  }
  return rows;
}

/** The selected groups, each with its name; a user's are those of their keys. */
function groupsOf(
  { by }: LatencyRequest,
  tier: RawBuilder<string>,
): readonly (readonly [string, RawBuilder<unknown>])[] {
  return [
    ...(by.includes('model') ? [['model', sql`model_id`] as const] : []),
    ...(by.includes('key') || by.includes('user') ? [['key', sql`key_id`] as const] : []),
    ...(by.includes('tier') ? [['tier', tier] as const] : []),
    ...(by.includes('ending') ? [['ending', sql`ending`] as const] : []),
  ];
}

async function read(
  db: Db,
  groups: readonly (readonly [string, RawBuilder<unknown>])[],
  parts: {
    readonly requests: RawBuilder<unknown>;
    readonly from: RawBuilder<unknown>;
    readonly where: RawBuilder<SqlBool>;
  },
): Promise<readonly CountRow[]> {
  const selected = [
    ...groups.map(([name, group]) => sql`${group} as ${sql.ref(name)}`),
    sql`${parts.requests} as requests`,
  ];
  const { rows } = await sql<CountRow>`select ${sql.join(selected)} from ${parts.from} where ${parts.where}
    group by ${sql.join(groups.map(([, group]) => group))} limit ${sql.lit(rowsMax + 1)}`.execute(db);
  if (rows.length > rowsMax) throw tooManyGroups();
  return rows.map((row) => ({ ...none, ...row }));
}

const none = { model: null, key: null, tier: null, ending: null };

function countDays(db: Db, request: LatencyRequest, from: number, to: number): Promise<readonly CountRow[]> {
  const isPostgres = db.getExecutor().adapter instanceof PostgresAdapter;
  const each = isPostgres
    ? sql`jsonb_each_text(counts::jsonb) as each_count (range, requests)`
    : sql`json_each(counts) as each_count`;
  return read(
    db,
    [...groupsOf(request, sql`tier`), ['range', isPostgres ? sql`each_count.range` : sql`each_count.key`]],
    {
      requests: isPostgres ? sql`sum(each_count.requests::bigint)` : sql`sum(each_count.value)`,
      from: sql`usage_latency_day cross join ${each}`,
      where: sql`account_id = ${request.accountId} and day >= ${sql.lit(from)} and day < ${sql.lit(to)} and ${conditions(request)}`,
    },
  );
}

function countRows(
  db: Db,
  request: LatencyRequest,
  letter: keyof typeof latencyColumns,
  from: number,
  to: number,
): Promise<readonly CountRow[]> {
  const column = latencyColumns[letter];
  const range = sql`${sql.lit(letter)} || ${latencyRange(column)}`;
  return read(db, [...groupsOf(request, tierOfRow), ['range', range]], {
    requests: sql`count(*)`,
    from: sql`usage`,
    where: sql`account_id = ${request.accountId} and ended_at >= ${sql.lit(from)} and ended_at < ${sql.lit(to)}
      and ${sql.ref(column)} is not null and ${inMonthsOf(db, { from, to })} and ${conditions(request)}`,
  });
}
