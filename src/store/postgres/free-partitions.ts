/**
 * Gives back the space of removed usage (decision 037). Nothing is written to a month that is over, so what vacuum frees there is used by
 * nothing: a partition without rows is dropped, and one with few is replaced by a copy of what stays.
 */
import { sql, type Kysely, type RawBuilder } from 'kysely';
import type { Database } from '../database.ts';
import type { FreedSpace } from '../retention/removal.ts';
import { retentionOf } from '../retention/retention.ts';
import { listPartitions } from './partitions.ts';
import { isWorthAnotherTry, sqlState } from './postgres-error.ts';

type Db = Kysely<Database>;

/** Settlements and readers wait behind the lock needed to drop or replace a partition: for it, and for each statement under it. */
const lockedMs = 300;
/** Some fifty milliseconds of copying. */
const rowsAtOnce = 2_000;
/** A table that is larger than twice what its rows need, and this, is replaced. */
const spareBytes = 1_048_576;
/** What a row needs beside its columns: its header and its place in the page. */
const rowBytes = 28;

/** Rows that a copy may contain; also the mark of a copy that is not in use yet, or never will be. */
const copyMark = 'usage_copy_bounds';
const copyOf = (name: string): string => `${name}_being_copied`;

/**
 * Frees the space of removed rows in partitions before the retention. `later`: something holds one of them, or could still need what was
 * there before. Only one process may do it at a time, and none may remove rows meanwhile.
 */
export async function freePartitions(db: Db): Promise<FreedSpace> {
  const { keptSince, removedAt } = await retentionOf(db);
  try {
    await dropLeftCopies(db);
    for (const { name, fromMs, toMs } of await listPartitions(db)) {
      if (fromMs >= keptSince) continue;
      // Truncates a table without rows, so that the check under the lock is quick; and counts rows and measures them.
      await sql`vacuum (analyze) ${sql.table(name)}`.execute(db);
      if (toMs > keptSince) continue;
      if (await isEmpty(db, name)) {
        if (!(await dropEmpty(db, name))) return 'later';
      } else if (removedAt !== null && (await isMostlyFree(db, name))) {
        if (!(await replaceByCopy(db, name))) return 'later';
      }
    }
  } catch (error) {
    if (isWorthAnotherTry(error) || isCancelled(error)) return 'later';
    throw error;
  }
  return 'done';
}

/** Whether a statement exceeded its `statement_timeout`. */
const isCancelled = (error: unknown): boolean => sqlState(error) === '57014';

const isTrue = async (db: Db, expression: RawBuilder<unknown>): Promise<boolean> =>
  (await sql<{ readonly is: boolean | null }>`select ${expression} as is`.execute(db)).rows[0]!.is === true;

const isEmpty = (db: Db, name: string): Promise<boolean> =>
  isTrue(db, sql`not exists (select 1 from ${sql.table(name)})`);

const oidOf = (name: string): RawBuilder<unknown> => sql`${quoted(name)}::regclass`;
const quoted = (name: string): RawBuilder<unknown> => sql`quote_ident(${name})`;

/** The transaction that last changed the retention. Removal records its end there after its last row. */
const retentionXid = sql`(select xmin from usage_retention)`;

/**
 * Whether any other session sees the database as it was before this transaction ended. It would look into the table that is there now, and
 * find neither what was removed from the earlier one nor what is new in this one.
 */
const isSeenFromBefore = (db: Db, xid: RawBuilder<unknown>): Promise<boolean> =>
  isTrue(
    db,
    sql`exists (select 1 from pg_stat_activity where datname = current_database() and backend_type = 'client backend'
      and pid <> pg_backend_pid() and age(backend_xmin) >= age(${xid}))`,
  );

/** Runs the work while nobody else can use the partition, all of it or nothing; gives up where that takes long. */
async function alone<Value>(db: Db, name: string, work: (transaction: Db) => Promise<Value>): Promise<Value> {
  return await db.transaction().execute(async (transaction) => {
    await limitTime(transaction);
    await sql`lock table only usage, ${sql.table(name)} in access exclusive mode`.execute(transaction);
    return await work(transaction);
  });
}

