/** The rows of `change`, which record changes for as long as followers may query them. */
import type { Kysely } from 'kysely';
import type { ChangeKind, Database } from '../database.ts';
import type { Rows } from '../schema/codec.ts';

/** Followers poll for changes a few times a second. */
export const changesKeptMs = 3_600_000;
/** Maximum rows in one write, which settlements have to wait for. */
export const changesAtOnce = 1_000;

/** Deletes a bounded number of changes from before a time, and returns how many. For a store that no other process changes. */
export async function forgetChanges(db: Kysely<Database>, { before }: { readonly before: number }): Promise<number> {
  const oldest = db
    .selectFrom('change')
    .select('id')
    .where('at', '<', BigInt(before))
    .orderBy('at')
    .limit(changesAtOnce);
  const { numDeletedRows } = await db.deleteFrom('change').where('id', 'in', oldest).executeTakeFirst();
  return Number(numDeletedRows);
}

/** The change with this id; undefined: there is no such change. */
export async function findChange(
  db: Kysely<Database>,
  request: { readonly id: Uint8Array },
): Promise<{ readonly kind: string; readonly ref: string } | undefined> {
  return await db.selectFrom('change').where('id', '=', request.id).select(['kind', 'ref']).executeTakeFirst();
}

/** Records a change, in its transaction. */
export async function recordChange(
  transaction: Kysely<Rows>,
  id: Uint8Array,
  at: number,
  kind: ChangeKind,
  ref: string,
): Promise<void> {
  await transaction.insertInto('change').values({ id, at, kind, ref }).execute();
}
