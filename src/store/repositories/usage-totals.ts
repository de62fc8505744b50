/** Sums of the requests of the ledger. */
import { sql, type Kysely, type RawBuilder } from 'kysely';
import type { Database } from '../database.ts';
import { hourMs } from '../../platform/calendar/time-zone.ts';
import { closedBefore, hourOfAll, listOf, sumsOf, tierOfRow, type TokenColumn } from '../reports/usage-expressions.ts';
import { inMonthsOf } from '../reports/usage-months.ts';
import { inOneMoment } from '../one-moment.ts';
import { keptSinceOf, refuseRemoved } from '../retention/retention.ts';
import type { UsageFilter } from './usage-rows.ts';

type Db = Kysely<Database>;

/**
 * What usage is grouped by. Labels, and tiers and endings, have hourly sums of their own, so neither goes with the other. A tier is empty
 * where it is not known.
 */
export type SumGroup = 'model' | 'key' | 'account' | 'day' | 'tag' | 'tier' | 'ending';

/** Sums of usage. */
export interface UsageSum {
  /** What was asked for, in that order; a day is the time when it starts in UTC. Empty for a single total. */
  readonly groups: readonly string[];
  readonly requests: number;
  readonly promptTokens: number;
  readonly cachedTokens: number;
  readonly completionTokens: number;
  readonly reasoningTokens: number;
  readonly costMicrocents: bigint;
  readonly unchargedMicrocents: bigint;
}

/**
 * Sums usage between two times. Closed whole hours come from usage_hour and the tables like it, the ends and the open hours from usage itself:
 * 2 ms instead of 400 for the largest account's month in ten million rows. By label a request with several counts under each, one without
 * is not counted. Rejects with `gone` if that would require removed rows.
 */
export async function sumUsage(
  db: Db,
  request: UsageFilter & {
    readonly from: number;
    readonly to: number;
    readonly by?: readonly SumGroup[];
  },
): Promise<readonly UsageSum[]> {
  const { by = [] } = request;
  const table = hoursOf(by);
  return await inOneMoment(db, async (moment) =>
    addUp(
      await inParts(
        request,
        await closedBefore(moment, table === 'usage_tier_hour' ? table : 'usage_hour'),
        (part) => sumRaw(moment, part, by),
        (part) => sumHours(moment, table, part, groupsOf(by, 'hour')),
      ),
      by.length,
    ),
  );
}

type HourTable = 'usage_hour' | 'usage_tag_hour' | 'usage_tier_hour';

function hoursOf(by: readonly SumGroup[]): HourTable {
  if (by.includes('tag')) return 'usage_tag_hour';
  return by.includes('tier') || by.includes('ending') ? 'usage_tier_hour' : 'usage_hour';
}

type Part = UsageFilter & { readonly from: number; readonly to: number };

/** Sums the ends from rows, and the whole hours between them from the hourly sums. */
async function inParts(
  request: Part,
  closed: number,
  raw: (part: Part) => Promise<readonly SumRow[]>,
  hours: (part: Part) => Promise<readonly SumRow[]>,
): Promise<readonly SumRow[]> {
  const { from, to } = request;
  const hoursFrom = Math.min(Math.ceil(from / hourMs) * hourMs, to);
  const hoursTo = Math.max(hoursFrom, Math.min(Math.floor(to / hourMs) * hourMs, closed));
  return [
    ...(await raw({ ...request, to: hoursFrom })),
    ...(await hours({ ...request, from: hoursFrom, to: hoursTo })),
    ...(await raw({ ...request, from: hoursTo })),
  ];
}

type Group = RawBuilder<string | bigint>;

type SumRow = Readonly<Record<TokenColumn | 'cost' | 'uncharged', bigint>> & {
  readonly requests: bigint | null;
  readonly [group: `group_${number}`]: string | bigint;
};

async function sumRaw(db: Db, filter: Part, by: readonly SumGroup[]): Promise<readonly SumRow[]> {
  if (filter.from >= filter.to) return [];
  await refuseRemoved(db, filter, await keptSinceOf(db));
  const groups = groupsOf(by, 'ended_at');
  let query = rawUsage(db, filter)
    .select(named(groups))
    .select(sumsOf(sql`count(*)`));
  const labels = by.indexOf('tag');
  if (labels !== -1) query = query.where('tags', 'is not', null);
  const rows: readonly SumRow[] = await (groups.length === 0 ? query : query.groupBy(groups)).execute();
  if (labels === -1) return rows;
  const column = `group_${labels}` as const;
  return rows.flatMap((row) => listOf(String(row[column]))!.map((tag) => ({ ...row, [column]: tag })));
}

