import { sql, type CreateTableBuilder } from 'kysely';

export type SchemaDialect = 'sqlite' | 'postgres';

/** The few types that the schema uses, by dialect. There are no others. */
export function columnTypes(dialect: SchemaDialect) {
  return {
    text: 'text',
    money: dialect === 'sqlite' ? 'integer' : 'bigint',
    time: dialect === 'sqlite' ? 'integer' : 'bigint',
    count: dialect === 'sqlite' ? 'integer' : 'bigint',
    bytes: dialect === 'sqlite' ? 'blob' : 'bytea',
  } as const;
}

/** SQLite: no silent conversions, and rows stored in the order of their primary key. PostgreSQL does the first anyway. */
export function strict<Table extends string, Column extends string>(
  table: CreateTableBuilder<Table, Column>,
  dialect: SchemaDialect,
): CreateTableBuilder<Table, Column> {
  return dialect === 'sqlite' ? table.modifyEnd(sql`strict, without rowid`) : table;
}
