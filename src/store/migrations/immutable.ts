import { sql, type Kysely } from 'kysely';
import type { SchemaDialect } from './columns.ts';

/** As for the ledger (M7): what has been issued is not changed. */
export async function forbidChanges(db: Kysely<unknown>, dialect: SchemaDialect, table: string): Promise<void> {
  if (dialect === 'postgres') {
    await sql
      .raw(
        `create function ${table}_is_immutable() returns trigger language plpgsql as $$ begin raise exception '${table} is immutable'; end $$`,
      )
      .execute(db);
    await sql
      .raw(
        `create trigger ${table}_no_truncate before truncate on ${table} for each statement execute function ${table}_is_immutable()`,
      )
      .execute(db);
  }
  for (const change of ['update', 'delete']) {
    const action =
      dialect === 'sqlite'
        ? `begin select raise(abort, '${table} is immutable'); end`
        : `for each row execute function ${table}_is_immutable()`;
    await sql.raw(`create trigger ${table}_no_${change} before ${change} on ${table} ${action}`).execute(db);
  }
}
