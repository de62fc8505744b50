import { sql, type Kysely } from 'kysely';
import { setTimeout as sleep } from 'node:timers/promises';
import pg from 'pg';
import { uuidMaker } from '../../platform/ids/uuid.ts';
import type { Database } from '../database.ts';
import { rowsOn } from '../schema/codec.ts';
import type { Feed, Follows } from '../feed.ts';
import { nothingFree, type FreeBalances } from '../ledger.ts';
import type { Peers } from '../../platform/peers/peers.ts';
import type { LimitLeases } from '../limit-leases.ts';
import { claimBatchLines } from '../repositories/batch-lines.ts';
import { createBatch } from '../repositories/batch-rows.ts';
import { beginFile, leaveFile, unreadyFiles, type AmongReplicas } from '../repositories/files.ts';
import { migrate, migrationsThatRan, refuseNewer } from '../migrations/migrate.ts';
import { repositoriesOn, type Repositories, type RepositoryOperation } from '../repositories/repositories.ts';
import { removeUsage } from '../retention/removal.ts';
import { closeDay } from '../proofs/close-day.ts';
import { recomputeUsageDays, recomputeUsageHours } from '../reports/roll-ups.ts';
import { StoreError } from '../store-error.ts';
import {
  clientConfig,
  connectTimeoutMs,
  inTimeOf,
  refuseUnfitServer,
  unreachable,
  type PostgresAddress,
} from './connection.ts';
import { QueryWatch } from './query-watch.ts';
import { kyselyOn, kyselyOnPostgres } from './dialect.ts';
import { PoolDriver } from './pool-driver.ts';
import { freePartitions } from './free-partitions.ts';
import { makePartitions } from './partitions.ts';
import { pruneChanges } from './prune-changes.ts';
import { PostgresFeed, type PostgresFeedOptions } from './feed.ts';
import { PostgresLedger, type PostgresLedgerOptions } from './ledger.ts';
import { PostgresLimitLeases } from './limit-leases.ts';
import { PostgresPeers } from './peers.ts';
import { releaseLock, withSchemaLock } from './schema-lock.ts';
import { isWorthAnotherTry, sqlState, storeErrorOf } from './postgres-error.ts';
import { databaseNow } from './statements.ts';

/** Connections of the repositories: reports wait for each other rather than occupy the server's connections. */
const queryConnections = 3;
/** Keys of advisory locks in the database, "tkhs" and a number; the first is in schema-lock.ts. */
const usageHoursLock = 0x746b6873_0002n;
const usageRemovalLock = 0x746b6873_0007n;
const dayHeadLock = 0x746b6873_0008n;
const aloneLock = 0x746b6873_0003n;
const tidyLock = 0x746b6873_0004n;
/** The first half of a lock's key, whose second half is an account; distinct from single-value keys. */
const uploadLock = 0x746b_6873n;
/**
 * Maximum time that a migration waits for a table that is being read: all later statements would queue behind it, so it backs off and
 * retries (migrations are online).
 */
const tableLockTimeoutMs = 2_000;
const migrationTriesMax = 20;

export interface PostgresStoreOptions {
  readonly address: PostgresAddress;
  /** The address without its secrets, for messages. */
  readonly shown: string;
  readonly free?: FreeBalances;
  readonly onBatch?: NonNullable<PostgresLedgerOptions['onBatch']>;
  readonly log?: (level: 'info' | 'warn', message: string, fields: Readonly<Record<string, unknown>>) => void;
}

export interface PostgresStore {
  readonly ledger: PostgresLedger;
  readonly repositories: Repositories;
  readonly limits: LimitLeases;
  readonly peers: Peers;
  /** Names of the migrations run by this opening. */
  readonly migrated: readonly string[];
  /** The time by the database's clock, used by all replicas. */
  now(): number;
  /** Loads what the follower keeps in memory, and keeps it in line with the database until the feed is closed. */
  follow(follower: Follows): Promise<Feed>;
  /** Runs work that must not run concurrently, here or on another replica. */
  alone<Value>(work: () => Promise<Value>): Promise<Value>;
  /** Creates the partitions of coming months, and deletes changes that no reader needs. Bounded work; call it each minute. */
  tidy(): Promise<void>;
  /** Whether queries of the repositories are answered. */
  isAnswering(): boolean;
  close(): Promise<void>;
}