async function limitTime(transaction: Db): Promise<void> {
  for (const limit of ['lock_timeout', 'statement_timeout'])
    await sql`select set_config(${limit}, ${String(lockedMs)}, true)`.execute(transaction);
}

const dropEmpty = (db: Db, name: string): Promise<boolean> =>
  alone(db, name, async (transaction) => {
    if (await isSeenFromBefore(transaction, retentionXid)) return false;
    if (await isEmpty(transaction, name)) await sql`drop table ${sql.table(name)}`.execute(transaction);
    return true;
  });

/** By the widths that `analyze` found. Where there are none, nothing is known, and the table stays. */
const isMostlyFree = (db: Db, name: string): Promise<boolean> =>
  isTrue(
    db,
    sql`(select pg_relation_size(pg_class.oid) > ${sql.lit(spareBytes)} + 2 * reltuples * (${sql.lit(rowBytes)} + width)
      from pg_class join pg_namespace on pg_namespace.oid = relnamespace, lateral (
        select sum((1 - null_frac) * avg_width) as width from pg_stats where schemaname = nspname and tablename = relname
      ) as widths where pg_class.oid = ${oidOf(name)})`,
  );

/** Copies of a process that died, or that could not take the place of their table. */
async function dropLeftCopies(db: Db): Promise<void> {
  const { rows } = await sql<{ readonly name: string }>`
    select relname as name from pg_constraint join pg_class on pg_class.oid = conrelid
    where conname = ${copyMark} and connamespace = current_schema()::regnamespace`.execute(db);
  for (const { name } of rows)
    await db.transaction().execute(async (transaction) => {
      await limitTime(transaction);
      await sql`drop table ${sql.table(name)}`.execute(transaction);
    });
}

/** The partition's remaining rows in a table of their size. false: not now; the copy that may be left is dropped by the next call. */
async function replaceByCopy(db: Db, name: string): Promise<boolean> {
  // A backup, for example: it would be copied in vain.
  if (
    await isTrue(db, sql`exists (select 1 from pg_locks where relation = ${oidOf(name)} and pid <> pg_backend_pid())`)
  )
    return false;
  // Rows do not change. A new one must have ended after the bound (the trigger `usage_not_removed`), and its writer must see the bound.
  const { keptSince } = await retentionOf(db);
  if (await isSeenFromBefore(db, retentionXid)) return false;
  await makeCopy(db, name);
  await copyRows(db, name);
  await addTriggers(db, name);
  const copy = sql.table(copyOf(name));
  await sql`vacuum (analyze) ${copy}`.execute(db);
  const counted = (table: RawBuilder<unknown>) => sql`(select count(*) from ${table})`;
  if (!(await isTrue(db, sql`${counted(sql.table(name))} = ${counted(copy)}`))) return false;
  return await swap(db, name, keptSince);
}

async function makeCopy(db: Db, name: string): Promise<void> {
  const { rows } = await sql<{ readonly bounds: string }>`
    select pg_get_partition_constraintdef(${oidOf(name)}) as bounds`.execute(db);
  await db.transaction().execute(async (transaction) => {
    await limitTime(transaction);
    const copy = sql.table(copyOf(name));
    await sql`create table ${copy} (like ${sql.table(name)} including all)`.execute(transaction);
    // With it, the copy is not read when it becomes a partition.
    await sql`alter table ${copy} add constraint ${sql.ref(copyMark)} check (${sql.raw(rows[0]!.bounds)})`.execute(
      transaction,
    );
  });
}

async function copyRows(db: Db, name: string): Promise<void> {
  for (let after: Uint8Array | undefined; ;) {
    const { rows } = await sql<{ readonly last: Uint8Array }>`
      with page as materialized (
        select * from ${sql.table(name)} ${after === undefined ? sql`` : sql`where request_id > ${after}`}
        order by request_id limit ${sql.lit(rowsAtOnce)}
      ), added as (insert into ${sql.table(copyOf(name))} select * from page)
      select request_id as last from page order by request_id desc limit 1`.execute(db);
    after = rows[0]?.last;
    if (after === undefined) return;
  }
}

