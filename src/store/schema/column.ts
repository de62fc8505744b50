/**
 * A concise description of a column: `money.check('amount > 0')`. Nullable columns are marked (`.null`); the kind determines how SQL stores
 * a column and how the program reads it.
 */
import type { ColumnType, Generated } from 'kysely';

/**
 * `json` and `flag` are text and 0 or 1 in SQL. `money` is microcents, `price` microcents per million tokens, `time` milliseconds
 * since 1970.
 */
export type Kind = 'text' | 'json' | 'money' | 'price' | 'count' | 'time' | 'flag' | 'bytes';

interface Facts {
  readonly isNullable?: boolean;
  readonly isPrimary?: boolean;
  readonly isUnique?: boolean;
  /** A literal of SQL. */
  readonly byDefault?: string;
  /** A condition; the same for both databases. */
  readonly condition?: string;
  /** The allowed values. */
  readonly values?: readonly string[];
  /** The table whose `id` it references, and whether the row is deleted with the referenced one. */
  readonly references?: string;
  readonly isDeletedWith?: boolean;
}

export class Column<K extends Kind = Kind, Value = unknown, Null = unknown, Default = unknown> {
  /** Used only by types. */
  declare readonly type: { readonly value: Value; readonly null: Null; readonly default: Default };
  readonly kind: K;
  readonly facts: Facts;

  constructor(kind: K, facts: Facts = {}) {
    this.kind = kind;
    this.facts = facts;
  }

  get null(): Column<K, Value, true, Default> {
    return this.#with({ isNullable: true });
  }

  get primary(): this {
    return this.#with({ isPrimary: true });
  }

  get unique(): this {
    return this.#with({ isUnique: true });
  }

  default(literal: string): Column<K, Value, Null, true> {
    return this.#with({ byDefault: literal });
  }

  check(condition: string): this {
    return this.#with({ condition });
  }

  /** One of the values, in SQL and in the program. */
  of<const Values extends readonly string[]>(...values: Values): Column<K, Values[number], Null, Default> {
    return this.#with({ values });
  }

  /** A program type that SQL does not check. */
  as<Type>(): Column<K, Type, Null, Default> {
    return this.#with({});
  }

  references(table: string): this {
    return this.#with({ references: table });
  }

  /** The row is deleted with the row of the other table. */
  within(table: string): this {
    return this.#with({ references: table, isDeletedWith: true });
  }

  #with<Changed>(facts: Facts): Changed {
    return new Column(this.kind, { ...this.facts, ...facts }) as Changed;
  }
}

export const text = new Column<'text', string, false, false>('text');
export const money = new Column<'money', bigint, false, false>('money');
export const price = new Column<'price', bigint, false, false>('price');
export const count = new Column<'count', number, false, false>('count');
export const time = new Column<'time', number, false, false>('time');
export const flag = new Column<'flag', boolean, false, false>('flag');
export const bytes = new Column<'bytes', Uint8Array, false, false>('bytes');
export const json = <Value>() => new Column<'json', Value, false, false>('json');

export type Columns = Readonly<Record<string, Column>>;

export interface Index {
  /** Columns, or an expression in parentheses. */
  readonly on: readonly string[] | string;
  readonly where?: string;
  readonly isUnique?: boolean;
  /** PostgreSQL alone: what ranges of pages have (BRIN). Tiny; for a column in whose order the rows come. */
  readonly isOfRanges?: boolean;
}

/** The names of keys, checks and indexes are the part after the table's name and `_`. */
export interface TableFacts<Name extends string = string> {
  /** Set if the key has more than one column. */
  readonly key?: readonly Name[];
  readonly unique?: Readonly<Record<string, readonly Name[]>>;
  readonly checks?: Readonly<Record<string, string>>;
  readonly indexes?: Readonly<Record<string, readonly Name[] | Index>>;
  /** Rows are only added; `isAppendOnly` has separate triggers (triggers.ts). */
  readonly isImmutable?: boolean;
  /** A condition on `old` under which an immutable row may still be deleted. */
  readonly mayBeDeleted?: string;
  /**
   * PostgreSQL: rewritten with every batch, so free space on the page keeps the new version beside the old one, and the index unchanged.
   */
  readonly isRewritten?: boolean;
  /** PostgreSQL: unlogged, so empty after a server crash and on standbys. */
  readonly isUnlogged?: boolean;
  /** Data of running processes, which does not outlive them, so database copies exclude it. */
  readonly isOfProcesses?: boolean;
  /** PostgreSQL: partitioned by this column (partitions.ts). */
  readonly partitionedBy?: Name;
}

export interface Table<Of extends Columns = Columns> {
  readonly columns: Of;
  readonly facts: TableFacts;
}

export function table<Of extends Columns>(columns: Of, facts: TableFacts<keyof Of & string> = {}): Table<Of> {
  return { columns, facts };
}

type Whole = ColumnType<bigint, number | bigint, number | bigint>;

interface StoredAs<Value> {
  readonly text: Value;
  readonly json: string;
  readonly money: bigint;
  readonly price: bigint;
  readonly count: Whole;
  readonly time: Whole;
  readonly flag: Whole;
  readonly bytes: Uint8Array;
}

type OrDefault<Type, Default> = Default extends true
  ? Type extends ColumnType<infer Select, infer Insert, infer Update>
    ? ColumnType<Select, Insert | undefined, Update>
    : Generated<Type>
  : Type;

/**
 * A column as Kysely sees it without the codec. Every integer is *read* as bigint. Money is also *written* as bigint, never as number: a
 * number above 2^53 would silently be stored wrong.
 */
export type StoredColumn<Of> =
  Of extends Column<infer K, infer Value, infer Null, infer Default>
    ? OrDefault<StoredAs<Value>[K], Default> | (Null extends true ? null : never)
    : never;

export type StoredTables<Tables extends Readonly<Record<string, Table>>> = {
  [Name in keyof Tables]: { [Key in keyof Tables[Name]['columns']]: StoredColumn<Tables[Name]['columns'][Key]> };
};

type CamelCase<Name extends string> = Name extends `${infer First}_${infer Rest}`
  ? `${First}${Capitalize<CamelCase<Rest>>}`
  : Name;

/** The name of a column in the program: `created_at` is `createdAt`; money includes its unit: `returned` is `returnedMicrocents`. */
type ProgramName<Name extends string, Of> =
  Of extends Column<'money', infer _Value, infer _Null, infer _Default>
    ? `${CamelCase<Name>}Microcents`
    : CamelCase<Name>;

/** A column as the program sees it through the codec (codec.ts). */
type ProgramColumn<Of> =
  Of extends Column<Kind, infer Value, infer Null, infer Default>
    ? OrDefault<Value, Default> | (Null extends true ? null : never)
    : never;

export type ProgramTables<Tables extends Readonly<Record<string, Table>>> = {
  [Name in keyof Tables]: {
    [Key in keyof Tables[Name]['columns'] & string as ProgramName<Key, Tables[Name]['columns'][Key]>]: ProgramColumn<
      Tables[Name]['columns'][Key]
    >;
  };
};
