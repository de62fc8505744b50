/** The statements that create the tables of an empty database, derived from their description. */
import type { Column, Kind, Table } from './column.ts';
import { columnsOf, tables, type TableName } from './tables.ts';
import { appendOnly, immutable, notifiedChanges, retention, usagePartitions } from './triggers.ts';

export type SchemaDialect = 'sqlite' | 'postgres';

export function createSchema(dialect: SchemaDialect): readonly string[] {
  return [
    ...(Object.keys(tables) as TableName[]).flatMap((name) => createTable(name, dialect)),
    ...appendOnly[dialect],
    ...retention[dialect],
    ...(dialect === 'postgres' ? [...notifiedChanges, ...usagePartitions] : []),
  ];
}

/** Creates the table, its indexes, and the triggers that enforce its description. */
export function createTable(name: TableName, dialect: SchemaDialect): readonly string[] {
  const { columns, facts }: Table = tables[name];
  const { key, unique = {}, checks = {}, indexes = {}, partitionedBy } = facts;
  const body = [
    ...Object.keys(columns).map((column) => columnText(name, column, dialect)),
    ...(key === undefined ? [] : [`constraint "${name}_key" primary key (${quoted(key)})`]),
    ...Object.entries(unique).map(([suffix, of]) => `constraint "${name}_${suffix}" unique (${quoted(of)})`),
    ...Object.entries(checks).map(([suffix, condition]) => `constraint "${name}_${suffix}" check (${condition})`),
  ];
  const isPartitioned = dialect === 'postgres' && partitionedBy !== undefined;
  return [
    `create${dialect === 'postgres' && facts.isUnlogged === true ? ' unlogged' : ''} table "${name}" (${body.join(', ')})${isPartitioned ? ` partition by range ("${partitionedBy}")` : storage(tables[name], dialect)}`,
    ...Object.entries(indexes).flatMap(([suffix, index]) =>
      dialect === 'sqlite' && 'isOfRanges' in index ? [] : [createIndex(name, suffix)],
    ),
    ...(facts.isImmutable === true
      ? immutable(name, dialect, { isPartitioned, mayBeDeleted: facts.mayBeDeleted })
      : []),
  ];
}

export function createIndex(name: TableName, suffix: string): string {
  const { indexes = {} }: Table['facts'] = tables[name].facts;
  const index = indexes[suffix];
  if (index === undefined) throw new Error(`${name} has no index ${suffix}`);
  const { on, where, isUnique = false, isOfRanges = false } = 'on' in index ? index : { on: index };
  const what = typeof on === 'string' ? on : quoted(on);
  const [using, settings] = isOfRanges ? [' using brin', ' with (autosummarize = on)'] : ['', ''];
  return (
    `create${isUnique ? ' unique' : ''} index "${name}_${suffix}" on "${name}"${using} (${what})${settings}` +
    (where === undefined ? '' : ` where ${where}`)
  );
}

export const addColumn = (name: TableName, column: string, dialect: SchemaDialect): string =>
  `alter table "${name}" add column ${columnText(name, column, dialect)}`;

/** The few types that the schema uses, by kind. */
const integer = { sqlite: 'integer', postgres: 'bigint' } as const;
const words = { sqlite: 'text', postgres: 'text' } as const;
export const columnTypes: Readonly<Record<Kind, Readonly<Record<SchemaDialect, string>>>> = {
  text: words,
  json: words,
  money: integer,
  price: integer,
  count: integer,
  time: integer,
  flag: integer,
  bytes: { sqlite: 'blob', postgres: 'bytea' },
};

function columnText(table: TableName, name: string, dialect: SchemaDialect): string {
  const { kind, facts }: Column = columnsOf(table)[name]!;
  const { byDefault, values, condition, references } = facts;
  const check = values === undefined ? condition : `${name} in (${values.map((value) => `'${value}'`).join(', ')})`;
  return [
    `"${name}" ${columnTypes[kind][dialect]}`,
    ...(byDefault === undefined ? [] : [`default ${byDefault}`]),
    ...(facts.isNullable === true ? [] : ['not null']),
    ...(facts.isPrimary === true ? ['primary key'] : []),
    ...(facts.isUnique === true ? ['unique'] : []),
    ...(check === undefined ? [] : [`check (${check})`]),
    ...(references === undefined ? [] : [`references "${references}" ("id")`]),
    ...(facts.isDeletedWith === true ? ['on delete cascade'] : []),
  ].join(' ');
}

/** SQLite: no silent conversions, and rows stored in primary key order. PostgreSQL does the former anyway. */
function storage({ columns, facts }: Table, dialect: SchemaDialect): string {
  if (dialect === 'postgres') return facts.isRewritten === true ? ' with (fillfactor = 50)' : '';
  const hasKey = facts.key !== undefined || Object.values(columns).some((column) => column.facts.isPrimary === true);
  return hasKey ? ' strict, without rowid' : ' strict';
}

const quoted = (names: readonly string[]): string => names.map((name) => `"${name}"`).join(', ');
