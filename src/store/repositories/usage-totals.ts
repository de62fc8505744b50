/** Sums of the requests of the ledger. */
import { sql, type Kysely, type RawBuilder } from 'kysely';
import type { Database } from '../database.ts';
import { hourMs } from '../../platform/calendar/time-zone.ts';
import { closedBefore, hourOfAll, listOf, sumsOf, type TokenColumn } from '../reports/usage-expressions.ts';
import { inMonthsOf } from '../reports/usage-months.ts';
import { inOneMoment } from '../one-moment.ts';
import { keptSinceOf, refuseRemoved } from '../retention/retention.ts';
import type { UsageFilter } from './usage-rows.ts';

type Db = Kysely<Database>;

/** Sums of usage. */
export interface UsageSum {
  /** What was asked for, in that order: models, keys, accounts, starts of UTC days. Empty for a single total. */
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
 * Sums usage between two times. Closed whole hours come from usage_hour, the ends and the open hours from usage itself: 2 ms instead of 400
 * for the largest account's month in ten million rows. Rejects with `gone` if that would require removed rows.
 */
export async function sumUsage(
  db: Db,
  request: UsageFilter & {
    readonly from: number;
    readonly to: number;
    readonly by?: readonly Grouping[];
  },
): Promise<readonly UsageSum[]> {
  const { by = [] } = request;
  return await inOneMoment(db, async (moment) =>
    addUp(
      await inParts(
        request,
        await closedBefore(moment),
        (part) => sumRaw(moment, part, by),
        (part) => sumHours(moment, 'usage_hour', part, groupsOf(by, 'hour')),
      ),
      by.length,
    ),
  );
}

/** Sums usage between two times by request labels: a request with several labels counts under each, one without labels is not counted. */
export async function sumUsageByTag(
  db: Db,
  request: UsageFilter & { readonly from: number; readonly to: number },
): Promise<readonly UsageSum[]> {
  return await inOneMoment(db, async (moment) =>
    addUp(
      await inParts(
        request,
        await closedBefore(moment),
        (part) => sumRawTags(moment, part),
        (part) => sumHours(moment, 'usage_tag_hour', part, [sql<string>`tag`]),
      ),
      1,
    ),
  );
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

type Grouping = 'model' | 'key' | 'account' | 'day';
type Group = RawBuilder<string | bigint>;

type SumRow = Readonly<Record<TokenColumn | 'cost' | 'uncharged', bigint>> & {
  readonly requests: bigint | null;
  readonly [group: `group_${number}`]: string | bigint;
};

async function sumRaw(db: Db, filter: Part, by: readonly Grouping[]): Promise<readonly SumRow[]> {
  if (filter.from >= filter.to) return [];
  await refuseRemoved(db, filter, await keptSinceOf(db));
  const groups = groupsOf(by, 'ended_at');
  const query = rawUsage(db, filter)
    .select(named(groups))
    .select(sumsOf(sql`count(*)`));
  return await (groups.length === 0 ? query : query.groupBy(groups)).execute();
}

async function sumRawTags(db: Db, filter: Part): Promise<readonly SumRow[]> {
  if (filter.from >= filter.to) return [];
  await refuseRemoved(db, filter, await keptSinceOf(db));
  const rows = await rawUsage(db, filter)
    .where('tags', 'is not', null)
    .select((of) => of.ref('tags').$notNull().as('tags'))
    .select(sumsOf(sql`count(*)`))
    .groupBy('tags')
    .execute();
  return rows.flatMap(({ tags, ...sums }) => listOf(tags)!.map((tag) => ({ ...sums, group_0: tag })));
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

function sumHours(
  db: Db,
  table: 'usage_hour' | 'usage_tag_hour',
  filter: Part,
  groups: readonly Group[],
): Promise<readonly SumRow[]> {
  if (filter.from >= filter.to) return Promise.resolve([]);
  const hour = filter.accountId === undefined ? hourOfAll : sql<bigint>`hour`;
  let query = (db as Kysely<Pick<Database, 'usage_hour'>>)
    .selectFrom(table as 'usage_hour') // both have these columns
    .select(named(groups))
    .select(sumsOf(sql`sum(requests)`))
    .where(hour, '>=', BigInt(filter.from))
    .where(hour, '<', BigInt(filter.to));
  if (groups.length > 0) query = query.groupBy(groups);
  if (filter.accountId !== undefined) query = query.where('account_id', '=', filter.accountId);
  if (filter.keyId !== undefined) query = query.where('key_id', '=', filter.keyId);
  if (filter.modelId !== undefined) query = query.where('model_id', '=', filter.modelId);
  return query.execute();
}

const named = (groups: readonly Group[]) => groups.map((group, at) => group.as(`group_${at}` as const));

const groupsOf = (by: readonly Grouping[], timeColumn: 'ended_at' | 'hour'): readonly Group[] =>
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
