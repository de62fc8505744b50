/** The requests of the ledger, one by one. */
import { sql, type Expression, type ExpressionBuilder, type Kysely, type Selectable, type SqlBool } from 'kysely';
import type { Database } from '../database.ts';
import type { Ending, UsageRow } from '../ledger.ts';
import { hourMs } from '../../platform/calendar/time-zone.ts';
import { parseUuid, rangesOfPublicId } from '../../platform/ids/uuid.ts';
import { tagPattern } from '../reports/usage-expressions.ts';
import { inMonthsOf } from '../reports/usage-months.ts';
import { pageOf } from './page.ts';

type Db = Kysely<Database>;

/** 2026-01-01: no request is older than the program. */
const oldestUsageMs = 1_767_225_600_000;

/** Request ids may run ahead of the clock a little, when it is set back. */
const clockSlackMs = hourMs;

/** Selects usage. Times are those of the request's end: `from` is inclusive, `to` exclusive. */
export interface UsageFilter {
  readonly accountId?: string;
  readonly keyId?: string;
  readonly modelId?: string;
  /** One of the labels of the request. */
  readonly tag?: string;
  readonly from?: number;
  readonly to?: number;
}

/** The last row of a page; the next page starts after it. */
export interface UsageCursor {
  readonly endedAt: number;
  readonly requestId: Uint8Array;
}

/** Newest first: by end within an account, by start (the request id) over all accounts. Both walk an index. */
export async function listUsage(
  db: Db,
  request: UsageFilter & { readonly before?: UsageCursor; readonly limit?: number },
): Promise<readonly UsageRow[]> {
  const { accountId, before } = request;
  let query = db
    .selectFrom('usage')
    .selectAll()
    .where(matching(request))
    .where(inMonthsOf(db, request))
    .limit(pageOf(request.limit));
  if (accountId !== undefined) {
    query = query.orderBy('ended_at', 'desc').orderBy('request_id', 'desc');
    if (before !== undefined) {
      query = query.where((is) =>
        is(is.refTuple('ended_at', 'request_id'), '<', is.tuple(BigInt(before.endedAt), before.requestId)),
      );
    }
  } else {
    query = query.orderBy('request_id', 'desc');
    if (before !== undefined) query = query.where('request_id', '<', before.requestId);
  }
  return (await query.execute()).map(toUsageRow);
}

/**
 * Finds requests of an account by any id that a user may have: the id from `x-request-id` (`req_…`, or `client_…` and what
 * followed it), the id that the client sent, or the UUID of the ledger. Public ids are short, so there may be several.
 */
export async function findUsage(
  db: Db,
  request: { readonly accountId: string; readonly id: string; readonly now?: number },
): Promise<readonly UsageRow[]> {
  const { accountId, id, now = Date.now() } = request;
  const all = db.selectFrom('usage').selectAll().orderBy('request_id', 'desc').limit(20);
  const of = all.where('account_id', '=', accountId);
  const uuid = parseUuid(id);
  if (uuid !== undefined) {
    const rows = await of.where('request_id', '=', uuid).execute();
    if (rows.length > 0) return rows.map(toUsageRow);
  }
  for (const { from, below } of rangesOfPublicId(id, oldestUsageMs, now + clockSlackMs)) {
    const rows = await all
      // An expression, so that the planner takes the millisecond of the key instead of all that the account has.
      .where(sql`coalesce(account_id, '')`, '=', accountId)
      .where('public_id', '=', id)
      .where('request_id', '>=', from)
      .where('request_id', '<', below)
      .execute();
    if (rows.length > 0) return rows.map(toUsageRow);
  }
  const sent = id.startsWith('client_') ? [id, id.slice('client_'.length)] : [id];
  return (await of.where('client_id', 'in', sent).execute()).map(toUsageRow);
}

function matching(filter: UsageFilter) {
  return (is: ExpressionBuilder<Database, 'usage'>): Expression<SqlBool> => {
    const conditions: Expression<SqlBool>[] = [];
    if (filter.accountId !== undefined) conditions.push(is('account_id', '=', filter.accountId));
    if (filter.keyId !== undefined) conditions.push(is('key_id', '=', filter.keyId));
    if (filter.modelId !== undefined) conditions.push(is('model_id', '=', filter.modelId));
    if (filter.tag !== undefined) conditions.push(sql<SqlBool>`tags like ${tagPattern(filter.tag)} escape '!'`);
    if (filter.from !== undefined) conditions.push(is('ended_at', '>=', BigInt(filter.from)));
    if (filter.to !== undefined) conditions.push(is('ended_at', '<', BigInt(filter.to)));
    return is.and(conditions);
  };
}

export function toUsageRow(row: Selectable<Database['usage']>): UsageRow {
  return {
    requestId: row.request_id,
    publicId: row.public_id,
    clientId: row.client_id,
    accountId: row.account_id,
    keyId: row.key_id,
    modelId: row.model_id,
    api: row.api,
    streamed: row.streamed !== 0n,
    startedAt: Number(row.started_at),
    endedAt: Number(row.ended_at),
    promptTokens: Number(row.prompt_tokens),
    cachedTokens: Number(row.cached_tokens),
    completionTokens: Number(row.completion_tokens),
    reasoningTokens: Number(row.reasoning_tokens),
    costMicrocents: row.cost,
    unchargedMicrocents: row.uncharged,
    holdMicrocents: row.hold,
    ending: row.ending as Ending,
    finish: row.finish,
    errorCode: row.error_code,
    counted: row.counted !== 0n,
    inputPrice: row.input_price,
    outputPrice: row.output_price,
    cacheReadPrice: row.cache_read_price,
    backend: row.backend,
    firstTokenMs: row.first_token_ms === null ? null : Number(row.first_token_ms),
    totalMs: Number(row.total_ms),
    tags: row.tags,
    plan: row.plan,
    keyBudget: row.key_budget,
    accountBudget: row.account_budget,
    ...(row.zdr === null ? {} : { zdr: row.zdr !== 0n }),
  };
}
