/** Webhook endpoints and their deliveries. Every statement that concerns an account filters by it. */
import { sql, type Kysely } from 'kysely';
import type { Row, Rows } from '../schema/codec.ts';

type Db = Kysely<Rows>;

export type WebhookEndpoint = Row<'webhook_endpoint'>;

/** Returns false if the account already has the maximum. */
export async function addWebhookEndpoint(
  db: Db,
  request: Pick<WebhookEndpoint, 'id' | 'accountId' | 'url' | 'description' | 'events'> & {
    readonly at: number;
    readonly max: number;
  },
): Promise<boolean> {
  const { id, accountId, url, description, events, at, max } = request;
  return await db.transaction().execute(async (transaction) => {
    const { count } = await transaction
      .selectFrom('webhook_endpoint')
      .where('accountId', '=', accountId)
      .where('status', '<>', 'deleted')
      .select((of) => of.fn.countAll<bigint>().as('count'))
      .executeTakeFirstOrThrow();
    if (Number(count) >= max) return false;
    await transaction
      .insertInto('webhook_endpoint')
      .values({
        id,
        accountId,
        url,
        description,
        events,
        secretVersion: 1,
        status: 'active',
        reason: null,
        createdAt: at,
        updatedAt: at,
        failingSince: null,
      })
      .execute();
    return true;
  });
}

/** Newest first. */
export async function listWebhookEndpoints(
  db: Db,
  request: { readonly accountId?: string; readonly after?: string; readonly limit: number },
): Promise<readonly WebhookEndpoint[]> {
  let query = db
    .selectFrom('webhook_endpoint')
    .selectAll()
    .where('status', '<>', 'deleted')
    .orderBy('id', 'desc')
    .limit(request.limit);
  if (request.accountId !== undefined) query = query.where('accountId', '=', request.accountId);
  if (request.after !== undefined) query = query.where('id', '<', request.after);
  return await query.execute();
}

/** Accounts that have an active endpoint, in the order of their ids. */
export async function accountsWithEndpoints(
  db: Db,
  { after, limit }: { readonly after: string; readonly limit: number },
): Promise<readonly string[]> {
  const rows = await db
    .selectFrom('webhook_endpoint')
    .select('accountId')
    .distinct()
    .where('status', '=', 'active')
    .where('accountId', '>', after)
    .orderBy('accountId')
    .limit(limit)
    .execute();
  return rows.map(({ accountId }) => accountId);
}

/** Finds an endpoint in one account or any. */
export async function getWebhookEndpoint(
  db: Db,
  request: { readonly accountId?: string; readonly id: string },
): Promise<WebhookEndpoint | undefined> {
  let query = db
    .selectFrom('webhook_endpoint')
    .selectAll()
    .where('id', '=', request.id)
    .where('status', '<>', 'deleted');
  if (request.accountId !== undefined) query = query.where('accountId', '=', request.accountId);
  return await query.executeTakeFirst();
}

/** Changes an endpoint; undefined fields stay. Returns undefined if there is no such endpoint. Activating one resets its failures. */
export async function changeWebhookEndpoint(
  db: Db,
  request: {
    readonly accountId: string;
    readonly id: string;
    readonly url?: string;
    readonly description?: string;
    readonly events?: readonly string[] | null;
    readonly isEnabled?: boolean;
    readonly at: number;
  },
): Promise<WebhookEndpoint | undefined> {
  const { url, description, events, isEnabled } = request;
  return await db
    .updateTable('webhook_endpoint')
    .set({
      updatedAt: request.at,
      ...(url === undefined ? {} : { url }),
      ...(description === undefined ? {} : { description }),
      ...(events === undefined ? {} : { events }),
      ...(isEnabled === undefined
        ? {}
        : isEnabled
          ? { status: 'active', reason: null, failingSince: null }
          : { status: 'disabled', reason: 'asked' }),
    })
    .where('id', '=', request.id)
    .where('accountId', '=', request.accountId)
    .where('status', '<>', 'deleted')
    .returningAll()
    .executeTakeFirst();
}

/** Deletes an endpoint and its waiting deliveries; false: there is no such endpoint. */
export async function deleteWebhookEndpoint(
  db: Db,
  { accountId, id, at }: { readonly accountId: string; readonly id: string; readonly at: number },
): Promise<boolean> {
  return await db.transaction().execute(async (transaction) => {
    const { numUpdatedRows } = await transaction
      .updateTable('webhook_endpoint')
      .set({ status: 'deleted', updatedAt: at })
      .where('id', '=', id)
      .where('accountId', '=', accountId)
      .where('status', '<>', 'deleted')
      .executeTakeFirst();
    if (numUpdatedRows !== 1n) return false;
    await transaction
      .updateTable('webhook_delivery')
      .set({ state: 'dropped', nextAt: null })
      .where('endpointId', '=', id)
      .where('state', '=', 'waiting')
      .execute();
    return true;
  });
}

