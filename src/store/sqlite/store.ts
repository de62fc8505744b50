import { mkdirSync } from 'node:fs';
import { dirname } from 'node:path';
import { changesKeptMs } from '../repositories/changes.ts';
import type { Feed, Follows } from '../feed.ts';
import { nothingFree, type FreeBalances } from '../ledger.ts';
import type { Repositories } from '../repositories/repositories.ts';
import { StoreError } from '../store-error.ts';
import { QueryWorker } from './query-client.ts';
import { followAlone } from './feed.ts';
import { SqliteLedger, type SqliteLedgerOptions } from './ledger.ts';
import { takeLock, type Lock } from './lock.ts';

export interface SqliteStoreOptions {
  readonly file: string;
  /** The free balances in memory; see `FreeBalances`. Not needed by a command that never calls `lease`. */
  readonly free?: FreeBalances;
  /** A thread of the store has died: report it and end the process. Called once. */
  readonly onFatal: (error: Error) => void;
  /** See `SqliteLedgerOptions`. */
  readonly onBatch?: NonNullable<SqliteLedgerOptions['onBatch']>;
  readonly log?: (level: 'info' | 'warn', message: string, fields: Readonly<Record<string, unknown>>) => void;
  readonly now?: () => number;
}

export interface SqliteStore {
  readonly ledger: SqliteLedger;
  readonly repositories: Repositories;
  /** Names of the migrations run by this opening. */
  readonly migrated: readonly string[];
  /** The time by this machine's clock. */
  now(): number;
  /** Loads what the follower keeps in memory. */
  follow(follower: Follows): Promise<Feed>;
  /** Runs work that must not run concurrently; this process is the only one. */
  alone<Value>(work: () => Promise<Value>): Promise<Value>;
  /** Deletes changes that no reader needs any more. Bounded work; call it each minute. */
  tidy(): Promise<void>;
  close(): Promise<void>;
}

/**
 * Opens the database as its only owner: takes the lock, brings the schema up to date, recovers from a crash, and starts the two threads.
 * Rejects with a StoreError whose message tells the operator what to do.
 */
export async function openSqliteStore(options: SqliteStoreOptions): Promise<SqliteStore> {
  const { file, log = () => {}, now = Date.now } = options;
  makeFolder(file);
  const lock = takeLock(file);
  let isDead = false;
  const onFatal = (error: Error): void => {
    if (!isDead) options.onFatal(error);
    isDead = true;
  };
  const repositories = new QueryWorker({ file, onFatal });
  const ledger = new SqliteLedger({
    file,
    free: options.free ?? nothingFree(),
    onFatal,
    ...(options.onBatch === undefined ? {} : { onBatch: options.onBatch }),
  }); // loads while the repositories migrate
  let migrated: readonly string[];
  try {
    migrated = await repositories.start(); // creates the file if missing, before another thread has it open
    if (migrated.length > 0) log('info', 'database schema brought up to date', { migrations: migrated });
    const recovered = await ledger.start(now());
    if (recovered > 0) log('warn', 'requests were running at the crash; they are not charged', { requests: recovered });
  } catch (error) {
    await close(ledger, repositories, lock);
    throw error;
  }
  return {
    ledger,
    repositories: repositories.repositories,
    migrated,
    now,
    follow: (follower) => followAlone(repositories.repositories, follower),
    alone: (work) => work(),
    tidy: async () => {
      await repositories.repositories.forgetChanges({ before: now() - changesKeptMs });
    },
    close: () => close(ledger, repositories, lock),
  };
}

/** Closes the ledger first: running work may still need the repositories, and the last one to close merges the WAL into the file. */
async function close(ledger: SqliteLedger, repositories: QueryWorker, lock: Lock): Promise<void> {
  await ledger.close();
  await repositories.close();
  lock.release();
}

function makeFolder(file: string): void {
  try {
    mkdirSync(dirname(file), { recursive: true, mode: 0o700 });
  } catch (error) {
    throw new StoreError('unusable', `The folder of ${file} cannot be created: ${String(error)}`, error);
  }
}
