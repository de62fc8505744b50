/** Automatic top-ups: their settings, the charge in progress, and how often it failed. */
import { sql, type Kysely } from 'kysely';
import { storedOn, type Row, type Rows } from '../schema/codec.ts';
import { addNotice } from './notices.ts';
import { getTopup, type Topup } from './payments.ts';

type Db = Kysely<Rows>;

export type AutoTopup = Row<'auto_topup'>;

export async function getAutoTopup(db: Db, request: { readonly accountId: string }): Promise<AutoTopup | undefined> {
  return await db.selectFrom('auto_topup').selectAll().where('accountId', '=', request.accountId).executeTakeFirst();
}

/** Replaces the settings: failures are reset; a charge in progress stays. */
export async function setAutoTopup(
  db: Db,
  request: Pick<
    AutoTopup,
    'accountId' | 'enabled' | 'thresholdMicrocents' | 'amountMicrocents' | 'monthlyCapMicrocents' | 'by'
  > & { readonly at: number },
): Promise<void> {
  const { accountId, at, ...setting } = request;
  const input = { ...setting, failures: 0, stoppedAt: null, stopReason: null, updatedAt: at };
  await db
    .insertInto('auto_topup')
    .values({ accountId, charges: 0, pendingTopup: null, ...input })
    .onConflict((on) => on.column('accountId').doUpdateSet(input))
    .execute();
}

/** Whether less than the threshold is free of holds, for `account` joined with `auto_topup`. */
const isBelowThreshold = sql<boolean>`available
  + coalesce((select sum(remaining) from credit_lease where credit_lease.account_id = account.id), 0)
  - coalesce((select sum(hold) from open_request where open_request.account_id = account.id), 0) < threshold`;

/** Lists accounts that have a charge in progress or less than their threshold free of holds. Bounded; `after` continues. */
export async function dueAutoTopups(
  db: Db,
  request: { readonly after?: string; readonly retryBefore: number; readonly limit: number },
): Promise<readonly string[]> {
  const rows = await db
    .selectFrom('auto_topup')
    .innerJoin('account', 'account.id', 'auto_topup.accountId')
    .select('account.id')
    .where('auto_topup.accountId', '>', request.after ?? '')
    .where((is) =>
      is.or([
        is('pendingTopup', 'is not', null),
        is.and([
          is('enabled', '=', true),
          is('stoppedAt', 'is', null),
          is('account.status', '=', 'active'),
          is.or([is('failures', '=', 0), is('updatedAt', '<=', request.retryBefore)]),
          isBelowThreshold,
        ]),
      ]),
    )
    .orderBy('account.id')
    .limit(request.limit)
    .execute();
  return rows.map(({ id }) => id);
}

export type AutoTopupClaim =
  /** The charge in progress, begun now or before. */
  | { readonly kind: 'charge'; readonly topup: Topup }
  /** The charge would exceed the month's cap. */
  | { readonly kind: 'cap' }
  | { readonly kind: 'none' };

/**
 * Returns the charge of an account that is due: the one in progress, or a new one. Only one of several processes begins it: its row and its
 * in-progress mark are written in one transaction.
 */
export async function claimAutoTopup(
  db: Db,
  request: {
    readonly accountId: string;
    readonly topupId: string;
    readonly provider: string;
    readonly monthFrom: number;
    readonly at: number;
  },
): Promise<AutoTopupClaim> {
  const { accountId, topupId, provider, monthFrom, at } = request;
  return await db.transaction().execute(async (transaction): Promise<AutoTopupClaim> => {
    const row = await transaction
      .selectFrom('auto_topup')
      .selectAll()
      .where('accountId', '=', accountId)
      .executeTakeFirst();
    if (row === undefined) return { kind: 'none' };
    if (row.pendingTopup !== null) {
      const topup = await getTopup(transaction, { id: row.pendingTopup, accountId });
      return topup === undefined ? { kind: 'none' } : { kind: 'charge', topup };
    }
    if (!row.enabled || row.stoppedAt !== null) return { kind: 'none' };
    // It was listed while another process completed the charge in progress, whose credit may be enough.
    const stillDue = await transaction
      .selectFrom('auto_topup')
      .innerJoin('account', 'account.id', 'auto_topup.accountId')
      .select('account.id')
      .where('auto_topup.accountId', '=', accountId)
      .where(isBelowThreshold)
      .executeTakeFirst();
    if (stillDue === undefined) return { kind: 'none' };
    if (
      (await chargedSince(transaction, { accountId, from: monthFrom })) + row.amountMicrocents >
      row.monthlyCapMicrocents
    )
      return { kind: 'cap' };
    const claimed = await transaction
      .updateTable('auto_topup')
      .set({ pendingTopup: topupId, charges: row.charges + 1 })
      .where('accountId', '=', accountId)
      .where('pendingTopup', 'is', null)
      .where('charges', '=', row.charges)
      .executeTakeFirst();
    if (claimed.numUpdatedRows !== 1n) return { kind: 'none' };
    await transaction
      .insertInto('topup')
      .values({
        id: topupId,
        accountId,
        amountMicrocents: row.amountMicrocents,
        status: 'pending',
        origin: 'auto',
        provider,
        checkoutId: null,
        checkoutUrl: null,
        paymentId: null,
        returnedMicrocents: 0n,
        idempotencyKey: `auto:${row.charges + 1}`,
        successUrl: null,
        cancelUrl: null,
        createdAt: at,
        paidAt: null,
        by: row.by,
      })
      .execute();
    return { kind: 'charge', topup: (await getTopup(transaction, { id: topupId, accountId }))! };
  });
}

