/** What is compared of the rows that a run of a story has left. */
import { sql, type Kysely } from 'kysely';
import type { Database } from '../../src/store/database.ts';
import type { TableFacts } from '../../src/store/schema/column.ts';
import { tables, type TableName } from '../../src/store/schema/tables.ts';

/** Those of processes differ from run to run. */
export const comparedTables = (Object.keys(tables) as TableName[]).filter(
  (name) => (tables[name].facts as TableFacts).isOfProcesses !== true,
);

/** A count of changes, who has received a file, and what is not leased of a balance, which the verification adds up. */
export const uncomparedColumns: readonly string[] = ['version', 'replica_id', 'available'];

/** Texts of all rows of a database of SQLite with the tag in them, which `#` stands for. */
export async function rowsIn(db: Kysely<Database>, tag: string): Promise<readonly string[]> {
  const found: string[] = [];
  for (const name of comparedTables) {
    const { rows } = await sql<Readonly<Record<string, unknown>>>`select * from ${sql.table(name)}`.execute(db);
    for (const row of rows) {
      const kept = Object.entries(row).filter(([column]) => !uncomparedColumns.includes(column));
      const text = `${name} ${kept.map(([column, value]) => `${column}=${shown(value)}`).join(' ')}`;
      if (text.includes(tag)) found.push(text.replaceAll(tag, '#'));
    }
  }
  return found.toSorted();
}

const shown = (value: unknown): string =>
  value instanceof Uint8Array ? Buffer.from(value).toString('hex') : String(value);
