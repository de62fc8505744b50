import type { ByteWriter, ColumnSource, ParquetWriter } from 'hyparquet-writer';

import type { Columns, ColumnType, Exported } from './columns.ts';

/** Rows of a group: what is held until it is written. 29 columns of requests are 0.4 MB then. */
const rowsOfGroup = 20_000;

const types = {
  text: 'STRING',
  list: 'STRING',
  flag: 'BOOLEAN',
  time: 'TIMESTAMP',
  number: 'INT64',
  fraction: 'DOUBLE',
  sum: 'INT64',
} as const satisfies Readonly<Record<ColumnType, ColumnSource['type']>>;

/**
 * Prints rows as a Parquet file (snappy), group by group as they arrive. Integers are 64 bits, times UTC in milliseconds, lists are
 * text as in CSV. There is no row of sums, as it would be added up with the others: they are in the file's metadata under `totals`.
 */
export class ParquetPrinter {
  readonly #columns: Columns;
  readonly #bytes: ByteWriter;
  readonly #writer: ParquetWriter;
  readonly #rows: Exported[] = [];

  private constructor(columns: Columns, bytes: ByteWriter, writer: ParquetWriter) {
    this.#columns = columns;
    this.#bytes = bytes;
    this.#writer = writer;
  }

  /** The library is loaded when a file is asked for. */
  static async open(columns: Columns): Promise<ParquetPrinter> {
    const { ByteWriter, ParquetWriter, schemaFromColumnData } = await import('hyparquet-writer');
    const schema = schemaFromColumnData({ columnData: dataOf(columns, []) });
    const bytes = new ByteWriter();
    return new ParquetPrinter(columns, bytes, new ParquetWriter({ writer: bytes, schema, createdBy: 'Tokenhouse' }));
  }

  /** The bytes of a group when there are enough rows for one. */
  add(row: Exported): Uint8Array | undefined {
    this.#rows.push(row);
    return this.#rows.length === rowsOfGroup ? this.#group() : undefined;
  }

  /** The bytes of the last group and the end of the file. */
  end(totals: string): Uint8Array {
    const last = this.#rows.length === 0 ? new Uint8Array() : this.#group();
    this.#writer.kvMetadata = [{ key: 'totals', value: totals }];
    void this.#writer.finish();
    return Buffer.concat([last, this.#taken()]);
  }

  #group(): Uint8Array {
    const columnData = dataOf(this.#columns, this.#rows);
    this.#rows.length = 0;
    void this.#writer.write({ columnData, rowGroupSize: rowsOfGroup });
    return this.#taken();
  }

  /** What was written since the last time; the writer goes on counting where in the file it is. */
  #taken(): Uint8Array {
    const taken = Uint8Array.from(this.#bytes.getBytes());
    this.#bytes.index = 0;
    return taken;
  }
}

function dataOf(columns: Columns, rows: readonly Exported[]): ColumnSource[] {
  return Object.entries(columns).map(([name, type]) => ({
    name,
    type: types[type],
    offsetIndex: false,
    data: rows.map((row) => parquetValue(type, row[name]!)),
  }));
}

function parquetValue(type: ColumnType, value: Exported[string]): unknown {
  if (value === null) return null;
  if (type === 'number' || type === 'sum') return BigInt(value as number | bigint);
  if (type === 'time') return new Date(value as string);
  return type === 'list' ? (value as readonly string[]).join(' ') : value;
}