/** Returns what was charged automatically since a time, including the charge in progress. */
export async function chargedSince(
  db: Db,
  request: { readonly accountId: string; readonly from: number },
): Promise<bigint> {
  const row = await db
    .selectFrom('topup')
    .select((of) => of.fn.sum<bigint | null>('amountMicrocents').as('amountMicrocents'))
    .where('accountId', '=', request.accountId)
    .where('origin', '=', 'auto')
    .where('status', 'not in', ['failed', 'expired'])
    .where('createdAt', '>=', request.from)
    .executeTakeFirstOrThrow();
  return row.amountMicrocents ?? 0n;
}

/** Records that the charge in progress was paid. */
export async function endAutoTopup(
  db: Db,
  request: { readonly accountId: string; readonly topupId: string },
): Promise<void> {
  await db
    .updateTable('auto_topup')
    .set({ pendingTopup: null, failures: 0 })
    .where('accountId', '=', request.accountId)
    .where('pendingTopup', '=', request.topupId)
    .execute();
}

/**
 * Records that the charge in progress has failed; this is counted once, and the payers are notified of the last failure in the same
 * transaction. Resolves with the resulting state; undefined: it was already counted.
 */
export async function failAutoTopup(
  db: Db,
  request: {
    readonly accountId: string;
    readonly topupId: string;
    readonly reason: string;
    readonly failuresMax: number;
    readonly at: number;
  },
): Promise<AutoTopup | undefined> {
  const { accountId, topupId, reason, failuresMax, at } = request;
  return await db.transaction().execute(async (transaction) => {
    await transaction
      .updateTable('topup')
      .set({ status: 'failed' })
      .where('id', '=', topupId)
      .where('status', '=', 'pending')
      .execute();
    const counted = await transaction
      .updateTable('auto_topup')
      .set((of) => ({ pendingTopup: null, failures: of('failures', '+', 1), updatedAt: at }))
      .where('accountId', '=', accountId)
      .where('pendingTopup', '=', topupId)
      .executeTakeFirst();
    if (counted.numUpdatedRows !== 1n) return undefined;
    const stopped = await transaction
      .updateTable('auto_topup')
      .set({ stoppedAt: at, stopReason: reason })
      .where('accountId', '=', accountId)
      .where('failures', '>=', failuresMax)
      .executeTakeFirst();
    const after = (await getAutoTopup(transaction, { accountId }))!;
    if (stopped.numUpdatedRows === 1n)
      await addNotice(transaction, {
        id: `evt_${topupId}`,
        accountId,
        type: 'auto_topup.failed',
        data: JSON.stringify({ topup_id: topupId, failures: after.failures, reason }),
        recipients: { members: (await payers(transaction, accountId)).map(({ userId }) => userId), addresses: [] },
        isWebhook: true,
        at,
      });
    return after;
  });
}

const payersMax = 50;

/** Email addresses of the members notified about money: owners and billing members with a confirmed address. */
export async function payersOf(db: Db, request: { readonly accountId: string }): Promise<readonly string[]> {
  return (await payers(db, request.accountId)).map(({ email }) => email);
}

const payers = (db: Db, accountId: string) =>
  storedOn(db)
    .selectFrom('member')
    .innerJoin('auth_user', 'auth_user.id', 'member.user_id')
    .select(['auth_user.email as email', 'auth_user.id as userId'])
    .where('member.account_id', '=', accountId)
    .where('member.role', 'in', ['owner', 'billing'])
    .where('auth_user.emailVerified', '=', 1n)
    .orderBy('auth_user.email')
    .limit(payersMax)
    .execute();
