/** Automatic top-ups: their settings, the charge under way, and how often it failed. */
import { sql, type Kysely, type Selectable } from 'kysely';
import type { Database } from '../database.ts';
import { addNotice } from './notices.ts';
import { getTopup, type Topup } from './payments.ts';

type Db = Kysely<Database>;

export interface AutoTopup {
  readonly accountId: string;
  readonly enabled: boolean;
  readonly thresholdMicrocents: bigint;
  readonly amountMicrocents: bigint;
  /** In a calendar month, UTC. */
  readonly monthlyCapMicrocents: bigint;
  /** Consecutive. */
  readonly failures: number;
  /** It has given up, until it is set anew. */
  readonly stoppedAt: number | null;
  readonly stopReason: string | null;
  readonly pendingTopup: string | null;
  readonly by: string;
}

export async function getAutoTopup(db: Db, request: { readonly accountId: string }): Promise<AutoTopup | undefined> {
  const row = await db
    .selectFrom('auto_topup')
    .selectAll()
    .where('account_id', '=', request.accountId)
    .executeTakeFirst();
  return row === undefined ? undefined : toAutoTopup(row);
}

/** Sets it anew: failures are forgotten; a charge under way stays. */
export async function setAutoTopup(
  db: Db,
  request: Pick<
    AutoTopup,
    'accountId' | 'enabled' | 'thresholdMicrocents' | 'amountMicrocents' | 'monthlyCapMicrocents' | 'by'
  > & { readonly at: number },
): Promise<void> {
  const input = {
    enabled: request.enabled ? 1 : 0,
    threshold: request.thresholdMicrocents,
    amount: request.amountMicrocents,
    monthly_cap: request.monthlyCapMicrocents,
    failures: 0,
    stopped_at: null,
    stop_reason: null,
    updated_at: request.at,
    by: request.by,
  };
  await db
    .insertInto('auto_topup')
    .values({ account_id: request.accountId, charges: 0, pending_topup: null, ...input })
    .onConflict((on) => on.column('account_id').doUpdateSet(input))
    .execute();
}

/** Less than the threshold is free of holds; of `account` joined with `auto_topup`. */
const isBelowThreshold = sql<boolean>`available
  + coalesce((select sum(remaining) from credit_lease where credit_lease.account_id = account.id), 0)
  - coalesce((select sum(hold) from open_request where open_request.account_id = account.id), 0) < threshold`;

