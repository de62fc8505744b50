/** Servers that operators have added to a source of backends. */
import type { Kysely } from 'kysely';
import type { Row, Rows } from '../schema/codec.ts';
import { StoreError } from '../store-error.ts';

type Db = Kysely<Rows>;

/** Maximum for one source. */
const addedMax = 4_096;

export interface AddedBackend {
  readonly url: string;
  readonly rank?: number;
  readonly weight?: number;
}

/** Lists those of one source, in the order in which they were added. */
export async function listAddedBackends(
  db: Db,
  { model, source }: { readonly model: string; readonly source: string },
): Promise<readonly AddedBackend[]> {
  const rows = await db
    .selectFrom('added_backend')
    .select(['url', 'rank', 'weight'])
    .where('modelId', '=', model)
    .where('source', '=', source)
    .orderBy('addedAt')
    .orderBy('url')
    .limit(addedMax)
    .execute();
  return rows.map(({ url, rank, weight }) => ({
    url,
    ...(rank === null ? {} : { rank }),
    ...(weight === null ? {} : { weight }),
  }));
}

/** Adds a server, or changes its rank and weight. */
export async function addBackend(db: Db, row: Row<'added_backend'>): Promise<void> {
  const { modelId, source, url, rank, weight } = row;
  await db.transaction().execute(async (transaction) => {
    const changed = await transaction
      .updateTable('added_backend')
      .set({ rank, weight })
      .where('modelId', '=', modelId)
      .where('source', '=', source)
      .where('url', '=', url)
      .executeTakeFirst();
    if (changed.numUpdatedRows > 0n) return;
    const { count } = await transaction
      .selectFrom('added_backend')
      .select((is) => is.fn.countAll<number>().as('count'))
      .where('modelId', '=', modelId)
      .where('source', '=', source)
      .executeTakeFirstOrThrow();
    if (Number(count) >= addedMax) throw new StoreError('invalid', `A source has at most ${addedMax} servers.`);
    await transaction.insertInto('added_backend').values(row).execute();
  });
}

/** Returns whether it existed. */
export async function removeBackend(
  db: Db,
  { modelId, source, url }: Pick<Row<'added_backend'>, 'modelId' | 'source' | 'url'>,
): Promise<boolean> {
  const { numDeletedRows } = await db
    .deleteFrom('added_backend')
    .where('modelId', '=', modelId)
    .where('source', '=', source)
    .where('url', '=', url)
    .executeTakeFirst();
  return numDeletedRows > 0n;
}
