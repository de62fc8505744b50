import { sql, type Kysely } from 'kysely';
import type { SchemaDialect } from './columns.ts';

/**
 * The newest transaction whose changes have been deleted: a reader that has not seen it has missed some. One row. On SQLite no
 * process follows changes, so none can have missed any.
 */
export async function up(db: Kysely<unknown>, dialect: SchemaDialect): Promise<void> {
  if (dialect === 'sqlite') return;
  for (const statement of [
    'create table change_pruned (id smallint primary key check (id = 1), tx bigint not null)',
    'insert into change_pruned (id, tx) values (1, 0)',
  ])
    await sql.raw(statement).execute(db);
}