/** Opens the database as one of its replicas. Rejects with a StoreError whose message tells the operator what to do. */
export async function openPostgresStore(options: PostgresStoreOptions): Promise<PostgresStore> {
  const { address, shown, log = () => {} } = options;
  await ping(address, shown);
  const pool = new PoolDriver({ address, connections: queryConnections });
  const db = kyselyOn(pool);
  const watch = new QueryWatch(db, pool);
  let ledger: PostgresLedger | undefined;
  const limits = new PostgresLimitLeases({
    address,
    replica: () => ledger!.replicaId,
    trustedUntilMs: () => ledger!.safeUntilMs,
  });
  const peers = new PostgresPeers({ address, replica: () => ledger!.replicaId });
  try {
    const migrated = await migrateAlone(db, shown);
    if (migrated.length > 0) log('info', 'database schema brought up to date', { migrations: migrated });
    await tidy(db); // before the first row
    const opened = new PostgresLedger({
      address,
      free: options.free ?? nothingFree(),
      newId: uuidMaker(),
      ...(options.onBatch === undefined ? {} : { onBatch: options.onBatch }),
      onExpired: () => {
        limits.expired();
        log('warn', 'the database did not hear of this replica; what it had leased went back', {});
      },
    });
    ledger = opened;
    await opened.start();
    return {
      ledger: opened,
      repositories: repositoriesOf(db, opened),
      limits,
      peers,
      migrated,
      now: () => opened.now(),
      follow: (follower) => follow({ address, follower, log: (level, message) => log(level, message, {}) }),
      alone: (work) => alone(db, work),
      tidy: () => tidy(db),
      isAnswering: () => watch.isAnswering,
      close: async () => {
        watch.close();
        await peers.close();
        await close(opened, limits, db);
      },
    };
  } catch (error) {
    watch.close();
    await ledger?.close();
    await db.destroy();
    throw unreachable(error, shown);
  }
}

/** For the CLI: the service's queries, on a dedicated connection. Close with `destroy()`. */
export async function openPostgresReader(address: PostgresAddress, shown: string): Promise<Kysely<Database>> {
  await ping(address, shown);
  return kyselyOnPostgres(address, 1);
}

/** Checks that the server is reachable and suitable, before anything is begun. */
async function ping(address: PostgresAddress, shown: string): Promise<void> {
  const client = new pg.Client(clientConfig(address));
  client.on('error', () => {});
  try {
    await inTimeOf(client, 2 * connectTimeoutMs, async () => {
      await client.connect();
      await refuseUnfitServer(client);
    });
  } catch (error) {
    throw unreachable(error, shown);
  } finally {
    await inTimeOf(client, 1_000, () => client.end()).catch(() => {});
  }
}

/** Migrates on one replica at a time; the others wait and find it done. */
async function migrateAlone(db: Kysely<Database>, shown: string): Promise<readonly string[]> {
  try {
    return await withSchemaLock(db, async (connection) => {
      refuseNewer(await migrationsThatRan(connection));
      await sql`select set_config('lock_timeout', ${String(tableLockTimeoutMs)}, false)`.execute(connection);
      for (let tries = 1; ; tries++) {
        try {
          return await migrate(connection, 'postgres');
        } catch (error) {
          const cause = error instanceof StoreError ? error.cause : error;
          if (!isWorthAnotherTry(cause) || tries >= migrationTriesMax) throw error;
          await sleep(500 + Math.random() * 1_000);
        }
      }
    });
  } catch (error) {
    throw unreachable(error, shown);
  }
}

