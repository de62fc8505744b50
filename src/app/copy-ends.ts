import { existsSync, mkdirSync } from 'node:fs';
import { setTimeout as sleep } from 'node:timers/promises';

import type { StorageConfig } from '../config/config.ts';
import { shownPlace, type PostgresStorageConfig } from '../config/sections/storage.ts';
import type { CopyEnd } from '../store/copy/row-batches.ts';
import { StoreError } from '../store/store-error.ts';
import { openStore, openStoreReader } from './stores.ts';

type Use<Value> = (end: CopyEnd) => Promise<Value>;

/**
 * Provides a consistent view of the database while the work runs; no service can start on it meanwhile. Throws a `StoreError` with
 * code `busy` if one is running.
 */
export async function withCopySource<Value>(storage: StorageConfig, use: Use<Value>): Promise<Value> {
  const shown = shownPlace(storage);
  if (storage.type === 'sqlite' && !existsSync(storage.path))
    throw new StoreError('unusable', `There is no database at ${shown}.`);
  await settleWhatRan(storage);
  if (storage.type === 'sqlite') {
    const [{ takeLock }, { openReadOnly }] = await Promise.all([
      import('../store/sqlite/lock.ts'),
      import('../store/sqlite/dialect.ts'),
    ]);
    const lock = takeLock(storage.path);
    const db = openReadOnly(storage.path);
    try {
      return await use({ db, dialect: 'sqlite', shown });
    } finally {
      await db.destroy();
      lock.release();
    }
  }
  // A service that began to start before the lock was taken does not wait for it.
  const assertUnused = async (): Promise<void> => {
    if ((await countReplicas(storage)) > 0) throw inUse(shown);
  };
  return await onServer(storage, (end) =>
    end.db
      .transaction()
      .setAccessMode('read only')
      .setIsolationLevel('repeatable read')
      .execute((db) => use({ ...end, db, assertUnused })),
  );
}

const inUse = (shown: string): StoreError =>
  new StoreError('busy', `${shown} is in use by other processes. Stop them, and copy then.`);

/** The same for a database that is empty or has an unfinished copy; an SQLite file may not exist yet. */
export async function withCopyTarget<Value>(storage: StorageConfig, use: Use<Value>): Promise<Value> {
  if (storage.type === 'postgres') return await onServer(storage, use);
  const [{ takeLock }, { closeConnection, openConnection }, { kyselyOn }] = await Promise.all([
    import('../store/sqlite/lock.ts'),
    import('../store/sqlite/connection.ts'),
    import('../store/sqlite/dialect.ts'),
  ]);
  mkdirSync(storage.directory, { recursive: true, mode: 0o700 });
  const lock = takeLock(storage.path);
  try {
    const connection = openConnection(storage.path);
    try {
      return await use({ db: kyselyOn(connection), dialect: 'sqlite', shown: storage.path });
    } finally {
      closeConnection(connection);
    }
  } finally {
    lock.release();
  }
}

/** Services and migrations wait for this lock before they begin. */
async function onServer<Value>(storage: PostgresStorageConfig, use: Use<Value>): Promise<Value> {
  const [{ withSchemaLock }, { sql }] = await Promise.all([
    import('../store/postgres/schema-lock.ts'),
    import('kysely'),
  ]);
  const db = (await openStoreReader(storage))!;
  try {
    return await withSchemaLock(db, async (connection) => {
      // The other end may take longer than the timeout for a batch.
      await sql`select set_config('idle_in_transaction_session_timeout', '0', false)`.execute(connection);
      return await use({ db: connection, dialect: 'postgres', shown: storage.shown });
    });
  } finally {
    await db.destroy();
  }
}

async function countReplicas(storage: PostgresStorageConfig): Promise<number> {
  const db = (await openStoreReader(storage))!;
  try {
    return (await db.selectFrom('replica').select('id').execute()).length;
  } finally {
    await db.destroy();
  }
}

/** A replica that has ended is recorded as crashed after five seconds; after that nothing of it remains. */
const crashedAfterMs = 12_000;

/** Opens the store as a service would, which settles what a crashed one left behind, and closes it again. */
async function settleWhatRan(storage: StorageConfig): Promise<void> {
  const store = await openStore(storage, { onFatal: () => {} });
  try {
    if (storage.type === 'sqlite') return;
    const until = performance.now() + crashedAfterMs;
    // This process is one of them.
    while ((await countReplicas(storage)) > 1) {
      if (performance.now() > until) throw inUse(storage.shown);
      await sleep(500);
    }
  } finally {
    await store.close();
  }
}
