/** The individual requests of one account. */
import { sql, type Kysely, type SqlBool } from 'kysely';
import type { Ending, UsageRow } from '../ledger.ts';
import { timeOfUuid } from '../../platform/ids/uuid.ts';
import { keptSinceOf } from '../retention/retention.ts';
import { storedOn, type Row, type Rows } from '../schema/codec.ts';
import { toUsageRow, type UsageCursor } from './usage-rows.ts';
import { tagPattern } from '../reports/usage-expressions.ts';
import { inMonthsOf } from '../reports/usage-months.ts';
import { isKeyOf, type SumFilter } from '../reports/usage-sums.ts';

/** Selects requests. Times are when they ended: `from` is inclusive, `to` exclusive. */
export interface GenerationFilter extends SumFilter {
  readonly from?: number;
  readonly to?: number;
  readonly ending?: Ending;
  readonly errorCode?: string;
  readonly streamed?: boolean;
}

export interface GenerationPage {
  readonly rows: readonly UsageRow[];
  /** The cursor for the next page; undefined: this is the last one. A page with few rows or none may still have a next one. */
  readonly next: UsageCursor | undefined;
  /** Requests that ended before this time are on no page: their details are no longer kept. 0: all are kept. */
  readonly keptSince: number;
}

/** Maximum rows that one call reads, so that a filter that matches few of them delays no other call. */
const rowsLookedAtMax = 5_000;

/** Newest end first. */
export async function listGenerations(
  db: Kysely<Rows>,
  request: GenerationFilter & { readonly before?: UsageCursor; readonly limit: number },
): Promise<GenerationPage> {
  const { accountId, before, limit, userId, ownerId } = request;
  const keptSince = await keptSinceOf(storedOn(db));
  const from = keptSince === 0 ? request.from : Math.max(request.from ?? 0, keptSince);
  const to = Math.min(request.to ?? Infinity, before === undefined ? Infinity : before.endedAt + 1);
  const span = { ...(from === undefined ? {} : { from }), ...(to === Infinity ? {} : { to }) };
  let looked = db
    .selectFrom('usage')
    .where('accountId', '=', accountId)
    .where(inMonthsOf(db, span))
    .orderBy('endedAt', 'desc')
    .orderBy('requestId', 'desc');
  if (from !== undefined) looked = looked.where('endedAt', '>=', from);
  if (to !== Infinity) looked = looked.where('endedAt', '<', to);
  if (before !== undefined)
    looked = looked.where((is) =>
      is(is.refTuple('endedAt', 'requestId'), '<', is.tuple(before.endedAt, before.requestId)),
    );

  let query = db
    .selectFrom(looked.selectAll().limit(rowsLookedAtMax).as('looked'))
    .selectAll()
    .orderBy('endedAt', 'desc')
    .orderBy('requestId', 'desc')
    .limit(limit + 1);
  if (request.modelId !== undefined) query = query.where('modelId', '=', request.modelId);
  if (request.keyId !== undefined) query = query.where('keyId', '=', request.keyId);
  if (request.tier !== undefined) query = query.where('tier', '=', request.tier as Row<'usage'>['tier']);
  if (request.ending !== undefined) query = query.where('ending', '=', request.ending);
  if (request.errorCode !== undefined) query = query.where('errorCode', '=', request.errorCode);
  if (request.streamed !== undefined) query = query.where('streamed', '=', request.streamed);
  if (request.tag !== undefined) query = query.where(sql<SqlBool>`tags like ${tagPattern(request.tag)} escape '!'`);
  for (const user of [userId, ownerId]) if (user !== undefined) query = query.where(isKeyOf(accountId, user));
  const rows = (await query.execute()).map(toUsageRow);
  if (rows.length > limit) {
    const page = rows.slice(0, limit);
    const { endedAt, requestId } = page.at(-1)!;
    return { rows: page, next: { endedAt, requestId }, keptSince };
  }
  const last = await looked
    .select(['endedAt', 'requestId'])
    .offset(rowsLookedAtMax - 1)
    .limit(1)
    .executeTakeFirst();
  return { rows, next: last, keptSince };
}

/** The cursor for the page after a request; undefined: the account has no request with this id. */
export async function cursorOf(
  db: Kysely<Rows>,
  { accountId, requestId }: { readonly accountId: string; readonly requestId: Uint8Array },
): Promise<UsageCursor | undefined> {
  const row = await db
    .selectFrom('usage')
    .select('endedAt')
    .where('requestId', '=', requestId)
    .where('accountId', '=', accountId)
    .executeTakeFirst();
  if (row !== undefined) return { endedAt: row.endedAt, requestId };
  // It may have been removed while its pages were being read: what follows is older.
  const keptSince = await keptSinceOf(storedOn(db));
  return timeOfUuid(requestId) < keptSince ? { endedAt: keptSince, requestId: new Uint8Array(0) } : undefined;
}