/** Those of the partition, of which one refuses the rows that are copied. */
async function addTriggers(db: Db, name: string): Promise<void> {
  const { rows } = await sql<{ readonly made: string }>`
    select replace(pg_get_triggerdef(pg_trigger.oid), format(' ON %I.%I ', nspname, relname),
      format(' ON %I.%I ', nspname, ${copyOf(name)}::text)) as made
    from pg_trigger join pg_class on pg_class.oid = tgrelid join pg_namespace on pg_namespace.oid = relnamespace
    where tgrelid = ${oidOf(name)} and not tgisinternal order by tgname`.execute(db);
  await db.transaction().execute(async (transaction) => {
    for (const { made } of rows) await sql.raw(made).execute(transaction);
  });
}

async function swap(db: Db, name: string, keptSince: number): Promise<boolean> {
  const [old, copy] = [sql.table(name), sql.table(copyOf(name))];
  const bounds = await sql<{ readonly words: string }>`
    select pg_get_expr(relpartbound, oid) as words from pg_class where oid = ${oidOf(name)}`.execute(db);
  const indexes = await namesOfIndexes(db, name);
  // All that was written to the copy is older.
  const copied = await sql<{ readonly xid: string }>`select (txid_current() % 4294967296)::text as xid`.execute(db);
  const xid = sql`${copied.rows[0]!.xid}::text::xid`;
  return await alone(db, name, async (transaction) => {
    if (await isSeenFromBefore(transaction, xid)) return false;
    // Otherwise a migration has changed one of them meanwhile.
    if (!(await isTrue(transaction, sql`${shapeOf(name)} = ${shapeOf(copyOf(name))}`))) return false;
    // By the index of ends, whatever the planner thinks of it.
    await sql`select set_config('enable_seqscan', 'off', true)`.execute(transaction);
    const late = (table: RawBuilder<unknown>) =>
      sql`(select count(*) from ${table} where ended_at >= ${BigInt(keptSince)})`;
    if (!(await isTrue(transaction, sql`${late(old)} = ${late(copy)}`))) return false;
    await sql`drop table ${old}`.execute(transaction);
    await sql`alter table ${copy} rename to ${sql.ref(name)}`.execute(transaction);
    for (const { copied: from, name: to } of indexes)
      await sql`alter index ${sql.ref(from)} rename to ${sql.ref(to)}`.execute(transaction);
    await sql`alter table usage attach partition ${old} ${sql.raw(bounds.rows[0]!.words)}`.execute(transaction);
    await sql`alter table ${old} drop constraint ${sql.ref(copyMark)}`.execute(transaction);
    return true;
  });
}

/** What an index is, but for its name. */
const indexDefinition = sql`substring(pg_get_indexdef(indexrelid) from ' USING .*') || indisunique || indisprimary`;

async function namesOfIndexes(db: Db, name: string) {
  const named = (table: string) => sql`(
    select relname, ${indexDefinition} as definition,
      row_number() over (partition by ${indexDefinition} order by relname) as number
    from pg_index join pg_class on pg_class.oid = indexrelid where indrelid = ${oidOf(table)})`;
  const { rows } = await sql<{ readonly name: string; readonly copied: string }>`
    select of_old.relname as name, of_copy.relname as copied
    from ${named(name)} of_old join ${named(copyOf(name))} of_copy using (definition, number)
    order by 1`.execute(db);
  return rows;
}

/** One text of all that a reader and a writer meet in a table. */
const shapeOf = (name: string): RawBuilder<unknown> => sql`(
  select string_agg(line, ' ' order by line) from (
    select attname || format_type(atttypid, atttypmod) || attnotnull || attstorage::text as line
    from pg_attribute where attrelid = ${oidOf(name)} and attnum > 0 and not attisdropped
    union all select ${indexDefinition} from pg_index where indrelid = ${oidOf(name)}
    union all select tgname || tgtype || tgfoid || tgenabled::text from pg_trigger where tgrelid = ${oidOf(name)} and not tgisinternal
    union all select conname || pg_get_constraintdef(oid) from pg_constraint
    where conrelid = ${oidOf(name)} and contype = 'c' and conname <> ${copyMark}
  ) as lines)`;
