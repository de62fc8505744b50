/** Alerts of accounts. Every statement about an account names it. */
import type { Kysely, Selectable } from 'kysely';
import type { AlertInterval, AlertKind, AlertSubject, Database } from '../database.ts';
import { addNotice } from './notices.ts';
import type { Notice, Recipients } from './notices.ts';

type Db = Kysely<Database>;

/** The settings of an alert. */
export interface AlertSetting {
  readonly kind: AlertKind;
  readonly name: string;
  /** Threshold of spending or of the balance; null: `runwayDays` is the threshold. */
  readonly thresholdMicrocents: bigint | null;
  readonly runwayDays: number | null;
  readonly per: AlertInterval | null;
  readonly subjectKind: AlertSubject;
  readonly subject: string | null;
  readonly recipients: Recipients;
  readonly isWebhook: boolean;
}

export interface Alert extends AlertSetting {
  readonly id: string;
  readonly accountId: string;
  readonly createdAt: number;
  readonly updatedAt: number;
  readonly state: 'ok' | 'fired';
  /** Seen at the last look: microcents; null: nothing yet. */
  readonly observedMicrocents: bigint | null;
  readonly lookedAt: number | null;
  readonly firedAt: number | null;
  readonly endedAt: number | null;
  readonly version: number;
}

/** False: the account has the maximum already. */
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
      .where('account_id', '=', accountId)
      .select((of) => of.fn.countAll<bigint>().as('count'))
      .executeTakeFirstOrThrow();
    if (Number(count) >= max) return false;
    await transaction
      .insertInto('alert')
      .values({
        id,
        account_id: accountId,
        ...columnsOf(setting),
        created_at: at,
        updated_at: at,
        state: 'ok',
        observed: null,
        looked_at: null,
        fired_at: null,
        ended_at: null,
        version: 1,
      })
      .execute();
    return true;
  });
}

/** Newest first within an account; by id over all accounts. */
export async function listAlerts(
  db: Db,
  request: { readonly accountId: string; readonly after?: string; readonly limit: number },
): Promise<readonly Alert[]> {
  let query = db
    .selectFrom('alert')
    .selectAll()
    .where('account_id', '=', request.accountId)
    .orderBy('id', 'desc')
    .limit(request.limit);
  if (request.after !== undefined) query = query.where('id', '<', request.after);
  return (await query.execute()).map(toAlert);
}

export async function getAlert(
  db: Db,
  { accountId, id }: { readonly accountId: string; readonly id: string },
): Promise<Alert | undefined> {
  const row = await db
    .selectFrom('alert')
    .selectAll()
    .where('id', '=', id)
    .where('account_id', '=', accountId)
    .executeTakeFirst();
  return row === undefined ? undefined : toAlert(row);
}

/** undefined: no such alert. It is `ok` again, and may fire again the same day: it is another rule. */
export async function changeAlert(
  db: Db,
  request: { readonly accountId: string; readonly id: string; readonly setting: AlertSetting; readonly at: number },
): Promise<Alert | undefined> {
  const { accountId, id, setting, at } = request;
  const row = await db
    .updateTable('alert')
    .set((is) => ({
      ...columnsOf(setting),
      updated_at: at,
      state: 'ok',
      observed: null,
      looked_at: null,
      fired_at: null,
      ended_at: null,
      version: is('version', '+', 1n),
    }))
    .where('id', '=', id)
    .where('account_id', '=', accountId)
    .returningAll()
    .executeTakeFirst();
  return row === undefined ? undefined : toAlert(row);
}

export async function deleteAlert(
  db: Db,
  { accountId, id }: { readonly accountId: string; readonly id: string },
): Promise<boolean> {
  const { numDeletedRows } = await db
    .deleteFrom('alert')
    .where('id', '=', id)
    .where('account_id', '=', accountId)
    .executeTakeFirst();
  return numDeletedRows === 1n;
}

/** A page of all alerts of active accounts, by id. */
export async function alertsToLookAt(
  db: Db,
  { after, limit }: { readonly after: string; readonly limit: number },
): Promise<readonly Alert[]> {
  const rows = await db
    .selectFrom('alert')
    .innerJoin('account', 'account.id', 'alert.account_id')
    .selectAll('alert')
    .where('account.status', '=', 'active')
    .where('alert.id', '>', after)
    .orderBy('alert.id')
    .limit(limit)
    .execute();
  return rows.map(toAlert);
}

/** Records what a look at an alert has seen, and the event that follows. False: it was changed meanwhile; nothing was done. */
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
        observed: request.observedMicrocents,
        looked_at: request.at,
        fired_at: request.firedAt,
        ended_at: request.endedAt,
        version: is('version', '+', 1n),
      }))
      .where('id', '=', alert.id)
      .where('version', '=', BigInt(alert.version))
      .executeTakeFirst();
    if (numUpdatedRows !== 1n) return false;
    if (notice !== null) await addNotice(transaction, notice);
    return true;
  });
}

const columnsOf = (setting: AlertSetting) => ({
  kind: setting.kind,
  name: setting.name,
  threshold: setting.thresholdMicrocents,
  runway_days: setting.runwayDays,
  per: setting.per,
  subject_kind: setting.subjectKind,
  subject: setting.subject,
  recipients: JSON.stringify(setting.recipients),
  webhook: setting.isWebhook ? 1 : 0,
});

const toAlert = (row: Selectable<Database['alert']>): Alert => ({
  id: row.id,
  accountId: row.account_id,
  kind: row.kind,
  name: row.name,
  thresholdMicrocents: row.threshold,
  runwayDays: numberOrNull(row.runway_days),
  per: row.per,
  subjectKind: row.subject_kind,
  subject: row.subject,
  recipients: JSON.parse(row.recipients) as Recipients,
  isWebhook: row.webhook !== 0n,
  createdAt: Number(row.created_at),
  updatedAt: Number(row.updated_at),
  state: row.state,
  observedMicrocents: row.observed,
  lookedAt: numberOrNull(row.looked_at),
  firedAt: numberOrNull(row.fired_at),
  endedAt: numberOrNull(row.ended_at),
  version: Number(row.version),
});

const numberOrNull = (value: bigint | null): number | null => (value === null ? null : Number(value));
