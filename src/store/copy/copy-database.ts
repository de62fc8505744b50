/**
 * Copies a database into an empty one of the other kind, table by table in the order of their keys, and compares both. What was
 * copied before a process was killed stays: the next one goes on behind the last row that each table has.
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

/** Nobody looks for other rows of processes that have ended; with these a request would lose its charge, or credit its owner. */
const mustBeEmpty = ['replica', 'credit_lease', 'budget_lease', 'open_request'] as const;

const factsOf = (name: TableName): TableFacts => tables[name].facts;

/** Referenced tables come before those that refer to them, as they are described. */
const copied = (Object.keys(tables) as TableName[]).filter((name) => factsOf(name).isOfProcesses !== true);

export interface CopiedTable {
  readonly table: TableName;
  readonly rows: number;
  /** SHA-256 of the texts of its rows in the order of their keys. */
  readonly digest: string;
}

export interface Copied {
  readonly tables: readonly CopiedTable[];
  readonly examined: Examined;
  /** Rows that an earlier process had copied already. */
  readonly rowsBefore: number;
}

/** `onProgress` hears after each batch how far a table is. */
export interface CopyOptions {
  readonly signal: AbortSignal;
  readonly nowMs: number;
  onProgress(table: TableName | 'compare', rows: number, of: number): void;
}

/**
 * Nobody else may use either end until it is done. `source` is read in one moment. Throws a `StoreError` and leaves a target that
 * no service starts on: a call with the same source goes on with it.
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
  // What was copied need not survive a power loss by itself: the end does, and all before it with it.
  if (target.dialect === 'postgres') await sql`select set_config('synchronous_commit', 'on', false)`.execute(target.db);
  // From here on a service starts on the target.
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

/** Returns how many rows were there already. */
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
    // Whoever reads further hears of it.
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

/** The last: while it says that rows are removed, none of that time can be added. Its one row only grows, and is there already. */
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
  const [from, examined] = [await examineLedger(source.db), await examineLedger(target.db)];
  if (JSON.stringify(examined) !== JSON.stringify(from))
    throw new StoreError('unusable', `The ledger of the copy does not verify as that of ${source.shown} does.`);
  return { tables: compared, examined };
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
  // A cursor lives in a transaction.
  if (end.dialect === 'sqlite' || end.db.isTransaction) await read(end);
  else await end.db.transaction().execute((db) => read({ ...end, db }));
  return { table, rows, digest: hash.digest('hex') };
}
