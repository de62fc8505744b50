import { closeSync, createWriteStream, openSync, renameSync, rmSync } from 'node:fs';
import path from 'node:path';
import { pipeline } from 'node:stream/promises';

import { addressOf, openStoreReader } from '../app/stores.ts';
import type { PostgresStorageConfig } from '../config/sections/storage.ts';
import { databaseBytes, dumpDatabase, restoreDump, type ServerTools } from '../store/postgres/backup.ts';
import { syncFile } from '../store/sqlite/backup.ts';
import type { Examined } from '../store/verify/examine.ts';
import type { Context } from './context.ts';
import { reading } from './database.ts';
import { streamBackup, type OpenPlace } from './db-bucket.ts';

/** A backup of a database server, made with the server's own programs. */
interface Server {
  readonly context: Context;
  readonly storage: PostgresStorageConfig;
}

const toolsOf = ({ context, storage }: Server, signal: AbortSignal): ServerTools => ({
  address: addressOf(storage),
  variables: context.environment.childVariables,
  signal,
});

/** The file gets its name once it is complete, on the disk, and its source is verified. */
export async function dumpToFile(server: Server, target: string, signal: AbortSignal): Promise<Examined> {
  const draft = `${target}.part`;
  rmSync(draft, { force: true });
  closeSync(openSync(draft, 'wx', 0o600));
  try {
    const { examined } = await reading(server.context, ({ db }) =>
      dumpDatabase(db, toolsOf(server, signal), (archive) => pipeline(archive, createWriteStream(draft), { signal })),
    );
    syncFile(draft);
    renameSync(draft, target);
    syncFile(path.dirname(target));
    return examined;
  } catch (error) {
    rmSync(draft, { force: true });
    throw error;
  }
}

/** Writes nothing to the local disk: memory holds two parts. */
export async function dumpToBucket(
  server: Server,
  open: OpenPlace,
  { key, secretFile }: { readonly key: string; readonly secretFile: string | undefined },
): Promise<{ readonly examined: Examined; readonly bytes: number }> {
  const { examined, taken } = await reading(server.context, async ({ db }) => {
    const bytesExpected = Number(await databaseBytes(db));
    return await dumpDatabase(db, toolsOf(server, open.signal), (source, verified) =>
      streamBackup(open, key, { source, verified, bytesExpected, secretFile }),
    );
  });
  return { examined, bytes: taken };
}

/** `accept` sees the content and may refuse it before it counts. */
export async function restoreToServer(
  server: Server,
  { file, signal }: { readonly file: string; readonly signal: AbortSignal },
  accept: (examined: Examined) => void,
): Promise<Examined> {
  const db = (await openStoreReader(server.storage))!;
  try {
    return await restoreDump(db, toolsOf(server, signal), file, accept);
  } finally {
    await db.destroy();
  }
}