function repositoriesOf(db: Kysely<Database>, ledger: PostgresLedger): Repositories {
  const among = (): AmongReplicas => ({
    replica: ledger.replicaId,
    // An advisory lock rather than one on the account's row, which would block leases from the account.
    queue: (transaction, accountId) =>
      sql`select pg_advisory_xact_lock(${uploadLock}::int, hashtext(${accountId}))`.execute(transaction),
  });
  const repositories: Repositories = {
    ...repositoriesOn(db),
    beginFile: (request) => beginFile(rowsOn(db), request, among()),
    claimBatchLines: (request) => claimBatchLines(rowsOn(db), request, true),
    createBatch: (request) => createBatch(rowsOn(db), request, true),
    leaveFile: (request) => leaveFile(rowsOn(db), request, true),
    unreadyFiles: (request) => unreadyFiles(rowsOn(db), request, among()),
  };
  const inWords = (name: RepositoryOperation) => async (request: unknown) => {
    try {
      return await (repositories[name] as (request: unknown) => Promise<unknown>)(request);
    } catch (error) {
      throw storeErrorOf(error);
    }
  };
  const named = Object.fromEntries(
    (Object.keys(repositories) as RepositoryOperation[]).map((name) => [name, inWords(name)]),
  );
  return {
    ...(named as unknown as Repositories),
    // Concurrent runs would overwrite each other, possibly with the older sums last; one run serves all.
    recomputeUsageHours: async (request) =>
      (await unlessOthersDo(db, usageHoursLock, (connection) => recomputeUsageHours(connection, request))) ?? {
        written: 0,
        until: undefined,
      },
    recomputeUsageDays: async () => (await unlessOthersDo(db, usageHoursLock, recomputeUsageDays)) ?? { isMore: false },
    closeDay: async (request) =>
      (await unlessOthersDo(db, dayHeadLock, (connection) => closeDay(connection, request))) ?? { state: 'elsewhere' },
    removeUsage: async (request) =>
      (await unlessOthersDo(db, usageRemovalLock, (connection) => removeUsage(connection, request))) ?? {
        removed: 0,
        state: 'elsewhere',
      },
    freeUsageSpace: async () => (await unlessOthersDo(db, usageRemovalLock, freePartitions)) ?? 'done',
    forgetChanges: async () => (await unlessOthersDo(db, tidyLock, pruneChanges)) ?? 0,
  };
}

async function tidy(db: Kysely<Database>): Promise<void> {
  await unlessOthersDo(db, tidyLock, async (connection) => {
    await makePartitions(connection, await databaseTimeMs(connection));
    await pruneChanges(connection);
  });
}

/** For a caller without a replica, which would learn it with each heartbeat. */
export async function databaseTimeMs(db: Kysely<Database>): Promise<number> {
  const { rows } = await sql<{ readonly now: bigint }>`select ${sql.raw(databaseNow)} as now`.execute(db);
  return Number(rows[0]!.now);
}

/** undefined: another replica is doing it. The lock ends with the connection, even after kill -9. Rejects with a StoreError. */
async function unlessOthersDo<Value>(
  db: Kysely<Database>,
  lock: bigint,
  work: (connection: Kysely<Database>) => Promise<Value>,
): Promise<Value | undefined> {
  try {
    return await db.connection().execute(async (connection) => {
      const { rows } = await sql<{ isOurs: boolean }>`select pg_try_advisory_lock(${lock}) as "isOurs"`.execute(
        connection,
      );
      if (rows[0]?.isOurs !== true) return undefined;
      try {
        return await work(connection);
      } finally {
        await releaseLock(connection, sql`select pg_advisory_unlock(${lock})`);
      }
    });
  } catch (error) {
    throw storeErrorOf(error);
  }
}

async function follow(options: PostgresFeedOptions): Promise<Feed> {
  const feed = new PostgresFeed(options);
  try {
    await feed.start();
    return feed;
  } catch (error) {
    await feed.close();
    throw error instanceof Error && sqlState(error) === undefined ? error : storeErrorOf(error);
  }
}

function alone<Value>(db: Kysely<Database>, work: () => Promise<Value>): Promise<Value> {
  return db.connection().execute(async (connection) => {
    await sql`select pg_advisory_lock(${aloneLock})`.execute(connection);
    try {
      return await work();
    } finally {
      await releaseLock(connection, sql`select pg_advisory_unlock(${aloneLock})`);
    }
  });
}

/** Closes the ledger first: running work may still need the repositories. */
async function close(ledger: PostgresLedger, limits: PostgresLimitLeases, db: Kysely<Database>): Promise<void> {
  await limits.close();
  await ledger.close();
  await db.destroy();
}
