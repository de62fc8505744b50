import { sql, type Kysely } from 'kysely';
import type { Database } from '../database.ts';
import type { SchemaDialect } from './columns.ts';

/**
 * On PostgreSQL usage lies in partitions by the time in its key (money.md, "Tables"). The existing table becomes, as it is, the
 * partition of everything before a month to come: no row is copied, and settlements wait for a few milliseconds. On SQLite the
 * table stays as it is.
 */
export async function up(db: Kysely<unknown>, dialect: SchemaDialect): Promise<void> {
  if (dialect === 'sqlite') return;
  for (const statement of [makePartition, partition]) await sql.raw(statement).execute(db);
}

/**
 * Runs before the transaction, and again when that has failed. PostgreSQL attaches a table without reading its rows where a
 * constraint already says that they are within the bounds; settlements go on while this one is established: a short lock to add
 * it, then one reading of the table without a lock that matters.
 */
export async function prepare(db: Kysely<Database>, dialect: SchemaDialect): Promise<void> {
  if (dialect === 'sqlite') return;
  const [found] = await prepared(db);
  if (found === undefined) return;
  const { rows } = await sql<{ month: string }>`
    select to_char(${sql.raw(monthBehindAll)}, 'YYYY_MM') as month where exists (select 1 from usage)`.execute(db);
  if (rows[0] === undefined) return;
  const name = `usage_before_${rows[0].month}`;
  if (found.name !== name) {
    await abandon(db, dialect);
    const [year, month] = rows[0].month.split('_').map(Number);
    const bound = Date.UTC(year!, month! - 1)
      .toString(16)
      .padStart(12, '0');
    await sql
      .raw(`alter table usage add constraint ${name} check (request_id < '\\x${bound}'::bytea) not valid`)
      .execute(db);
  }
  if (found.name !== name || found.isValid !== true)
    await sql.raw(`alter table usage validate constraint ${name}`).execute(db);
}

/** After a failed migration an old version may run on for long: its rows must not violate the bound. */
export async function abandon(db: Kysely<Database>, dialect: SchemaDialect): Promise<void> {
  if (dialect === 'sqlite') return;
  for (const { name } of await prepared(db))
    if (name !== null) await sql.raw(`alter table usage drop constraint ${name}`).execute(db);
}

/** One row with the constraint, if there is one; none where there is no such table, or it is partitioned. */
async function prepared(db: Kysely<Database>) {
  const { rows } = await sql<{ readonly name: string | null; readonly isValid: boolean | null }>`
    select conname as name, convalidated as "isValid" from pg_class
    left join pg_constraint on conrelid = pg_class.oid and conname ~ '^usage_before_\\d+_\\d+$'
    where pg_class.oid = to_regclass('usage') and relkind = 'r'`.execute(db);
  return rows;
}

/** In UTC, a whole month or more after now and after the newest row: earlier versions may still write meanwhile. */
const monthBehindAll = `(date_trunc('month', greatest(timezone('UTC', now()), (
    select timestamp 'epoch' + ('x' || encode(substring(request_id from 1 for 6), 'hex'))::bit(48)::bigint * interval '1 millisecond'
    from usage order by request_id desc limit 1))) + interval '2 months')`;

/**
 * Makes an empty partition, the default one without bounds. Created apart and then attached, so that settlements do not wait; the
 * triggers are its own (M7), because those of a partitioned table are not inherited before PostgreSQL 13.
 */
const makePartition = `
  create function make_usage_partition(name text, first_id bytea, end_id bytea) returns void language plpgsql as $$
  begin
    execute format('create table %I (like usage including defaults including constraints including indexes including storage)', name);
    execute format('create trigger usage_no_update before update on %I for each row execute function usage_is_immutable()', name);
    execute format('create trigger usage_no_delete before delete on %I for each row execute function usage_is_immutable()', name);
    execute format('create trigger usage_no_truncate before truncate on %I for each statement execute function usage_is_immutable()', name);
    if first_id is null then
      execute format('alter table usage attach partition %I default', name);
    else
      execute format('alter table usage attach partition %I for values from (%L) to (%L)', name, first_id, end_id);
    end if;
  end $$`;

/** An empty table is the partition of everything before this month. */
const partition = `
  do $$
  declare
    old text;
    month timestamp;
    indexes text[];
    name text;
  begin
    lock table usage in access exclusive mode;
    select conname into old from pg_constraint
      where conrelid = 'usage'::regclass and conname ~ '^usage_before_\\d+_\\d+$' and convalidated;
    if old is not null then
      month := make_timestamp(split_part(old, '_', 3)::int, split_part(old, '_', 4)::int, 1, 0, 0, 0);
    elsif exists (select 1 from usage) then
      month := ${monthBehindAll};
    else
      month := date_trunc('month', timezone('UTC', now()));
    end if;
    old := 'usage_before_' || to_char(month, 'YYYY_MM');

    select array_agg(pg_get_indexdef(indexrelid)) into indexes from pg_index where indrelid = 'usage'::regclass and not indisprimary;
    execute format('alter table usage rename to %I', old);
    for name in select relname from pg_index join pg_class on pg_class.oid = indexrelid where indrelid = old::regclass loop
      execute format('alter index %I rename to %I', name, old || substring(name from 6));
    end loop;
    execute format('create table usage (like %I including defaults including constraints including storage) partition by range (request_id)', old);
    execute format('alter table usage drop constraint if exists %I', old);
    alter table usage add primary key (request_id);
    for at in 1 .. coalesce(array_length(indexes, 1), 0) loop
      execute indexes[at];
    end loop;
    create trigger usage_no_truncate before truncate on usage for each statement execute function usage_is_immutable();

    execute format('alter table usage attach partition %I for values from (minvalue) to (%L)', old,
      decode(lpad(to_hex((extract(epoch from month) * 1000)::bigint), 12, '0'), 'hex'));
    execute format('alter table %I drop constraint if exists %I', old, old);
    perform make_usage_partition('usage_default', null, null);
  end $$`;
