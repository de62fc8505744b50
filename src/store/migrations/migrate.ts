/**
 * Migrates a database to this version's schema. An empty one gets the current tables directly (schema/). One of an earlier version runs its
 * missing steps; `tests/store/migration.test.ts` verifies that the results are equal.
 */
import { sql, SqliteAdapter, type Kysely } from 'kysely';
import type { Database } from '../database.ts';
import { systemAccounts } from '../ledger.ts';
import { createSchema, type SchemaDialect } from '../schema/create-schema.ts';
import { StoreError } from '../store-error.ts';
import { tiers } from './101-tiers.ts';
import { batches } from './102-batches.ts';
import { completeHours } from './103-complete-hours.ts';
import { refusals } from './104-refusals.ts';
import { sessionKeys } from './105-session-keys.ts';
import { batchCosts } from './106-batch-costs.ts';
import { warnings } from './107-warnings.ts';
import { heads } from './108-heads.ts';
import { history } from './109-history.ts';
import { accountViews } from './110-account-views.ts';
import { usageByTier } from './111-usage-by-tier.ts';
import { modelBudgets } from './112-model-budgets.ts';
import { tierMultiples } from './113-tier-multiples.ts';
import { endedUsage } from './114-ended-usage.ts';
import type { Step } from './step.ts';

/** The first schema that can be upgraded: a database without steps was created with everything up to here. */
const baseline = '100-baseline';

/** All later steps by name, in order. A released step is never changed. Tests add one. */
export const steps: Record<string, Step> = {
  '101-tiers': tiers,
  '102-batches': batches,
  '103-complete-hours': completeHours,
  '104-refusals': refusals,
  '105-session-keys': sessionKeys,
  '106-batch-costs': batchCosts,
  '107-warnings': warnings,
  '108-heads': heads,
  '109-history': history,
  '110-account-views': accountViews,
  '111-usage-by-tier': usageByTier,
  '112-model-budgets': modelBudgets,
  '113-tier-multiples': tierMultiples,
  '114-ended-usage': endedUsage,
};

export const migrationNames = (): readonly string[] => [baseline, ...Object.keys(steps)];
const newest = (): string => migrationNames().at(-1)!;

/**
 * Migrates, and returns the names of the steps that ran. All of them run in one transaction: a process that dies midway leaves the previous
 * state (reliability S9).
 */
export async function migrate(db: Kysely<Database>, dialect: SchemaDialect): Promise<readonly string[]> {
  const before = await migrationsThatRan(db);
  refuseNewer(before);
  if (pendingAfter(before).length === 0) return [];
  let at: string | undefined;
  try {
    return await inTransaction(db, async (transaction) => {
      const ran = await migrationsThatRan(transaction);
      const pending = pendingAfter(ran);
      if (ran.length === 0) await createDatabase(transaction, dialect);
      else {
        refuseOlder(ran);
        for (const name of pending) await steps[(at = name)]!.up(transaction, dialect);
      }
      const timestamp = new Date().toISOString();
      const rows = pending.map((name) => ({ name, timestamp }));
      await withHistory(transaction).insertInto('kysely_migration').values(rows).execute();
      return pending;
    });
  } catch (error) {
    if (error instanceof StoreError) throw error;
    const reason = error instanceof Error ? error.message : String(error);
    throw new StoreError(
      'unusable',
      `The database could not be brought up to date: the migration failed${at === undefined ? '' : ` at ${at}`} (${reason}). ` +
        `Nothing was changed. Make a copy of the ${dialect === 'sqlite' ? 'file' : 'database'} before trying anything else, and report this.`,
      error,
    );
  }
}

/** Uses the caller's transaction if there is one; the caller may then roll back all of it. */
const inTransaction = <Value>(
  db: Kysely<Database>,
  work: (transaction: Kysely<Database>) => Promise<Value>,
): Promise<Value> => (db.isTransaction ? work(db) : db.transaction().execute(work));

export const isUpToDate = async (db: Kysely<Database>): Promise<boolean> =>
  pendingAfter(await migrationsThatRan(db)).length === 0;

/** Steps that the next start of the service will run. */
export const pendingAfter = (ran: readonly string[]): readonly string[] =>
  migrationNames().filter((name) => !ran.includes(name));

async function createDatabase(db: Kysely<Database>, dialect: SchemaDialect): Promise<void> {
  await createTables(db, dialect);
  const kinds = {
    [systemAccounts.cash]: 1,
    [systemAccounts.promo]: 2,
    [systemAccounts.revenue]: 3,
    [systemAccounts.badDebt]: 4,
  };
  const empty = { name: '', status: 'active', available: 0n, credit_limit: 0n, version: 1, created_at: 0 } as const;
  const accounts = Object.entries(kinds).map(([id, kind]) => ({ id, kind, ...empty }));
  await db.insertInto('account').values(accounts).execute();
}

