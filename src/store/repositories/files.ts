/** Queries about files. Every statement filters by account: another account's file does not exist (reliability §3.5). */
import { sql, type Kysely, type SqlBool } from 'kysely';
import type { Row, Rows } from '../schema/codec.ts';

type Db = Kysely<Rows>;

/** A complete file. */
export type FileRow = Omit<Row<'file'>, 'state' | 'replicaId'>;

/** Limits on the files of an account. */
export interface FileBounds {
  readonly filesMax: number;
  readonly bytesMax: number;
}

/** Only needed by a process that shares its database. */
export interface AmongReplicas {
  /** Id of this process. */
  readonly replica: Uint8Array;
  /** Serializes the beginnings of uploads to one account until the transaction ends. */
  readonly queue: (transaction: Db, accountId: string) => Promise<unknown>;
}

/**
 * Records that a file of at most this many bytes is arriving: concurrent arrivals count too, so the limits hold for all of them together.
 * false: there is no room in the account.
 */
export async function beginFile(
  db: Db,
  request: {
    readonly id: string;
    readonly accountId: string;
    readonly bytesMax: number;
    readonly at: number;
    readonly bounds: FileBounds;
  },
  among?: AmongReplicas,
): Promise<boolean> {
  const { id, accountId, bytesMax, at, bounds } = request;
  return await db.transaction().execute(async (transaction) => {
    await among?.queue(transaction, accountId);
    const held = await transaction
      .selectFrom('file')
      .select(({ fn }) => [fn.countAll<bigint>().as('files'), fn.sum<bigint | null>('bytes').as('bytes')])
      .where('accountId', '=', accountId)
      .executeTakeFirstOrThrow();
    const bytes = Number(held.bytes ?? 0n) + bytesMax;
    if (Number(held.files) >= bounds.filesMax || bytes > bounds.bytesMax) return false;
    await transaction
      .insertInto('file')
      .values({
        id,
        accountId,
        state: 'arriving',
        name: '',
        mediaType: '',
        purpose: null,
        bytes: bytesMax,
        createdAt: at,
        expiresAt: null,
        replicaId: among?.replica ?? null,
      })
      .execute();
    return true;
  });
}

/** Makes it a complete file; false: it was abandoned meanwhile. */
export async function finishFile(db: Db, { id, accountId, ...changes }: FileRow): Promise<boolean> {
  const updated = await db
    .updateTable('file')
    .set({ ...changes, state: 'ready' })
    .where('id', '=', id)
    .where('accountId', '=', accountId)
    .where('state', '=', 'arriving')
    .executeTakeFirst();
  return updated.numUpdatedRows === 1n;
}

export async function getFile(
  db: Db,
  request: { readonly accountId: string; readonly id: string; readonly now: number },
): Promise<FileRow | undefined> {
  return await readable(db, request).where('id', '=', request.id).executeTakeFirst();
}

/** Where a page begins: after, or before, this position in the order. */
export interface FileCursor {
  readonly createdAt: number;
  readonly id: string;
}

export interface FileListRequest {
  readonly accountId: string;
  readonly now: number;
  readonly purpose?: string | undefined;
  readonly ids?: readonly string[] | undefined;
  readonly order: 'newest' | 'oldest';
  /** Exclusive; in the direction of the order. */
  readonly after?: FileCursor | undefined;
  /** Exclusive: the page that ends just before it. */
  readonly before?: FileCursor | undefined;
  readonly limit: number;
}

export interface FilePage {
  readonly files: readonly FileRow[];
  /** Whether there are more in the requested direction. */
  readonly hasMore: boolean;
}

