/** What the built-in payment provider stores: JSON objects with ids, as an external provider would. */
import type { Kysely, Selectable } from 'kysely';
import type { Database } from '../database.ts';

type Db = Kysely<Database>;

export interface DemoObject {
  readonly id: string;
  /** checkout, payment, refund, dispute, event. */
  readonly kind: string;
  readonly version: number;
  readonly createdAt: number;
  /** JSON. */
  readonly body: string;
}

export interface NewDemoObject extends Omit<DemoObject, 'version'> {
  readonly idempotencyKey: string | null;
}

/** Makes an object, or resolves with the one that this idempotency key has already made. */
export async function makeDemoObject(db: Db, request: NewDemoObject): Promise<DemoObject> {
  await db
    .insertInto('demo_payment_object')
    .values({
      id: request.id,
      kind: request.kind,
      idempotency_key: request.idempotencyKey,
      version: 1,
      created_at: request.createdAt,
      body: request.body,
    })
    .onConflict((on) => on.doNothing())
    .execute();
  let query = db.selectFrom('demo_payment_object').selectAll();
  query =
    request.idempotencyKey === null
      ? query.where('id', '=', request.id)
      : query.where('idempotency_key', '=', request.idempotencyKey);
  return toObject(await query.executeTakeFirstOrThrow());
}

export async function getDemoObject(db: Db, request: { readonly id: string }): Promise<DemoObject | undefined> {
  const row = await db.selectFrom('demo_payment_object').selectAll().where('id', '=', request.id).executeTakeFirst();
  return row === undefined ? undefined : toObject(row);
}

/** Changes an object and makes others that follow from it, all or nothing; false: it was changed since `version`. */
export async function changeDemoObject(
  db: Db,
  request: {
    readonly id: string;
    readonly version: number;
    readonly body: string;
    readonly also: readonly NewDemoObject[];
  },
): Promise<boolean> {
  return await db.transaction().execute(async (transaction) => {
    const changed = await transaction
      .updateTable('demo_payment_object')
      .set({ body: request.body, version: request.version + 1 })
      .where('id', '=', request.id)
      .where('version', '=', BigInt(request.version))
      .executeTakeFirst();
    if (changed.numUpdatedRows === 0n) return false;
    for (const { idempotencyKey, createdAt, ...rest } of request.also)
      await transaction
        .insertInto('demo_payment_object')
        .values({ ...rest, idempotency_key: idempotencyKey, created_at: createdAt, version: 1 })
        .execute();
    return true;
  });
}

/** Oldest first, from a time on, after the object `after` where given. */
export async function listDemoObjects(
  db: Db,
  request: { readonly kind: string; readonly from: number; readonly after?: string; readonly limit: number },
): Promise<readonly DemoObject[]> {
  let query = db
    .selectFrom('demo_payment_object')
    .selectAll()
    .where('kind', '=', request.kind)
    .where('created_at', '>=', BigInt(request.from))
    .orderBy('id')
    .limit(request.limit);
  if (request.after !== undefined) query = query.where('id', '>', request.after);
  return (await query.execute()).map(toObject);
}

const toObject = (row: Selectable<Database['demo_payment_object']>): DemoObject => ({
  id: row.id,
  kind: row.kind,
  version: Number(row.version),
  createdAt: Number(row.created_at),
  body: row.body,
});
