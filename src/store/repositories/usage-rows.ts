/** The individual requests of the ledger. */
import { sql, type Expression, type ExpressionBuilder, type Kysely, type SqlBool } from 'kysely';
import type { UsageRow } from '../ledger.ts';
import { hourMs } from '../../platform/calendar/time-zone.ts';
import { parseUuid, rangesOfPublicId } from '../../platform/ids/uuid.ts';
import { tagPattern } from '../reports/usage-expressions.ts';
import { inMonthsOf } from '../reports/usage-months.ts';
import { keptSinceOf } from '../retention/retention.ts';
import { storedOn, type Row, type Rows } from '../schema/codec.ts';
import { pageOf } from './page.ts';

type Db = Kysely<Rows>;

/** 2026-01-01: no request is older than this program. */
const oldestUsageMs = 1_767_225_600_000;

/** Request ids may run slightly ahead of the clock when it is set back. */
const clockSlackMs = hourMs;

/** Selects usage. Times are when the request ended: `from` is inclusive, `to` exclusive. */
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

/** Newest first: by end within an account, by start (the request id) across all accounts. Both use an index. */
export async function listUsage(
  db: Db,
  asked: UsageFilter & { readonly before?: UsageCursor; readonly limit?: number },
): Promise<readonly UsageRow[]> {
  const { accountId, before } = asked;
  const keptSince = await keptSinceOf(storedOn(db));
  const request = keptSince === 0 ? asked : { ...asked, from: Math.max(asked.from ?? 0, keptSince) };
  let query = db
    .selectFrom('usage')
    .selectAll()
    .where(matching(request))
    .where(inMonthsOf(db, request))
    .limit(pageOf(request.limit));
  if (accountId !== undefined) {
    query = query.orderBy('endedAt', 'desc').orderBy('requestId', 'desc');
    if (before !== undefined) {
      query = query.where((is) =>
        is(is.refTuple('endedAt', 'requestId'), '<', is.tuple(before.endedAt, before.requestId)),
      );
    }
  } else {
    query = query.orderBy('requestId', 'desc');
    if (before !== undefined) query = query.where('requestId', '<', before.requestId);
  }
  return (await query.execute()).map(toUsageRow);
}

/**
 * Finds requests of an account by any id that a user may have: the id from `x-request-id` (`req_…`, or `client_…` and the rest), the id
 * that the client sent, or the ledger's UUID. Public ids are short, so there may be several matches. Requests whose details are no longer
 * kept are not found.
 */
export async function findUsage(
  db: Db,
  request: { readonly accountId: string; readonly id: string; readonly now?: number },
): Promise<readonly UsageRow[]> {
  const keptSince = await keptSinceOf(storedOn(db));
  return (await findRows(db, request)).filter(({ endedAt }) => endedAt >= keptSince);
}

async function findRows(
  db: Db,
  request: { readonly accountId: string; readonly id: string; readonly now?: number },
): Promise<readonly UsageRow[]> {
  const { accountId, id, now = Date.now() } = request;
  const all = db.selectFrom('usage').selectAll().orderBy('requestId', 'desc').limit(20);
  const of = all.where('accountId', '=', accountId);
  const uuid = parseUuid(id);
  if (uuid !== undefined) {
    const rows = await of.where('requestId', '=', uuid).execute();
    if (rows.length > 0) return rows.map(toUsageRow);
  }
  for (const { from, below } of rangesOfPublicId(id, oldestUsageMs, now + clockSlackMs)) {
    const rows = await all
      // An expression, so that the planner uses the index by key time instead of reading all of the account's rows.
      .where(sql`coalesce(account_id, '')`, '=', accountId)
      .where('publicId', '=', id)
      .where('requestId', '>=', from)
      .where('requestId', '<', below)
      .execute();
    if (rows.length > 0) return rows.map(toUsageRow);
  }
  const sent = id.startsWith('client_') ? [id, id.slice('client_'.length)] : [id];
  return (await of.where('clientId', 'in', sent).execute()).map(toUsageRow);
}

/** The accounts that have a request with this id, ours or the ledger's: two at most, because public ids are short. */
export async function accountsOfRequest(
  db: Db,
  { id, now }: { readonly id: string; readonly now: number },
): Promise<readonly string[]> {
  const all = db.selectFrom('usage').select('accountId').distinct().limit(2);
  const uuid = parseUuid(id);
  const ranges = rangesOfPublicId(id, oldestUsageMs, now + clockSlackMs);
  const queries = [
    ...(uuid === undefined ? [] : [all.where('requestId', '=', uuid)]),
    ...ranges.map(({ from, below }) =>
      all.where('publicId', '=', id).where('requestId', '>=', from).where('requestId', '<', below),
    ),
  ];
  for (const query of queries) {
    const rows = await query.execute();
    if (rows.length > 0) return rows.map(({ accountId }) => accountId);
  }
  return [];
}

function matching(filter: UsageFilter) {
  return (is: ExpressionBuilder<Rows, 'usage'>): Expression<SqlBool> => {
    const conditions: Expression<SqlBool>[] = [];
    if (filter.accountId !== undefined) conditions.push(is('accountId', '=', filter.accountId));
    if (filter.keyId !== undefined) conditions.push(is('keyId', '=', filter.keyId));
    if (filter.modelId !== undefined) conditions.push(is('modelId', '=', filter.modelId));
    if (filter.tag !== undefined) conditions.push(sql<SqlBool>`tags like ${tagPattern(filter.tag)} escape '!'`);
    if (filter.from !== undefined) conditions.push(is('endedAt', '>=', filter.from));
    if (filter.to !== undefined) conditions.push(is('endedAt', '<', filter.to));
    return is.and(conditions);
  };
}

export const toUsageRow = ({
  zdr,
  backendAttempts: attempts,
  memberBudget,
  fallbacks,
  tier,
  queued,
  batchId,
  warnings,
  priceMultiple,
  ...row
}: Row<'usage'>): UsageRow => ({
  ...row,
  ...(zdr === null ? {} : { zdr }),
  ...(attempts === null ? {} : { attempts }),
  ...(memberBudget === null ? {} : { memberBudget }),
  ...(fallbacks === null ? {} : { fallbacks }),
  ...(tier === null ? {} : { tier }),
  ...(queued === null ? {} : { queued }),
  ...(batchId === null ? {} : { batchId }),
  ...(warnings === null ? {} : { warnings }),
  ...(priceMultiple === null ? {} : { priceMultiple }),
});
