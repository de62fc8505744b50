import { sql, type Kysely } from 'kysely';
import { columnTypes, type SchemaDialect } from './columns.ts';

/** What several processes on one database must know of each other besides money. */
export async function up(db: Kysely<unknown>, dialect: SchemaDialect): Promise<void> {
  // The replica that receives the file: others must not take it for one that was cut off. Null where there are no others.
  await db.schema.alterTable('file').addColumn('replica_id', columnTypes(dialect).bytes).execute();
  if (dialect === 'postgres') await notifyChanges(db);
}

/**
 * Every row of `change` carries its transaction, so that a reader finds exactly what has been committed since it last looked,
 * however long a transaction took; the time is the database's own, and listeners are notified. The server does all of it, so it
 * also covers an earlier version and a human with psql. On SQLite one process makes every change, and no reader follows them.
 */
async function notifyChanges(db: Kysely<unknown>): Promise<void> {
  for (const statement of [
    'alter table change add column tx bigint not null default 0', // sorts before every transaction that is looked for
    'alter table change alter column tx set default txid_current()',
    'create index change_tx on change (tx)',
    `create function change_is_told() returns trigger language plpgsql as $$ begin
       new.at := (extract(epoch from clock_timestamp()) * 1000)::bigint;
       perform pg_notify('tokenhouse_change', '');
       return new;
     end $$`,
    'create trigger change_told before insert on change for each row execute function change_is_told()',
  ])
    await sql.raw(statement).execute(db);
}
