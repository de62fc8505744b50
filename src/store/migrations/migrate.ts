import { Migrator, type Kysely, type Migration } from 'kysely';
import type { Database } from '../database.ts';
import { StoreError } from '../store-error.ts';
import type { SchemaDialect } from './columns.ts';
import * as accounts from './001-accounts.ts';
import * as ledger from './002-ledger.ts';
import * as usageHour from './003-usage-hour.ts';
import * as entitlement from './004-entitlement.ts';
import * as accountPrice from './005-account-price.ts';
import * as keptItem from './006-kept-item.ts';
import * as file from './007-file.ts';
import * as replicas from './008-replicas.ts';
import * as limits from './009-limits.ts';
import * as idempotency from './010-idempotency.ts';
import * as severalReplicas from './011-several-replicas.ts';
import * as budgets from './012-budgets.ts';
import * as limitShares from './013-limit-shares.ts';
import * as usagePartitions from './014-usage-partitions.ts';
import * as prunedChanges from './015-pruned-changes.ts';
import * as managementKeys from './016-management-keys.ts';
import * as users from './017-people.ts';
import * as payments from './018-payments.ts';
import * as usageReports from './019-usage-reports.ts';
import * as keysAndOperator from './020-keys-and-operator.ts';
import * as alertsAndInvoices from './021-alerts-and-invoices.ts';
import * as usageQuarters from './022-usage-quarters.ts';
import * as auditOfUsers from './023-audit-of-people.ts';
import * as signInAttempts from './024-sign-in-attempts.ts';
import * as returnsUndone from './025-returns-undone.ts';
import * as hoursOfAll from './026-hours-of-all.ts';
import * as sealedAnswers from './027-sealed-answers.ts';
import * as taxStatus from './028-tax-status.ts';
import * as receipts from './029-receipts.ts';

interface MigrationSteps {
  up(db: Kysely<Database>, dialect: SchemaDialect): Promise<void>;
  /** Runs before the common transaction: for work that takes long and disturbs no one. It may find itself done already. */
  prepare?(db: Kysely<Database>, dialect: SchemaDialect): Promise<void>;
  /** Undoes `prepare`, because the transaction has failed. */
  abandon?(db: Kysely<Database>, dialect: SchemaDialect): Promise<void>;
}

/** All migrations in their order. A released one is never changed. */
const migrations: Readonly<Record<string, MigrationSteps>> = {
  '001-accounts': accounts,
  '002-ledger': ledger,
  '003-usage-hour': usageHour,
  '004-entitlement': entitlement,
  '005-account-price': accountPrice,
  '006-kept-item': keptItem,
  '007-file': file,
  '008-replicas': replicas,
  '009-limits': limits,
  '010-idempotency': idempotency,
  '011-several-replicas': severalReplicas,
  '012-budgets': budgets,
  '013-limit-shares': limitShares,
  '014-usage-partitions': usagePartitions,
  '015-pruned-changes': prunedChanges,
  '016-management-keys': managementKeys,
  '017-people': users,
  '018-payments': payments,
  '019-usage-reports': usageReports,
  '020-keys-and-operator': keysAndOperator,
  '021-alerts-and-invoices': alertsAndInvoices,
  '022-usage-quarters': usageQuarters,
  '023-audit-of-people': auditOfUsers,
  '024-sign-in-attempts': signInAttempts,
  '025-returns-undone': returnsUndone,
  '026-hours-of-all': hoursOfAll,
  '027-sealed-answers': sealedAnswers,
  '028-tax-status': taxStatus,
  '029-receipts': receipts,
};

export const migrationNames: readonly string[] = Object.keys(migrations);

/**
 * Brings the schema up to date, up to `last` when given, and returns the names of what ran. All of them run in one transaction,
 * after their `prepare` steps: a process that dies in the middle leaves the state from before (reliability S9).
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
  const wanted = Object.entries(migrations).filter(([name]) => last === undefined || name <= last);
  for (const [, { prepare }] of wanted) await prepare?.(db, dialect);
  const { error, results } = await (last === undefined ? migrator.migrateToLatest() : migrator.migrateTo(last));
  if (error !== undefined) {
    // What is left disturbs no one, or the next try finds it.
    for (const [, { abandon }] of wanted) await abandon?.(db, dialect).catch(() => {});
    const failed = results?.find((result) => result.status === 'Error')?.migrationName;
    const reason = error instanceof Error ? error.message : String(error);
    const where = failed === undefined ? '' : ` at ${failed}`;
    throw new StoreError(
      'unusable',
      `The database could not be brought up to date: the migration failed${where} (${reason}). Nothing was changed. ` +
        `Make a copy of the ${dialect === 'sqlite' ? 'file' : 'database'} before trying anything else, and report this.`,
      error,
    );
  }
  return (results ?? []).map((result) => result.migrationName);
}

/** Runs one migration as it is, without a transaction or a record of it: to see what it prints. */
export async function runMigration(db: Kysely<Database>, dialect: SchemaDialect, name: string): Promise<void> {
  await migrations[name]!.up(db, dialect);
}

/** Names of the migrations that a database of ours has seen, in order. */
export async function migrationsThatRan(db: Kysely<Database>): Promise<readonly string[]> {
  const ran = await db
    .withTables<{ kysely_migration: { name: string } }>()
    .selectFrom('kysely_migration')
    .select('name')
    .orderBy('name')
    .execute();
  return ran.map(({ name }) => name);
}

/** When a migration ran here, by the clock of the machine; undefined: it has not. Milliseconds since 1970. */
export async function ranAt(db: Kysely<Database>, name: string): Promise<number | undefined> {
  const row = await db
    .withTables<{ kysely_migration: { name: string; timestamp: string } }>()
    .selectFrom('kysely_migration')
    .select('timestamp')
    .where('name', '=', name)
    .executeTakeFirst();
  return row === undefined ? undefined : Date.parse(row.timestamp);
}

/** Throws when a newer version has written the database. */
export async function refuseNewer(db: Kysely<Database>): Promise<void> {
  const tables = await db.introspection.getTables({ withInternalKyselyTables: true });
  if (!tables.some((table) => table.name === 'kysely_migration')) return;
  const unknown = (await migrationsThatRan(db)).filter((name) => !migrationNames.includes(name));
  if (unknown.length === 0) return;
  throw new StoreError(
    'unusable',
    `The database was written by a newer version of Tokenhouse: it has ${unknown.join(', ')}, and this version knows ` +
      `nothing after ${migrationNames.at(-1)}. Start the newer version again, or restore the backup that was made before the upgrade.`,
  );
}