function rawUsage(db: Db, filter: Part) {
  let query = db
    .selectFrom('account')
    .crossJoin('usage') // by account, as in sumUsageByHour
    .whereRef('usage.account_id', '=', 'account.id')
    .where('ended_at', '>=', BigInt(filter.from))
    .where('ended_at', '<', BigInt(filter.to))
    .where(inMonthsOf(db, filter));
  if (filter.accountId !== undefined) query = query.where('account.id', '=', filter.accountId);
  if (filter.keyId !== undefined) query = query.where('key_id', '=', filter.keyId);
  if (filter.modelId !== undefined) query = query.where('model_id', '=', filter.modelId);
  return query;
}

/**
 * The order of the join is SQLite's, which has the hours of an account together and reads them in a third of the time. PostgreSQL has those of
 * an hour together, and an index for them.
 */
function sumHours(db: Db, table: HourTable, filter: Part, groups: readonly Group[]): Promise<readonly SumRow[]> {
  if (filter.from >= filter.to) return Promise.resolve([]);
  let query = (db as Kysely<Pick<Database, 'account' | 'usage_hour'>>)
    .selectFrom('account')
    .crossJoin(table as 'usage_hour') // all have these columns
    .whereRef('account_id', '=', 'account.id')
    .select(named(groups))
    .select(sumsOf(sql`sum(requests)`))
    .where('hour', '>=', BigInt(filter.from))
    .where('hour', '<', BigInt(filter.to));
  if (groups.length > 0) query = query.groupBy(groups);
  if (filter.accountId === undefined)
    query = query.where(hourOfAll, '>=', BigInt(filter.from)).where(hourOfAll, '<', BigInt(filter.to));
  else query = query.where('account.id', '=', filter.accountId);
  if (filter.keyId !== undefined) query = query.where('key_id', '=', filter.keyId);
  if (filter.modelId !== undefined) query = query.where('model_id', '=', filter.modelId);
  return query.execute();
}

const named = (groups: readonly Group[]) => groups.map((group, at) => group.as(`group_${at}` as const));

const groupsOf = (by: readonly SumGroup[], timeColumn: 'ended_at' | 'hour'): readonly Group[] =>
  by.map((one) => {
    switch (one) {
      case 'model':
        return sql<string>`model_id`;
      case 'key':
        return sql<string>`key_id`;
      case 'account':
        return sql<string>`account_id`;
      case 'day':
        return sql<bigint>`${sql.ref(timeColumn)} - ${sql.ref(timeColumn)} % ${sql.lit(24 * hourMs)}`;
      case 'tag':
        return timeColumn === 'hour' ? sql<string>`tag` : sql<string>`tags`;
      case 'tier':
        return tierOfRow;
      case 'ending':
        return sql<string>`ending`;
    }
  });

function addUp(rows: readonly SumRow[], by: number): readonly UsageSum[] {
  const sums = new Map<string, UsageSum>();
  for (const row of rows) {
    if (row.requests === null || row.requests === 0n) continue; // without groups there is a row of nothing
    const groups = Array.from({ length: by }, (_, at) => String(row[`group_${at}`]));
    const name = JSON.stringify(groups);
    const sum = sums.get(name);
    sums.set(name, {
      groups,
      requests: (sum?.requests ?? 0) + Number(row.requests),
      promptTokens: (sum?.promptTokens ?? 0) + Number(row.prompt_tokens),
      cachedTokens: (sum?.cachedTokens ?? 0) + Number(row.cached_tokens),
      completionTokens: (sum?.completionTokens ?? 0) + Number(row.completion_tokens),
      reasoningTokens: (sum?.reasoningTokens ?? 0) + Number(row.reasoning_tokens),
      costMicrocents: (sum?.costMicrocents ?? 0n) + row.cost,
      unchargedMicrocents: (sum?.unchargedMicrocents ?? 0n) + row.uncharged,
    });
  }
  return [...sums.values()].sort((a, b) => byGroups(a.groups, b.groups));
}

function byGroups(a: readonly string[], b: readonly string[]): number {
  const at = a.findIndex((one, index) => one !== b[index]);
  return at === -1 ? 0 : a[at]! < b[at]! ? -1 : 1;
}