export async function listFiles(db: Db, request: FileListRequest): Promise<FilePage> {
  const { purpose, ids, order, after, before, limit } = request;
  const isBackward = before !== undefined;
  const isDescending = (order === 'newest') !== isBackward;
  let query = readable(db, request)
    .orderBy('createdAt', isDescending ? 'desc' : 'asc')
    .orderBy('id', isDescending ? 'desc' : 'asc')
    .limit(limit + 1);
  if (purpose !== undefined) query = query.where('purpose', '=', purpose);
  if (ids !== undefined) query = query.where('id', 'in', ids);
  const from = before ?? after;
  if (from !== undefined) {
    const beyond = isDescending ? ('<' as const) : ('>' as const);
    query = query.where(({ eb, and, or }) =>
      or([
        eb('createdAt', beyond, from.createdAt),
        and([eb('createdAt', '=', from.createdAt), eb('id', beyond, from.id)]),
      ]),
    );
  }
  const rows = await query.execute();
  const page = rows.slice(0, limit);
  return { files: isBackward ? page.reverse() : page, hasMore: rows.length > limit };
}

/**
 * Makes it no longer a file; undefined: there is no such file. `read`: a batch reads it, so it stays; it is locked before that is looked up,
 * as it is when a batch begins to read it.
 */
export async function leaveFile(
  db: Db,
  request: { readonly accountId: string; readonly id: string; readonly now: number },
  locks = false,
): Promise<FileRow | 'read' | undefined> {
  return await db.transaction().execute(async (transaction) => {
    const file = readable(transaction, request).where('id', '=', request.id);
    const row = await (locks ? file.forUpdate() : file).executeTakeFirst();
    if (row === undefined) return undefined;
    const reader = await transaction
      .selectFrom('batch')
      .select('id')
      .where(isReader)
      .where('inputFileId', '=', request.id)
      .executeTakeFirst();
    if (reader !== undefined) return 'read';
    await transaction.updateTable('file').set({ state: 'leaving' }).where('id', '=', request.id).execute();
    return row;
  });
}

/** Matches batches that read their files. Written out, because a partial index serves no parameter. */
const isReader = sql<SqlBool>`has_lines = 1 and ended_at is null`;

/** Deletes the rows of files whose bytes are gone. */
export async function forgetFiles(db: Db, request: { readonly ids: readonly string[] }): Promise<void> {
  if (request.ids.length === 0) return;
  await db.deleteFrom('file').where('id', 'in', request.ids).where('state', '<>', 'ready').execute();
}

/**
 * Ids of what is not yet, or no longer, a file: arriving, leaving, and expired, which this call changes to leaving. The caller knows which
 * of them are still arriving; arrivals at other live processes are not included.
 */
export async function unreadyFiles(
  db: Db,
  request: { readonly now: number; readonly limit: number },
  among?: AmongReplicas,
): Promise<readonly string[]> {
  await db
    .updateTable('file')
    .set({ state: 'leaving' })
    .where('state', '=', 'ready')
    .where('expiresAt', '<=', request.now)
    // A batch that has begun reads its file to the end.
    .where(({ not, exists, selectFrom }) =>
      not(exists(selectFrom('batch').select('batch.id').whereRef('inputFileId', '=', 'file.id').where(isReader))),
    )
    .execute();
  let unready = db.selectFrom('file').select('id').where('state', '<>', 'ready').orderBy('id').limit(request.limit);
  if (among !== undefined) {
    const others = db.selectFrom('replica').select('id').where('id', '<>', among.replica);
    unready = unready.where(({ eb, or }) =>
      or([eb('state', '=', 'leaving'), eb('replicaId', 'is', null), eb('replicaId', 'not in', others)]),
    );
  }
  return (await unready.execute()).map(({ id }) => id);
}

/** An expired file disappears immediately, regardless of when its bytes are swept. */
const readable = (db: Db, { accountId, now }: { readonly accountId: string; readonly now: number }) =>
  db
    .selectFrom('file')
    .select(['id', 'accountId', 'name', 'mediaType', 'purpose', 'bytes', 'createdAt', 'expiresAt'])
    .where('accountId', '=', accountId)
    .where('state', '=', 'ready')
    .where(({ eb, or }) => or([eb('expiresAt', 'is', null), eb('expiresAt', '>', now)]));
