/** Alerts of accounts. Every statement that concerns an account filters by it. */
import type { Kysely } from 'kysely';
import type { Row, Rows } from '../schema/codec.ts';
import { addNotice } from './notices.ts';
import type { Notice } from './notices.ts';

type Db = Kysely<Rows>;

export type Alert = Row<'alert'>;

/** The settings of an alert. */
export type AlertSetting = Pick<
  Alert,
  | 'kind'
  | 'name'
  | 'thresholdMicrocents'
  | 'runwayDays'
  | 'per'
  | 'subjectKind'
  | 'subject'
  | 'recipients'
  | 'isWebhook'
>;

/** The state before the first check. */
const unseen = {
  state: 'ok',
  observedMicrocents: null,
  lookedAt: null,
  firedAt: null,
  endedAt: null,
} as const;

/** Returns false if the account already has the maximum. */
export async function addAlert(
  db: Db,
  request: {
    readonly id: string;
    readonly accountId: string;
    readonly setting: AlertSetting;
    readonly at: number;
    readonly max: number;
  },
): Promise<boolean> {
  const { id, accountId, setting, at, max } = request;
  return await db.transaction().execute(async (transaction) => {
    const { count } = await transaction
      .selectFrom('alert')
      .where('accountId', '=', accountId)
      .select((of) => of.fn.countAll<bigint>().as('count'))
      .executeTakeFirstOrThrow();
    if (Number(count) >= max) return false;
    await transaction
      .insertInto('alert')
      .values({
        id,
        accountId: accountId,
        ...setting,
        ...unseen,
        createdAt: at,
        updatedAt: at,
        version: 1,
      })
      .execute();
    return true;
  });
}

/** Newest first within an account; by id across all accounts. */
export async function listAlerts(
  db: Db,
  request: { readonly accountId: string; readonly after?: string; readonly limit: number },
): Promise<readonly Alert[]> {
  let query = db
    .selectFrom('alert')
    .selectAll()
    .where('accountId', '=', request.accountId)
    .orderBy('id', 'desc')
    .limit(request.limit);
  if (request.after !== undefined) query = query.where('id', '<', request.after);
  return await query.execute();
}

export async function getAlert(
  db: Db,
  { accountId, id }: { readonly accountId: string; readonly id: string },
): Promise<Alert | undefined> {
  const row = await db
    .selectFrom('alert')
    .selectAll()
    .where('id', '=', id)
    .where('accountId', '=', accountId)
    .executeTakeFirst();
  return row;
}

/** undefined: no such alert. Its state returns to `ok`, and it may fire again the same day, because it is a different rule now. */
export async function changeAlert(
  db: Db,
  request: { readonly accountId: string; readonly id: string; readonly setting: AlertSetting; readonly at: number },
): Promise<Alert | undefined> {
  const { accountId, id, setting, at } = request;
  const row = await db
    .updateTable('alert')
    .set((is) => ({
      ...setting,
      ...unseen,
      updatedAt: at,
      version: is('version', '+', 1),
    }))
    .where('id', '=', id)
    .where('accountId', '=', accountId)
    .returningAll()
    .executeTakeFirst();
  return row;
}

export async function deleteAlert(
  db: Db,
  { accountId, id }: { readonly accountId: string; readonly id: string },
): Promise<boolean> {
  const { numDeletedRows } = await db
    .deleteFrom('alert')
    .where('id', '=', id)
    .where('accountId', '=', accountId)
    .executeTakeFirst();
  return numDeletedRows === 1n;
}

/** Returns a page of all alerts of active accounts, by id. */
export async function alertsToLookAt(
  db: Db,
  { after, limit }: { readonly after: string; readonly limit: number },
): Promise<readonly Alert[]> {
  const rows = await db
    .selectFrom('alert')
    .innerJoin('account', 'account.id', 'alert.accountId')
    .selectAll('alert')
    .where('account.status', '=', 'active')
    .where('alert.id', '>', after)
    .orderBy('alert.id')
    .limit(limit)
    .execute();
  return rows;
}

/** Records the result of checking an alert, and the resulting event. false: it was changed meanwhile; nothing was done. */
export async function noteLook(
  db: Db,
  request: {
    readonly alert: Pick<Alert, 'id' | 'version'>;
    readonly state: 'ok' | 'fired';
    readonly observedMicrocents: bigint;
    readonly firedAt: number | null;
    readonly endedAt: number | null;
    readonly at: number;
    readonly notice: Notice | null;
  },
): Promise<boolean> {
  const { alert, notice } = request;
  return await db.transaction().execute(async (transaction) => {
    const { numUpdatedRows } = await transaction
      .updateTable('alert')
      .set((is) => ({
        state: request.state,
        observedMicrocents: request.observedMicrocents,
        lookedAt: request.at,
        firedAt: request.firedAt,
        endedAt: request.endedAt,
        version: is('version', '+', 1),
      }))
      .where('id', '=', alert.id)
      .where('version', '=', alert.version)
      .executeTakeFirst();
    if (numUpdatedRows !== 1n) return false;
    if (notice !== null) await addNotice(transaction, notice);
    return true;
  });
}
