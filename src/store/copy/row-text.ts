/**
 * A row as one line of JSON that SQLite and PostgreSQL produce identically, byte for byte, so that rows are copied and compared without
 * parsing their values here: `[1,"text",null,"0aff"]`, in column order. Bytes are hexadecimal. All of it is derived from the description of
 * the tables, which has only integers, texts and bytes.
 */
import { sql, type RawBuilder } from 'kysely';
import type { Kind } from '../schema/column.ts';
import { columnTypes, type SchemaDialect } from '../schema/create-schema.ts';
import { columnsOf, tables, type TableName } from '../schema/tables.ts';
import type { Table } from '../schema/column.ts';

type Form = 'number' | 'text' | 'bytes';

const formOf = (kind: Kind): Form => {
  const { sqlite } = columnTypes[kind];
  return sqlite === 'integer' ? 'number' : sqlite === 'text' ? 'text' : 'bytes';
};

const written: Readonly<Record<SchemaDialect, Readonly<Record<Form, (column: string) => string>>>> = {
  sqlite: {
    number: (column) => `ifnull(${column}, 'null')`,
    text: (column) => `json_quote(${column})`,
    // hex(null) is the empty text.
    bytes: (column) => `iif(${column} is null, 'null', '"' || lower(hex(${column})) || '"')`,
  },
  postgres: {
    number: (column) => `coalesce(${column}::text, 'null')`,
    text: (column) => `coalesce(to_json(${column})::text, 'null')`,
    bytes: (column) => `coalesce('"' || encode(${column}, 'hex') || '"', 'null')`,
  },
};

/** The SQL expression of a row's text. */
export function rowText(table: TableName, dialect: SchemaDialect): RawBuilder<string> {
  const parts = Object.entries(columnsOf(table)).map(([name, { kind }]) => written[dialect][formOf(kind)](`"${name}"`));
  return sql.raw(`'[' || ${parts.join(` || ',' || `)} || ']'`);
}

/**
 * The SQL expression of some columns of a row as a part of a JSON list, in which numbers are texts: as `JSON.stringify` would write them,
 * which the tests of proofs hold it to. A third of what reading the columns costs.
 */
export function textOfColumns(
  table: TableName,
  columns: readonly string[],
  dialect: SchemaDialect,
): RawBuilder<string> {
  // Nothing in it is null. `||` copies what it has so far for each column.
  return sql.raw(`concat_ws(',', ${columns.map((name) => textOfColumn(table, name, dialect)).join(', ')})`);
}

function textOfColumn(table: TableName, name: string, dialect: SchemaDialect): string {
  const form = formOf(columnsOf(table)[name]!.kind);
  if (form !== 'number') return written[dialect][form](`"${name}"`);
  return `coalesce('"' || cast("${name}" as text) || '"', 'null')`;
}

/** What follows in such a list for the columns that have a value: the name and the value of each. */
export function textOfGiven(table: TableName, columns: readonly string[], dialect: SchemaDialect): RawBuilder<string> {
  const parts = columns.map(
    (name) => `case when "${name}" is null then '' else ',"${name}",' || ${textOfColumn(table, name, dialect)} end`,
  );
  return sql.raw(parts.join(' || '));
}

const read: Readonly<Record<SchemaDialect, Readonly<Record<Form, (at: number) => string>>>> = {
  sqlite: {
    number: (at) => `value ->> ${at}`,
    text: (at) => `value ->> ${at}`,
    bytes: (at) => `unhex(value ->> ${at})`,
  },
  postgres: {
    number: (at) => `(value ->> ${at})::bigint`,
    text: (at) => `value ->> ${at}`,
    bytes: (at) => `decode(value ->> ${at}, 'hex')`,
  },
};

/** Inserts rows, given as one JSON list of their texts. */
export function insertRows(table: TableName, dialect: SchemaDialect, rows: string): RawBuilder<unknown> {
  const columns = Object.entries(columnsOf(table));
  const names = columns.map(([name]) => `"${name}"`).join(', ');
  const values = columns.map(([, { kind }], at) => read[dialect][formOf(kind)](at)).join(', ');
  const list = dialect === 'sqlite' ? sql`json_each(${rows})` : sql`jsonb_array_elements(${rows}::jsonb) as value`;
  return sql`insert into ${sql.table(table)} (${sql.raw(names)}) select ${sql.raw(values)} from ${list}`;
}

/** The columns that identify its rows; all of them if the table has no key. */
export function keyOf(table: TableName): readonly string[] {
  const { columns, facts }: Table = tables[table];
  const primary = Object.keys(columns).filter((name) => columns[name]!.facts.isPrimary === true);
  return facts.key ?? (primary.length > 0 ? primary : Object.keys(columns));
}

/** A column ordered by its bytes, which is the same everywhere; text order otherwise depends on the server. */
export function ordered(table: TableName, column: string, dialect: SchemaDialect): RawBuilder<unknown> {
  const isText = formOf(columnsOf(table)[column]!.kind) === 'text';
  return sql.raw(`"${column}"${isText && dialect === 'postgres' ? ' collate "C"' : ''}`);
}
