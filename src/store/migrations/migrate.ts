import { Migrator, type Kysely, type Migration } from 'kysely';
import type { Database } from '../database.ts';
import { StoreError } from '../store-error.ts';
import type { SchemaDialect } from './columns.ts';
import * as accounts from './001-accounts.ts';
import * as ledger from './002-ledger.ts';
import * as usageHour from './003-usage-hour.ts';

/** All migrations in their order. A released one is never changed. */
const migrations: Readonly<Record<string, { up(db: Kysely<Database>, dialect: SchemaDialect): Promise<void> }>> = {
  '001-accounts': accounts,
  '002-ledger': ledger,
  '003-usage-hour': usageHour,
};

export const migrationNames: readonly string[] = Object.keys(migrations);

/**
 * Brings the schema up to date, up to `last` when given, and returns the names of what ran. All of them run in one
 * transaction: a process that dies in the middle leaves the state from before (reliability S9).
 */
export async function migrate(db: Kysely<Database>, dialect: SchemaDialect, last?: string): Promise<readonly string[]> {
  await refuseNewer(db);
  const provider = {
    getMigrations: () =>
      Promise.resolve(
        Object.fromEntries(
          Object.entries(migrations).map(([name, { up }]): [string, Migration] => [
            name,
            { up: (db) => up(db, dialect) },
          ]),
        ),
      ),
  };
  const migrator = new Migrator({ db, provider });
  const { error, results } = await (last === undefined ? migrator.migrateToLatest() : migrator.migrateTo(last));
  if (error !== undefined) {
    const failed = results?.find((result) => result.status === 'Error')?.migrationName;
    const reason = error instanceof Error ? error.message : String(error);
    const where = failed === undefined ? '' : ` at ${failed}`;
    throw new StoreError(
      'unusable',
      `The database could not be brought up to date: the migration failed${where} (${reason}). Nothing was changed. ` +
        'Make a copy of the file before trying anything else, and report this.',
      error,
    );
  }
  return (results ?? []).map((result) => result.migrationName);
}

async function refuseNewer(db: Kysely<Database>): Promise<void> {
  const tables = await db.introspection.getTables({ withInternalKyselyTables: true });
  if (!tables.some((table) => table.name === 'kysely_migration')) return;
  const ran = await db
    .withTables<{ kysely_migration: { name: string } }>()
    .selectFrom('kysely_migration')
    .select('name')
    .orderBy('name')
    .execute();
  const unknown = ran.map((row) => row.name).filter((name) => !migrationNames.includes(name));
  if (unknown.length === 0) return;
  throw new StoreError(
    'unusable',
    `The database was written by a newer version of Tokenhouse: it has ${unknown.join(', ')}, and this version knows ` +
      `nothing after ${migrationNames.at(-1)}. Start the newer version again, or restore the backup that was made before the upgrade.`,
  );
}