export interface Emitted {
  readonly waiting: number;
  /** How many were dropped because the account's queue was full. */
  readonly dropped: number;
}

/**
 * Records an event for each endpoint of an account that subscribes to it; a repeated event is recorded once. If too many deliveries are
 * already waiting, it is stored as dropped, so that it can be seen and replayed.
 */
export async function addWebhookEvent(
  db: Db,
  request: {
    readonly accountId: string;
    readonly eventId: string;
    readonly type: string;
    /** The body as sent. */
    readonly body: string;
    readonly at: number;
    readonly waitingMax: number;
    /** One for each endpoint that the account may have. */
    readonly ids: readonly string[];
    /** Only this endpoint, regardless of the events it subscribes to: a test. */
    readonly endpointId?: string;
  },
): Promise<Emitted> {
  const { accountId, eventId, type, body, at, waitingMax, ids, endpointId } = request;
  return await db.transaction().execute(async (transaction) => {
    const endpoints = await transaction
      .selectFrom('webhook_endpoint')
      .select(['id', 'events'])
      .where('accountId', '=', accountId)
      .where('status', '=', 'active')
      .orderBy('id')
      .limit(ids.length)
      .execute();
    const wanted = endpoints.filter(({ id, events }) =>
      endpointId === undefined ? events === null || events.includes(type) : id === endpointId,
    );
    if (wanted.length === 0) return { waiting: 0, dropped: 0 };
    const { count } = await transaction
      .selectFrom('webhook_delivery')
      .where('accountId', '=', accountId)
      .where('state', '=', 'waiting')
      .select((of) => of.fn.countAll<bigint>().as('count'))
      .executeTakeFirstOrThrow();
    let waiting = Number(count);
    const emitted = { waiting: 0, dropped: 0 };
    for (const [index, { id }] of wanted.entries()) {
      const isRoom = waiting < waitingMax;
      const { numInsertedOrUpdatedRows } = await transaction
        .insertInto('webhook_delivery')
        .values({
          id: ids[index]!,
          endpointId: id,
          accountId,
          eventId,
          type,
          body,
          state: isRoom ? 'waiting' : 'dropped',
          tries: 0,
          nextAt: isRoom ? at : null,
          createdAt: at,
          triedAt: null,
          deliveredAt: null,
          status: null,
          answer: null,
          failure: isRoom ? null : 'too many deliveries of the account were waiting',
        })
        .onConflict((conflict) => conflict.columns(['endpointId', 'eventId']).doNothing())
        .executeTakeFirst();
      if (numInsertedOrUpdatedRows !== 1n) continue;
      if (isRoom) waiting++;
      emitted[isRoom ? 'waiting' : 'dropped']++;
    }
    return emitted;
  });
}

export type WebhookDelivery = Row<'webhook_delivery'>;

/** A delivery that is due, and its destination. */
export interface DueDelivery extends WebhookDelivery {
  readonly url: string;
  readonly secretVersion: number;
}

/**
 * Claims due deliveries, at most `perAccountMax` of one account, so that a slow receiver delays only its own account. They belong to the
 * caller until `claimedUntil`; after that, for example if it has died, others claim them.
 */
export async function claimDeliveries(
  db: Db,
  request: {
    readonly now: number;
    readonly claimedUntil: number;
    readonly limit: number;
    readonly perAccountMax: number;
  },
): Promise<readonly DueDelivery[]> {
  const { now, claimedUntil, limit, perAccountMax } = request;
  const due = db
    .selectFrom('webhook_delivery')
    .innerJoin('webhook_endpoint', 'webhook_endpoint.id', 'webhook_delivery.endpointId')
    .selectAll('webhook_delivery')
    .select(['webhook_endpoint.url', 'webhook_endpoint.secretVersion'])
    .select(
      sql<bigint>`row_number() over (partition by webhook_delivery.account_id order by next_at, webhook_delivery.id)`.as(
        'place',
      ),
    )
    .where('nextAt', '<=', now)
    .where('webhook_endpoint.status', '=', 'active');
  const rows = await db
    .selectFrom(due.as('due'))
    .selectAll()
    .where('place', '<=', BigInt(perAccountMax))
    .orderBy('nextAt')
    .orderBy('id')
    .limit(limit)
    .execute();
  const claimed: DueDelivery[] = [];
  for (const row of rows) {
    const { numUpdatedRows } = await db
      .updateTable('webhook_delivery')
      .set({ nextAt: claimedUntil })
      .where('id', '=', row.id)
      // Only one of several concurrent callers succeeds.
      .where('nextAt', '=', row.nextAt)
      .executeTakeFirst();
    if (numUpdatedRows === 1n) claimed.push({ ...row, nextAt: claimedUntil });
  }
  return claimed;
}

