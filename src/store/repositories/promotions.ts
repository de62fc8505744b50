/** Promotional credit with an end: its unused part is derived from the ledger alone. */
import type { Kysely } from 'kysely';
import { costsSince } from '../reports/account-usage.ts';
import { inOneMoment } from '../one-moment.ts';
import { storedOn, type Row, type Rows } from '../schema/codec.ts';
import type { Database } from '../database.ts';

type Db = Kysely<Rows>;

/** It does not pay for requests that end at `expiresAt` or later. */
export type Promotion = Row<'promotion'>;

/** Promotions that ended before a time and are not closed, earliest first. */
export async function duePromotions(
  db: Db,
  request: { readonly expiredBefore: number; readonly limit: number },
): Promise<readonly Promotion[]> {
  const rows = await db
    .selectFrom('promotion')
    .selectAll()
    .where('closedAt', 'is', null)
    .where('expiresAt', '<', request.expiredBefore)
    .orderBy('expiresAt')
    .orderBy('transferId')
    .limit(request.limit)
    .execute();
  return rows;
}

/** The promotions of an account, earliest end first. */
export async function listPromotions(
  db: Db,
  request: { readonly accountId: string },
): Promise<readonly (Promotion & { readonly leftMicrocents: bigint })[]> {
  const promotions = await promotionsOf(db, request.accountId);
  const left = await inOneMoment(storedOn(db), (moment) => leftOf(moment, promotions));
  return promotions.map((promotion) => ({ ...promotion, leftMicrocents: left.get(promotion)! }));
}

/** The amount of a promotion left at its end. */
export async function promotionUnused(
  db: Db,
  request: { readonly accountId: string; readonly transferId: Uint8Array },
): Promise<bigint> {
  const promotions = await promotionsOf(db, request.accountId);
  const own = promotions.find(({ transferId }) => Buffer.compare(transferId, request.transferId) === 0);
  if (own === undefined) throw new Error('there is no such promotion');
  return (await inOneMoment(storedOn(db), (moment) => leftOf(moment, promotions))).get(own)!;
}

/** Closes a promotion of which nothing was left to take. */
export async function closePromotion(
  db: Db,
  request: { readonly transferId: Uint8Array; readonly at: number; readonly unusedMicrocents: bigint },
): Promise<void> {
  await db
    .updateTable('promotion')
    .set({ closedAt: request.at, unusedMicrocents: request.unusedMicrocents, takenMicrocents: 0n })
    .where('transferId', '=', request.transferId)
    .where('closedAt', 'is', null)
    .execute();
}

async function promotionsOf(db: Db, accountId: string): Promise<readonly Promotion[]> {
  const rows = await db
    .selectFrom('promotion')
    .selectAll()
    .where('accountId', '=', accountId)
    .orderBy('expiresAt')
    .orderBy('grantedAt')
    .orderBy('transferId')
    .execute();
  return rows;
}

/**
 * The rule (docs/payments.md): the cost of requests that ended between the grant and its end is paid from promotional credit first, and
 * among several grants from the one that ends first. Between two of those times the same promotions apply, so the sum of the charges is
 * sufficient.
 */
async function leftOf(
  moment: Kysely<Database>,
  promotions: readonly Promotion[],
): Promise<ReadonlyMap<Promotion, bigint>> {
  const left = new Map(promotions.map((promotion) => [promotion, promotion.amountMicrocents]));
  const times = [...new Set(promotions.flatMap(({ grantedAt, expiresAt }) => [grantedAt, expiresAt]))];
  times.sort((one, other) => one - other);
  const [first] = promotions;
  if (first === undefined) return left;
  const costSince = await costsSince(moment, first.accountId, times);
  for (let index = 0; index + 1 < times.length; index++) {
    const [from, to] = [times[index]!, times[index + 1]!];
    const live = promotions.filter(({ grantedAt, expiresAt }) => grantedAt <= from && expiresAt >= to);
    if (live.length === 0) continue;
    let cost = costSince(from) - costSince(to);
    for (const promotion of live) {
      const has = left.get(promotion)!;
      const paid = cost < has ? cost : has;
      left.set(promotion, has - paid);
      cost -= paid;
    }
  }
  return left;
}