/** Accounts with a charge under way, or with less than their threshold free of holds. Bounded; `after` for the next ones. */
export async function dueAutoTopups(
  db: Db,
  request: { readonly after?: string; readonly retryBefore: number; readonly limit: number },
): Promise<readonly string[]> {
  const rows = await db
    .selectFrom('auto_topup')
    .innerJoin('account', 'account.id', 'auto_topup.account_id')
    .select('account.id')
    .where('auto_topup.account_id', '>', request.after ?? '')
    .where((is) =>
      is.or([
        is('pending_topup', 'is not', null),
        is.and([
          is('enabled', '=', 1n),
          is('stopped_at', 'is', null),
          is('account.status', '=', 'active'),
          is.or([is('failures', '=', 0n), is('updated_at', '<=', BigInt(request.retryBefore))]),
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
  /** The charge under way, begun now or before. */
  | { readonly kind: 'charge'; readonly topup: Topup }
  /** It would exceed the month's cap. */
  | { readonly kind: 'cap' }
  | { readonly kind: 'none' };

/**
 * The charge of an account that is due: the one under way, or a new one. One of several processes begins it: its row and the note
 * that it is under way are one transaction.
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
      .where('account_id', '=', accountId)
      .executeTakeFirst();
    if (row === undefined) return { kind: 'none' };
    if (row.pending_topup !== null) {
      const topup = await getTopup(transaction, { id: row.pending_topup, accountId });
      return topup === undefined ? { kind: 'none' } : { kind: 'charge', topup };
    }
    if (row.enabled !== 1n || row.stopped_at !== null) return { kind: 'none' };
    // It was listed while another process ended the charge under way: what that has credited may be enough.
    const stillDue = await transaction
      .selectFrom('auto_topup')
      .innerJoin('account', 'account.id', 'auto_topup.account_id')
      .select('account.id')
      .where('auto_topup.account_id', '=', accountId)
      .where(isBelowThreshold)
      .executeTakeFirst();
    if (stillDue === undefined) return { kind: 'none' };
    if ((await chargedSince(transaction, { accountId, from: monthFrom })) + row.amount > row.monthly_cap)
      return { kind: 'cap' };
    const claimed = await transaction
      .updateTable('auto_topup')
      .set({ pending_topup: topupId, charges: row.charges + 1n })
      .where('account_id', '=', accountId)
      .where('pending_topup', 'is', null)
      .where('charges', '=', row.charges)
      .executeTakeFirst();
    if (claimed.numUpdatedRows !== 1n) return { kind: 'none' };
    await transaction
      .insertInto('topup')
      .values({
        id: topupId,
        account_id: accountId,
        amount: row.amount,
        status: 'pending',
        origin: 'auto',
        provider,
        checkout_id: null,
        checkout_url: null,
        payment_id: null,
        returned: 0n,
        idempotency_key: `auto:${row.charges + 1n}`,
        success_url: null,
        cancel_url: null,
        created_at: at,
        paid_at: null,
        by: row.by,
      })
      .execute();
    return { kind: 'charge', topup: (await getTopup(transaction, { id: topupId, accountId }))! };
  });
}

/** What was charged automatically since a time, including the charge under way. */
export async function chargedSince(
  db: Db,
  request: { readonly accountId: string; readonly from: number },
): Promise<bigint> {
  const row = await db
    .selectFrom('topup')
    .select((of) => of.fn.sum<bigint | null>('amount').as('amount'))
    .where('account_id', '=', request.accountId)
    .where('origin', '=', 'auto')
    .where('status', 'not in', ['failed', 'expired'])
    .where('created_at', '>=', BigInt(request.from))
    .executeTakeFirstOrThrow();
  return row.amount ?? 0n;
}

/** The charge under way was paid. */
export async function endAutoTopup(
  db: Db,
  request: { readonly accountId: string; readonly topupId: string },
): Promise<void> {
  await db
    .updateTable('auto_topup')
    .set({ pending_topup: null, failures: 0 })
    .where('account_id', '=', request.accountId)
    .where('pending_topup', '=', request.topupId)
    .execute();
}

/**
 * The charge under way has failed; it is counted once, and the payers are notified of the last failure in the same transaction.
 * Resolves with the resulting state, or undefined: it was counted already.
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
      .set((of) => ({ pending_topup: null, failures: of('failures', '+', 1n), updated_at: at }))
      .where('account_id', '=', accountId)
      .where('pending_topup', '=', topupId)
      .executeTakeFirst();
    if (counted.numUpdatedRows !== 1n) return undefined;
    const stopped = await transaction
      .updateTable('auto_topup')
      .set({ stopped_at: at, stop_reason: reason })
      .where('account_id', '=', accountId)
      .where('failures', '>=', BigInt(failuresMax))
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

/** Addresses of the members who are notified about money: owners and billing members with a confirmed address. */
export async function payersOf(db: Db, request: { readonly accountId: string }): Promise<readonly string[]> {
  return (await payers(db, request.accountId)).map(({ email }) => email);
}

const payers = (db: Db, accountId: string) =>
  db
    .selectFrom('member')
    .innerJoin('auth_user', 'auth_user.id', 'member.user_id')
    .select(['auth_user.email as email', 'auth_user.id as userId'])
    .where('member.account_id', '=', accountId)
    .where('member.role', 'in', ['owner', 'billing'])
    .where('auth_user.emailVerified', '=', 1n)
    .orderBy('auth_user.email')
    .limit(payersMax)
    .execute();

const toAutoTopup = (row: Selectable<Database['auto_topup']>): AutoTopup => ({
  accountId: row.account_id,
  enabled: row.enabled === 1n,
  thresholdMicrocents: row.threshold,
  amountMicrocents: row.amount,
  monthlyCapMicrocents: row.monthly_cap,
  failures: Number(row.failures),
  stoppedAt: row.stopped_at === null ? null : Number(row.stopped_at),
  stopReason: row.stop_reason,
  pendingTopup: row.pending_topup,
  by: row.by,
});
