import { sql, type Kysely } from 'kysely';
import { columnTypes, type SchemaDialect } from './columns.ts';

/** Paused and tagged keys, invoice recipients, deleted accounts, and an audit log that loses nothing. */
export async function up(db: Kysely<unknown>, dialect: SchemaDialect): Promise<void> {
  const { text, time, bytes } = columnTypes(dialect);
  const add = (table: string, column: string, type: 'text' | typeof time | typeof bytes): Promise<void> =>
    db.schema.alterTable(table).addColumn(column, type).execute();
  // JSON list; null: none.
  await add('api_key', 'tags', text);
  // When it was paused; null: it is not.
  await add('api_key', 'disabled_at', time);
  await add('api_key', 'updated_at', time);

  for (const column of ['legal_name', 'address_lines', 'country', 'tax_id', 'invoice_email'])
    await add('account', column, text);
  // When its users, files and names were erased; what it was charged stays.
  await add('account', 'deleted_at', time);

  // A change is written as `begun` before it is made; the row that references that one says what became of it.
  await add('audit_log', 'completes', bytes);
  await add('audit_log', 'outcome', text);
  // JSON: the input of the change.
  await add('audit_log', 'wish', text);
  await db.schema
    .createIndex('audit_log_completes')
    .on('audit_log')
    .column('completes')
    .unique()
    .where(sql.ref('completes'), 'is not', null)
    .execute();
  for (const statement of appendOnly[dialect]) await sql.raw(statement).execute(db);
}

const fixed = ['id', 'at', 'account_id', 'actor_kind', 'actor_id', 'action', 'target', 'request_id'];
const isDifferent = (operator: string): string =>
  [...fixed, 'completes', 'outcome'].map((column) => `new.${column} ${operator} old.${column}`).join(' or ');
/** Columns that may hold a user's name. It can be removed, but not replaced with something else. */
const keptName = ['actor_name', 'address', 'before', 'after', 'wish']
  .map((column) => `new."${column}" is not null`)
  .join(' or ');

/** Rows are only added; deleting an account removes users' names from its own. */
const appendOnly: Readonly<Record<SchemaDialect, readonly string[]>> = {
  sqlite: [
    `create trigger audit_log_no_delete before delete on audit_log
     begin select raise(abort, 'audit_log is append-only'); end`,
    `create trigger audit_log_no_update before update on audit_log when ${isDifferent('is not')} or ${keptName}
     begin select raise(abort, 'audit_log is append-only'); end`,
  ],
  postgres: [
    `create function audit_log_is_append_only() returns trigger language plpgsql as $$ begin
       if tg_op = 'UPDATE' then
         if not (${isDifferent('is distinct from')} or ${keptName}) then return new; end if;
       end if;
       raise exception 'audit_log is append-only';
     end $$`,
    `create trigger audit_log_no_change before update or delete on audit_log
     for each row execute function audit_log_is_append_only()`,
    `create trigger audit_log_no_truncate before truncate on audit_log
     for each statement execute function audit_log_is_append_only()`,
  ],
};
