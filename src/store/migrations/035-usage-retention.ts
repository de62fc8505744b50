/** Rows of usage may be removed, from the oldest on, once what they add up to is kept: decision 037. */
import { sql, type Kysely } from 'kysely';
import type { Database } from '../database.ts';
import type { SchemaDialect } from '../schema/create-schema.ts';

export async function up(db: Kysely<Database>, dialect: SchemaDialect): Promise<void> {
  for (const statement of statements[dialect]) await sql.raw(statement).execute(db);
}

const tables = (bytes: string, integer: string, storage: string): readonly string[] => [
  `create table usage_retention (kept_since ${integer} not null primary key, removed_at ${integer})${storage}`,
  'insert into usage_retention (kept_since, removed_at) values (0, 0)',
  `create table pruned_usage (
    id ${bytes} not null primary key,
    account_id text not null,
    day ${integer} not null,
    model_id text not null,
    key_id text not null,
    tags text,
    key_budget text,
    account_budget text,
    member_budget text,
    requests ${integer} not null,
    prompt_tokens ${integer} not null,
    cached_tokens ${integer} not null,
    completion_tokens ${integer} not null,
    reasoning_tokens ${integer} not null,
    cost ${integer} not null,
    uncharged ${integer} not null
  )${storage}`,
  'create index pruned_usage_account on pruned_usage (account_id, day)',
];

const statements: Readonly<Record<SchemaDialect, readonly string[]>> = {
  sqlite: [
    ...tables('blob', 'integer', ' strict, without rowid'),
    `create trigger pruned_usage_no_update before update on pruned_usage begin select raise(abort, 'pruned_usage is immutable'); end`,
    `create trigger pruned_usage_no_delete before delete on pruned_usage begin select raise(abort, 'pruned_usage is immutable'); end`,
    'drop trigger usage_no_delete',
    `create trigger usage_no_delete before delete on usage
     when (old.ended_at < (select kept_since from usage_retention)) is not true
     begin select raise(abort, 'usage is immutable'); end`,
    `create trigger usage_not_removed before insert on usage when new.ended_at < (select kept_since from usage_retention)
     begin select raise(abort, 'request from before the retention of usage'); end`,
    ...['usage_hour', 'usage_tag_hour'].flatMap((table) =>
      ['update', 'delete'].map(
        (change) =>
          `create trigger ${table}_no_${change} before ${change} on ${table} when old.hour < (select kept_since from usage_retention)
           begin select raise(abort, 'usage from before its retention is summed up for good'); end`,
      ),
    ),
    `create trigger usage_retention_grows before update on usage_retention when new.kept_since < old.kept_since
     begin select raise(abort, 'usage_retention only grows'); end`,
    `create trigger usage_retention_no_delete before delete on usage_retention
     begin select raise(abort, 'usage_retention only grows'); end`,
  ],
  postgres: [
    ...tables('bytea', 'bigint', ''),
    `create function pruned_usage_is_immutable() returns trigger language plpgsql as $$ begin raise exception 'pruned_usage is immutable'; end $$`,
    `create trigger pruned_usage_no_truncate before truncate on pruned_usage for each statement execute function pruned_usage_is_immutable()`,
    ...['update', 'delete'].map(
      (change) =>
        `create trigger pruned_usage_no_${change} before ${change} on pruned_usage for each row execute function pruned_usage_is_immutable()`,
    ),
    `create or replace function usage_is_immutable() returns trigger language plpgsql as $$ begin if tg_op = 'DELETE' then if old.ended_at < (select kept_since from usage_retention) then return old; end if; end if; raise exception 'usage is immutable'; end $$`,
    `create function usage_is_not_removed() returns trigger language plpgsql as $$ begin
       if exists (select 1 from added where ended_at < (select kept_since from usage_retention)) then
         raise exception 'request from before the retention of usage' using errcode = 'check_violation';
       end if;
       return null;
     end $$`,
    `create trigger usage_not_removed after insert on usage referencing new table as added
     for each statement execute function usage_is_not_removed()`,
    `create function usage_is_summed_up() returns trigger language plpgsql as $$ begin
       if old.hour < (select kept_since from usage_retention) then
         raise exception 'usage from before its retention is summed up for good' using errcode = 'check_violation';
       end if;
       if tg_op = 'DELETE' then return old; end if;
       return new;
     end $$`,
    ...['usage_hour', 'usage_tag_hour'].map(
      (table) =>
        `create trigger ${table}_no_change before update or delete on ${table} for each row execute function usage_is_summed_up()`,
    ),
    `create function usage_retention_only_grows() returns trigger language plpgsql as $$ begin
       if tg_op = 'UPDATE' then if new.kept_since >= old.kept_since then return new; end if; end if;
       raise exception 'usage_retention only grows';
     end $$`,
    `create trigger usage_retention_grows before update or delete on usage_retention
     for each row execute function usage_retention_only_grows()`,
  ],
};
