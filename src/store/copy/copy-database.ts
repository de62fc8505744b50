/**
 * Copies a database into an empty one of the other kind, table by table in key order, and compares both. Rows copied before a process was
 * killed stay: the next one continues after each table's last row.
 */
import { createHash } from 'node:crypto';
import { sql, type Kysely } from 'kysely';
import type { Database } from '../database.ts';
import { beginCopy, endCopy, migrationsThatRan, unfinishedCopyOf } from '../migrations/migrate.ts';
import { makePartitions } from '../postgres/partitions.ts';
import type { TableFacts } from '../schema/column.ts';
import { tables, type TableName } from '../schema/tables.ts';
import { StoreError } from '../store-error.ts';
import { examineLedger, type Examined } from '../verify/examine.ts';
import { countRows, lastKey, rowBatches, type CopyEnd } from './row-batches.ts';
import { insertRows } from './row-text.ts';

/** Other rows of ended processes are never read; with rows in these tables a request would lose its charge, or an owner credit. */
const mustBeEmpty = ['replica', 'credit_lease', 'budget_lease', 'open_request'] as const;

const factsOf = (name: TableName): TableFacts => tables[name].facts;

/** Referenced tables come before those that reference them, as in the description. */
const copied = (Object.keys(tables) as TableName[]).filter((name) => factsOf(name).isOfProcesses !== true);

export interface CopiedTable {
  readonly table: TableName;
  readonly rows: number;
  /** SHA-256 of the texts of its rows in key order. */
  readonly digest: string;
}

export interface Copied {
  readonly tables: readonly CopiedTable[];
  readonly examined: Examined;
  /** Number of rows that an earlier process had already copied. */
  readonly rowsBefore: number;
}

/** `onProgress` is called after each batch with the progress in a table. */
export interface CopyOptions {
  readonly signal: AbortSignal;
  readonly nowMs: number;
  onProgress(table: TableName | 'compare', rows: number, of: number): void;
}

/**
 * Copies and compares. Nothing else may use either database until it is done. `source` is read at one moment. On failure throws a
 * `StoreError` and leaves a target on which no service starts: another call with the same source continues the copy.
 */
export async function copyDatabase(source: CopyEnd, target: CopyEnd, options: CopyOptions): Promise<Copied> {
  for (const table of mustBeEmpty)
    if ((await countRows(source, table)) > 0)
      throw new StoreError(
        'busy',
        `${source.shown} is in use: ${table} has rows of a process that runs, or has just crashed.`,
      );
  await prepare(source, target, options.nowMs);
  if (target.dialect === 'postgres')
    await sql`select set_config('synchronous_commit', 'off', false)`.execute(target.db);
  let rowsBefore = 0;
  for (const table of copied) rowsBefore += await copyTable(source, target, table, options);
  await copyRetention(source, target);
  if (target.dialect === 'postgres') await sql`analyze`.execute(target.db);
  const compared = await compare(source, target, options);
  await source.assertUnused?.();
  // The copied rows need not be durable individually: the final write is, and with it everything before.
  if (target.dialect === 'postgres') await sql`select set_config('synchronous_commit', 'on', false)`.execute(target.db);
  // From here on a service can start on the target.
  await endCopy(target.db);
  return { ...compared, rowsBefore };
}

async function prepare(source: CopyEnd, target: CopyEnd, nowMs: number): Promise<void> {
  const { db, dialect } = target;
  const ran = await migrationsThatRan(db);
  const unfinished = await unfinishedCopyOf(db);
  if (unfinished === source.shown) return;
  if (unfinished !== undefined)
    throw new StoreError(
      'unusable',
      `${target.shown} has an unfinished copy of ${unfinished}. Copy that one again, or empty it first.`,
    );
  if (ran.length > 0)
    throw new StoreError('unusable', `${target.shown} is not empty: it has a database of Tokenhouse.`);
  await beginCopy(db, dialect, source);
  if (dialect === 'postgres') await makePartitions(db, nowMs);
}

/** Copies a table, and returns how many rows it already had. */
async function copyTable(
  source: CopyEnd,
  target: CopyEnd,
  table: TableName,
  { signal, onProgress }: CopyOptions,
): Promise<number> {
  if (table === 'usage_retention') return 0;
  const [before, all] = [await countRows(target, table), await countRows(source, table)];
  if (before === all) return before;
  let done = before;
  let inserting: Promise<unknown> = Promise.resolve();
  for await (const texts of rowBatches(source, table, await lastKey(target, table))) {
    // One batch is written while the next one is read.
    await inserting;
    signal.throwIfAborted();
    inserting = insert(target.db, table, target.dialect, texts);
    // An error surfaces at the next await.
    inserting.catch(() => {});
    done += texts.length;
    onProgress(table, done, all);
  }
  await inserting;
  return before;
}

async function insert(
  db: Kysely<Database>,
  table: TableName,
  dialect: CopyEnd['dialect'],
  texts: readonly string[],
): Promise<void> {
  try {
    await db
      .transaction()
      .execute((transaction) => insertRows(table, dialect, `[${texts.join(',')}]`).execute(transaction));
  } catch (error) {
    const reason = error instanceof Error ? error.message : String(error);
    throw new StoreError('unusable', `A row of ${table} could not be copied: ${reason}`, error);
  }
}

/** Copied last: once it states that rows are removed, no rows from before can be added. Its only row already exists, and only grows. */
async function copyRetention(source: CopyEnd, target: CopyEnd): Promise<void> {
  const { kept_since, removed_at } = await source.db
    .selectFrom('usage_retention')
    .selectAll()
    .executeTakeFirstOrThrow();
  await target.db.updateTable('usage_retention').set({ kept_since, removed_at }).execute();
}

async function compare(
  source: CopyEnd,
  target: CopyEnd,
  options: CopyOptions,
): Promise<{ readonly tables: readonly CopiedTable[]; readonly examined: Examined }> {
  const compared: CopiedTable[] = [];
  const different: string[] = [];
  for (const table of copied) {
    const [one, other] = await Promise.all([digestOf(source, table, options), digestOf(target, table, options)]);
    compared.push(other);
    if (one.rows !== other.rows || one.digest !== other.digest)
      different.push(`${table} (${one.rows} and ${other.rows} rows)`);
  }
  if (different.length > 0)
    throw new StoreError(
      'unusable',
      `The copy differs from ${source.shown} in ${different.join(', ')}. Empty the target, and copy again.`,
    );
  // The source has the same rows, so it is not examined as well: that takes as long as copying.
  return { tables: compared, examined: await examineLedger(target.db) };
}

async function digestOf(end: CopyEnd, table: TableName, { signal, onProgress }: CopyOptions): Promise<CopiedTable> {
  const hash = createHash('sha256');
  let rows = 0;
  const read = async (of: CopyEnd): Promise<void> => {
    for await (const texts of rowBatches(of, table)) {
      signal.throwIfAborted();
      hash.update(`${texts.join('\n')}\n`);
      rows += texts.length;
      onProgress('compare', rows, rows);
    }
  };
  // A cursor requires a transaction.
  if (end.dialect === 'sqlite' || end.db.isTransaction) await read(end);
  else await end.db.transaction().execute((db) => read({ ...end, db }));
  return { table, rows, digest: hash.digest('hex') };
}
