/**
 * Reads and writes rows in the program's form: camelCase names, times and counts as numbers, flags as booleans, JSON parsed, money as
 * bigint with its unit in the name. Columns with the same name have the same kind in all tables (tests/store/codec.test.ts), so names are
 * sufficient to read a row.
 */
import {
  OperationNodeTransformer,
  type AliasNode,
  type IdentifierNode,
  type Kysely,
  type KyselyPlugin,
  type OperationNode,
  type PrimitiveValueListNode,
  type QueryId,
  type Selectable,
  type UnknownRow,
  type ValueNode,
} from 'kysely';
import type { Database } from '../database.ts';
import type { Column, Kind, ProgramTables } from './column.ts';
import { columnsOf, tables, type TableName } from './tables.ts';

/** All tables except better-auth's, which keep their own names (repositories/auth.ts). */
export type Rows = ProgramTables<Omit<typeof tables, `auth_${string}`>>;
/** A row of a table in the program's form. */
export type Row<Name extends keyof Rows> = Readonly<Selectable<Rows[Name]>>;

export const rowsOn = (db: Kysely<Database>): Kysely<Rows> => db.withPlugin(codec) as unknown as Kysely<Rows>;

/** The same connection with SQL's own columns. */
export const storedOn = (db: Kysely<Rows>): Kysely<Database> => db.withoutPlugins() as unknown as Kysely<Database>;

interface Described {
  /** The name in the program. */
  readonly name: string;
  readonly kind: Kind;
}

/** If columns with one name are text or bytes in one table and of another kind elsewhere, the other kind wins: it comes last. */
const isReadAsItIs = ({ kind }: Column): boolean => kind === 'text' || kind === 'bytes';

/** Keyed by SQL name. */
const columns: ReadonlyMap<string, Described> = new Map(
  (Object.keys(tables) as TableName[])
    .filter((table) => !table.startsWith('auth_'))
    .flatMap((table) => Object.entries(columnsOf(table)))
    .toSorted(([, one], [, other]) => Number(isReadAsItIs(other)) - Number(isReadAsItIs(one)))
    .map(([stored, { kind }]) => {
      const name = stored.replaceAll(/_(\w)/g, (_, letter: string) => letter.toUpperCase());
      return [stored, { kind, name: kind === 'money' ? `${name}Microcents` : name }];
    }),
);
const storedNames: ReadonlyMap<string, string> = new Map([...columns].map(([stored, { name }]) => [name, stored]));

/** The columns behind renamed columns of a query's result: `account.models as accountModels`. */
const aliases = new WeakMap<QueryId, Map<string, Described>>();

class RowTransformer extends OperationNodeTransformer {
  protected override transformIdentifier(node: IdentifierNode): IdentifierNode {
    const stored = storedNames.get(node.name);
    return stored === undefined ? node : { ...node, name: stored };
  }

  protected override transformAlias(node: AliasNode, queryId?: QueryId): AliasNode {
    const own = node.alias.kind === 'IdentifierNode' ? (node.alias as IdentifierNode).name : '';
    // It would come back under the program's name, contrary to its type.
    if ((columns.get(own)?.name ?? own) !== own)
      throw new Error(`"${own}" is a column's name in SQL: say ${columns.get(own)!.name}`);
    const transformed = super.transformAlias(node, queryId);
    const column = columnOf(transformed.node as Node);
    if (queryId !== undefined && column !== undefined && transformed.alias.kind === 'IdentifierNode') {
      const name = (transformed.alias as IdentifierNode).name;
      const known = aliases.get(queryId) ?? new Map<string, Described>();
      aliases.set(queryId, known.set(name, { name: columns.get(name)?.name ?? name, kind: column.kind }));
    }
    return transformed;
  }

  protected override transformValue(node: ValueNode): ValueNode {
    return { ...node, value: written(node.value) };
  }

  protected override transformPrimitiveValueList(node: PrimitiveValueListNode): PrimitiveValueListNode {
    return { ...node, values: node.values.map(written) };
  }
}

type Node = OperationNode & Readonly<Record<string, unknown>>;

/** The column that an expression refers to, directly or by min or max. */
function columnOf(node: Node): Described | undefined {
  if (node.kind === 'ReferenceNode') return columnOf(node['column'] as Node);
  if (node.kind === 'ColumnNode') return columns.get((node['column'] as IdentifierNode).name);
  if (node.kind === 'AggregateFunctionNode' && (node['func'] === 'max' || node['func'] === 'min'))
    return columnOf((node['aggregated'] as readonly Node[])[0]!);
  return undefined;
}

function written(value: unknown): unknown {
  if (typeof value === 'boolean') return value ? 1 : 0;
  return typeof value === 'object' && value !== null && !(value instanceof Uint8Array) ? JSON.stringify(value) : value;
}

function read(kind: Kind, value: unknown): unknown {
  switch (kind) {
    case 'count':
    case 'time':
      return typeof value === 'bigint' ? Number(value) : value;
    case 'flag':
      return typeof value === 'bigint' ? value !== 0n : value;
    case 'json':
      return typeof value === 'string' ? (JSON.parse(value) as unknown) : value;
    case 'text':
    case 'money':
    case 'price':
    case 'bytes':
      return value;
  }
}

const transformer = new RowTransformer();

const codec: KyselyPlugin = {
  transformQuery: ({ node, queryId }) => transformer.transformNode(node, queryId),
  transformResult: ({ result, queryId }) => {
    const [first] = result.rows;
    if (first === undefined) return Promise.resolve(result);
    const known = aliases.get(queryId);
    const plan = Object.keys(first).map((stored) => ({ stored, column: known?.get(stored) ?? columns.get(stored) }));
    const rows = result.rows.map((row) => {
      const values: UnknownRow = {};
      for (const { stored, column } of plan)
        values[column?.name ?? stored] = column === undefined ? row[stored] : read(column.kind, row[stored]);
      return values;
    });
    return Promise.resolve({ ...result, rows });
  },
};
