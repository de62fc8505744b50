import { existsSync, mkdirSync } from 'node:fs';

import type { Kysely } from 'kysely';

import type { StorageConfig } from '../config/config.ts';
import type { Database } from '../store/database.ts';
import type { Feed, Follows } from '../store/feed.ts';
import type { AccountLedger, FreeBalances } from '../store/ledger.ts';
import type { Peers } from '../platform/peers/peers.ts';
import type { LimitLeases } from '../store/limit-leases.ts';
import type { PostgresAddress } from '../store/postgres/connection.ts';
import type { Repositories } from '../store/repositories/repositories.ts';

/** The common interface of the stores, for the service and the command line. */
export interface Store {
  readonly ledger: AccountLedger;
  readonly repositories: Repositories;
  /** The limits shared with other processes; undefined if this process has them to itself. */
  readonly limits?: LimitLeases;
  /** The other processes on the same ledger, if any. */
  readonly peers?: Peers;
  /** Names of the migrations that this opening ran. */
  readonly migrated: readonly string[];
  /**
   * The time shared by all processes on the same ledger, in milliseconds since 1970: the database's where it is a server, else this
   * machine's. Everything that others will see or rely on is dated with it (reliability S5).
   */
  now(): number;
  /** Loads what the follower keeps in memory, and updates it with changes by others until the feed is closed. */
  follow(follower: Follows): Promise<Feed>;
  /** Runs work that must not run concurrently, here or in another process on the same ledger. */
  alone<Value>(work: () => Promise<Value>): Promise<Value>;
  /** Maintains the tables in bounded steps that disturb nothing. Call it every minute. */
  tidy(): Promise<void>;
  /** Whether the repositories answer queries now, if that may differ from the ledger. */
  isAnswering?(): boolean;
  close(): Promise<void>;
}

export interface StoreOptions {
  /** The free balances in memory. A command that never calls `lease` needs none. */
  readonly free?: FreeBalances;
  /** Called once when an indispensable part of the store has died: report it and end the process. */
  readonly onFatal: (error: Error) => void;
  /** Called for each transaction: settlements in it, the time until its answer, and whether the store refused it whole. */
  readonly onBatch?: (rows: number, elapsedMs: number, isRefused: boolean) => void;
  readonly log?: (level: 'info' | 'warn', message: string, fields: Readonly<Record<string, unknown>>) => void;
}

/** Opens the store that the configuration names; the only place that decides which. The other store is not even loaded. */
export async function openStore(storage: StorageConfig, options: StoreOptions): Promise<Store> {
  if (storage.type === 'sqlite') {
    const { openSqliteStore } = await import('../store/sqlite/store.ts');
    return await openSqliteStore({ file: storage.path, ...options });
  }
  // Not for the ledger, but for the control socket, and for the secret if none is given.
  mkdirSync(storage.directory, { recursive: true, mode: 0o700 });
  const { openPostgresStore } = await import('../store/postgres/store.ts');
  return await openPostgresStore({ address: addressOf(storage), shown: storage.shown, ...options });
}

/** Opens a reader whose queries work with or without a running service. Close with `destroy()`. Undefined if there is no file yet. */
export async function openStoreReader(storage: StorageConfig): Promise<Kysely<Database> | undefined> {
  if (storage.type === 'sqlite') {
    if (!existsSync(storage.path)) return undefined;
    const { openReadOnly } = await import('../store/sqlite/dialect.ts');
    return openReadOnly(storage.path);
  }
  const { openPostgresReader } = await import('../store/postgres/store.ts');
  return await openPostgresReader(addressOf(storage), storage.shown);
}

/** `Store.now` for a reader. */
export async function readStoreTime(storage: StorageConfig, db: Kysely<Database>): Promise<number> {
  if (storage.type === 'sqlite') return Date.now();
  const { databaseTimeMs } = await import('../store/postgres/store.ts');
  return await databaseTimeMs(db);
}

/** Whether a process uses the store now; for reports only. */
export async function isStoreInUse(storage: StorageConfig, db: Kysely<Database>): Promise<boolean> {
  if (storage.type === 'sqlite') {
    const { isOwned } = await import('../store/sqlite/lock.ts');
    return isOwned(storage.path);
  }
  // An ended process stays in the table for five seconds, until a live one records it as crashed.
  return (await db.selectFrom('replica').select('id').limit(1).execute()).length > 0;
}

/** The server's address, for code that works on the database beside the store. */
export function addressOf({ url, password }: Extract<StorageConfig, { type: 'postgres' }>): PostgresAddress {
  return { url: url.reveal(), password: password?.reveal() };
}