export interface Tried {
  readonly id: string;
  readonly endpointId: string;
  /** The value at the claim, so that another process that has taken over meanwhile is not disturbed. */
  readonly claimedUntil: number;
  readonly at: number;
  readonly isDelivered: boolean;
  readonly status: number | null;
  readonly answer: string | null;
  readonly failure: string | null;
  /** When to retry; null: never. */
  readonly nextAt: number | null;
  /** An endpoint that has been failing since this time or longer is disabled. */
  readonly disableBefore: number;
}

/** Records the outcome of a try. `disabled`: this try has disabled the endpoint. */
export async function noteTry(db: Db, tried: Tried): Promise<'noted' | 'disabled' | 'taken'> {
  return await db.transaction().execute(async (transaction) => {
    const { isDelivered, at, nextAt } = tried;
    const { numUpdatedRows } = await transaction
      .updateTable('webhook_delivery')
      .set((is) => ({
        state: isDelivered ? 'delivered' : nextAt === null ? 'failed' : 'waiting',
        tries: is('tries', '+', 1),
        nextAt: isDelivered ? null : nextAt,
        triedAt: at,
        deliveredAt: isDelivered ? at : null,
        status: tried.status,
        answer: tried.answer,
        failure: tried.failure,
      }))
      .where('id', '=', tried.id)
      .where('nextAt', '=', tried.claimedUntil)
      .executeTakeFirst();
    if (numUpdatedRows !== 1n) return 'taken';
    const endpoint = transaction.updateTable('webhook_endpoint').where('id', '=', tried.endpointId);
    if (isDelivered) {
      await endpoint.set({ failingSince: null }).where('failingSince', 'is not', null).execute();
      return 'noted';
    }
    await endpoint.set({ failingSince: at }).where('failingSince', 'is', null).execute();
    const disabled = await endpoint
      .set({ status: 'disabled', reason: 'failing', updatedAt: at })
      .where('status', '=', 'active')
      .where('failingSince', '<=', tried.disableBefore)
      .executeTakeFirst();
    return disabled.numUpdatedRows === 1n ? 'disabled' : 'noted';
  });
}

/** Newest first. */
export async function listDeliveries(
  db: Db,
  request: { readonly accountId: string; readonly endpointId: string; readonly after?: string; readonly limit: number },
): Promise<readonly WebhookDelivery[]> {
  let query = db
    .selectFrom('webhook_delivery')
    .selectAll()
    .where('endpointId', '=', request.endpointId)
    .where('accountId', '=', request.accountId)
    .orderBy('id', 'desc')
    .limit(request.limit);
  if (request.after !== undefined) query = query.where('id', '<', request.after);
  return await query.execute();
}

/** Sends a delivery again, starting from the first pause. undefined: it does not exist, or its endpoint is gone or disabled. */
export async function replayDelivery(
  db: Db,
  { accountId, id, at }: { readonly accountId?: string; readonly id: string; readonly at: number },
): Promise<WebhookDelivery | undefined> {
  let query = db
    .updateTable('webhook_delivery')
    .set({ state: 'waiting', nextAt: at, tries: 0, failure: null })
    .where('id', '=', id)
    .where('endpointId', 'in', (of) =>
      of.selectFrom('webhook_endpoint').select('webhook_endpoint.id').where('status', '=', 'active'),
    );
  if (accountId !== undefined) query = query.where('accountId', '=', accountId);
  return await query.returningAll().executeTakeFirst();
}

/** Deletes a bounded number of old deliveries, and those that wait for disabled endpoints. Returns how many. */
export async function forgetDeliveries(
  db: Db,
  { before, limit }: { readonly before: number; readonly limit: number },
): Promise<number> {
  const { numDeletedRows } = await db
    .deleteFrom('webhook_delivery')
    .where('id', 'in', (of) =>
      of.selectFrom('webhook_delivery').select('id').where('createdAt', '<', before).orderBy('createdAt').limit(limit),
    )
    .executeTakeFirst();
  return Number(numDeletedRows);
}
