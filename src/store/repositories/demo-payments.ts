/** The built-in payment provider's stored data: JSON objects with ids, as an external provider would have. */
import type { Kysely } from 'kysely';
import type { Row, Rows } from '../schema/codec.ts';

type Db = Kysely<Rows>;

/** `kind`: checkout, payment, refund, dispute, event. */
export type DemoObject = Omit<Row<'demo_payment_object'>, 'idempotencyKey'>;
export type NewDemoObject = Omit<Row<'demo_payment_object'>, 'version'>;

/** Creates an object, or resolves with the one that this idempotency key has already created. */
export async function makeDemoObject(db: Db, request: NewDemoObject): Promise<DemoObject> {
  await db
    .insertInto('demo_payment_object')
    .values({ ...request, version: 1 })
    .onConflict((on) => on.doNothing())
    .execute();
  let query = db.selectFrom('demo_payment_object').selectAll();
  query =
    request.idempotencyKey === null
      ? query.where('id', '=', request.id)
      : query.where('idempotencyKey', '=', request.idempotencyKey);
  return await query.executeTakeFirstOrThrow();
}

export async function getDemoObject(db: Db, request: { readonly id: string }): Promise<DemoObject | undefined> {
  return await db.selectFrom('demo_payment_object').selectAll().where('id', '=', request.id).executeTakeFirst();
}

/** Changes an object and creates others that result from it, atomically; false: it was changed since `version`. */
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
      .where('version', '=', request.version)
      .executeTakeFirst();
    if (changed.numUpdatedRows === 0n) return false;
    for (const made of request.also)
      await transaction
        .insertInto('demo_payment_object')
        .values({ ...made, version: 1 })
        .execute();
    return true;
  });
}

/** Oldest first, from a time on, after the object `after` if given. */
export async function listDemoObjects(
  db: Db,
  request: { readonly kind: string; readonly from: number; readonly after?: string; readonly limit: number },
): Promise<readonly DemoObject[]> {
  let query = db
    .selectFrom('demo_payment_object')
    .selectAll()
    .where('kind', '=', request.kind)
    .where('createdAt', '>=', request.from)
    .orderBy('id')
    .limit(request.limit);
  if (request.after !== undefined) query = query.where('id', '>', request.after);
  return await query.execute();
}