async function createTables(db: Kysely<Database>, dialect: SchemaDialect): Promise<void> {
  // Named by the library that ran the steps of earlier versions, which query this table.
  await sql`create table kysely_migration (name varchar(255) not null primary key, timestamp varchar(255) not null)`.execute(
    db,
  );
  for (const statement of createSchema(dialect)) await sql.raw(statement).execute(db);
  // A trigger keeps it at one row.
  await db.insertInto('usage_retention').values({ kept_since: 0, removed_at: 0 }).execute();
}

/**
 * Creates the tables of an empty database that another one is copied into, with the source's history: what an earlier version had not done
 * yet must not appear to be done here. Until `endCopy`, `unfinishedCopyOf` reports the copy and no version starts.
 */
export async function beginCopy(
  db: Kysely<Database>,
  dialect: SchemaDialect,
  source: { readonly db: Kysely<Database>; readonly shown: string },
): Promise<void> {
  const history = await withHistory(source.db).selectFrom('kysely_migration').selectAll().execute();
  await db.transaction().execute(async (transaction) => {
    await createTables(transaction, dialect);
    const rows = [...history, { name: unfinishedCopy, timestamp: source.shown }];
    await withHistory(transaction).insertInto('kysely_migration').values(rows).execute();
  });
}

export async function endCopy(db: Kysely<Database>): Promise<void> {
  await withHistory(db).deleteFrom('kysely_migration').where('name', '=', unfinishedCopy).execute();
}

/** Listed among the steps of a copy's target, so that no version starts on it. */
const unfinishedCopy = 'unfinished-copy';

/** The source of a copy into the database that has begun and not ended. */
export async function unfinishedCopyOf(db: Kysely<Database>): Promise<string | undefined> {
  if (!(await hasHistory(db))) return undefined;
  const history = withHistory(db).selectFrom('kysely_migration').select('timestamp');
  return (await history.where('name', '=', unfinishedCopy).executeTakeFirst())?.timestamp;
}

const withHistory = (db: Kysely<Database>) =>
  db.withTables<{ kysely_migration: { name: string; timestamp: string } }>();

/** Names of the steps that a Tokenhouse database has run, including those of earlier versions, in order; empty if the database is. */
export async function migrationsThatRan(db: Kysely<Database>): Promise<readonly string[]> {
  if (!(await hasHistory(db))) return [];
  const ran = await withHistory(db).selectFrom('kysely_migration').select('name').orderBy('name').execute();
  return ran.map(({ name }) => name);
}

async function hasHistory(db: Kysely<Database>): Promise<boolean> {
  const count =
    db.getExecutor().adapter instanceof SqliteAdapter
      ? sql<{ tables: bigint }>`select count(*) as tables from sqlite_schema where name = 'kysely_migration'`
      : sql<{ tables: bigint }>`select count(to_regclass('kysely_migration')) as tables`;
  const { rows } = await count.execute(db);
  return rows[0]?.tables === 1n;
}

/** When a Tokenhouse database, or the original of a copy, was created, by the machine's clock. Milliseconds since 1970. */
export async function madeAt(db: Kysely<Database>): Promise<number> {
  const history = withHistory(db).selectFrom('kysely_migration').select('timestamp');
  const { timestamp } = await history.where('name', '=', baseline).executeTakeFirstOrThrow();
  return Date.parse(timestamp);
}

function refuseOlder(ran: readonly string[]): void {
  if (ran.includes(baseline)) return;
  throw new StoreError(
    'unusable',
    `The database is of a version from before the first release (${ran.at(-1)}), which no version upgrades. Move it away, and ` +
      `start anew.`,
  );
}

/** Throws if a newer version has written the database. */
export function refuseNewer(ran: readonly string[]): void {
  const unknown = newerThanThis(ran);
  if (unknown.length === 0) return;
  if (unknown.includes(unfinishedCopy))
    throw new StoreError(
      'unusable',
      'A copy into this database has not ended. Start it again, and it goes on where it was: tokenhouse db copy --to …',
    );
  throw new StoreError(
    'unusable',
    `The database was written by a newer version of Tokenhouse: it has ${unknown.join(', ')}, and this version knows ` +
      `nothing after ${newest()}. Start the newer version again, or restore the backup that was made before the upgrade.`,
  );
}

/** Steps unknown to this version. */
export const newerThanThis = (ran: readonly string[]): readonly string[] => ran.filter((name) => name > newest());
