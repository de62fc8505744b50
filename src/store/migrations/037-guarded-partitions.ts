/** PostgreSQL: requests from before the retention are refused by the partitions that they would be in, and cost no other settlement. */
import { sql, type Kysely } from 'kysely';
import type { Database } from '../database.ts';
import type { SchemaDialect } from '../schema/create-schema.ts';

export async function up(db: Kysely<Database>, dialect: SchemaDialect): Promise<void> {
  if (dialect === 'sqlite') return;
  for (const statement of statements) await sql.raw(statement).execute(db);
}

const statements: readonly string[] = [
  'drop trigger usage_not_removed on usage',
  `create or replace function usage_is_not_removed() returns trigger language plpgsql as $$ begin
       if new.ended_at < (select kept_since from usage_retention) then
         raise exception 'request from before the retention of usage' using errcode = 'check_violation';
       end if;
       return new;
     end $$`,
  `create function guard_removed_usage(until bigint) returns void language plpgsql as $$
     declare part regclass;
     begin
       for part in
         select inhrelid::regclass from pg_inherits join pg_class on pg_class.oid = inhrelid
         where inhparent = 'usage'::regclass
           and coalesce(substring(pg_get_expr(relpartbound, pg_class.oid) from 'FROM \\(''\\\\x([0-9a-f]{12})'), '') < lpad(to_hex(until), 12, '0')
           and not exists (select 1 from pg_trigger where tgrelid = inhrelid and tgname = 'usage_not_removed')
       loop
         execute format('create trigger usage_not_removed before insert on %s for each row execute function usage_is_not_removed()', part);
       end loop;
     end $$`,
  `create or replace function usage_retention_only_grows() returns trigger language plpgsql as $$ begin
       if tg_op = 'UPDATE' then
         if new.kept_since > old.kept_since then perform guard_removed_usage(new.kept_since); end if;
         if new.kept_since >= old.kept_since then return new; end if;
       end if;
       raise exception 'usage_retention only grows';
     end $$`,
  'select guard_removed_usage(kept_since) from usage_retention where kept_since > 0',
];
