import { sql, type Kysely } from 'kysely';
import type { Database } from '../database.ts';
import type { SchemaDialect } from '../schema/create-schema.ts';
import type { TableName } from '../schema/tables.ts';
import { keyOf, ordered, rowText } from './row-text.ts';

/** The source or target of a copy: one connection; the source is read at one moment. */
export interface CopyEnd {
  readonly db: Kysely<Database>;
  readonly dialect: SchemaDialect;
  /** For messages; contains no secrets. */
  readonly shown: string;
  /** Throws if a process has begun to use it meanwhile; absent: no process can. */
  assertUnused?(): Promise<void>;
}

type Key = readonly unknown[];
type Read = Readonly<Record<string, unknown>> & { readonly text: string };

/** Approximate amount of row text in memory at a time: a row may hold an answer of megabytes. */
const batchCharacters = 4 * 1024 * 1024;
const batchRowsMax = 4_000;
const firstBatchRows = 16;

/** Yields row texts in key order, after `after`, in batches. PostgreSQL: must run in a transaction. */
export async function* rowBatches(
  { db, dialect }: CopyEnd,
  table: TableName,
  after?: Key,
): AsyncGenerator<readonly string[], void> {
  const key = keyOf(table);
  const list = (columns: readonly string[]) => sql.join(columns.map((column) => ordered(table, column, dialect)));
  const beyond = (last: Key | undefined) =>
    last === undefined ? sql`` : sql`where (${list(key)}) > (${sql.join(last)})`;
  const select = (last: Key | undefined) =>
    sql`select ${rowText(table, dialect)} as text, ${sql.join(key.map((column) => sql.ref(column)))}
        from ${sql.table(table)} ${beyond(last)} order by ${list(key)}`;
  let last = after;
  let rows = firstBatchRows;
  if (dialect === 'postgres') {
    // No index has this text order, so each table is sorted once.
    await sql`declare copied no scroll cursor for ${select(after)}`.execute(db);
  }
  for (let isEnd = false; !isEnd;) {
    const statement =
      dialect === 'postgres'
        ? sql<Read>`fetch forward ${sql.lit(rows)} from copied`
        : sql<Read>`${select(last)} limit ${sql.lit(rows)}`;
    const { rows: found } = await statement.execute(db);
    isEnd = found.length < rows;
    if (found.length === 0) break;
    const texts = found.map(({ text }) => text);
    yield texts;
    last = key.map((column) => found.at(-1)![column]);
    const characters = texts.reduce((sum, text) => sum + text.length, 0);
    rows = Math.max(1, Math.min(Math.floor((batchCharacters * texts.length) / characters), batchRowsMax));
  }
  if (dialect === 'postgres') await sql`close copied`.execute(db);
}

/** The last key in a table, in byte order; undefined: it is empty. */
export async function lastKey({ db, dialect }: CopyEnd, table: TableName): Promise<Key | undefined> {
  const key = keyOf(table);
  const down = key.map((column) => sql`${ordered(table, column, dialect)} desc`);
  const { rows } = await sql<Read>`
    select ${sql.join(key.map((column) => sql.ref(column)))} from ${sql.table(table)} order by ${sql.join(down)} limit 1`.execute(
    db,
  );
  return rows[0] === undefined ? undefined : key.map((column) => rows[0]![column]);
}

export async function countRows({ db }: CopyEnd, table: TableName): Promise<number> {
  const { rows } = await sql<{ count: bigint }>`select count(*) as count from ${sql.table(table)}`.execute(db);
  return Number(rows[0]!.count);
}
