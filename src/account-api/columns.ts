import type { Cell } from './csv.ts';

/** A row of an export by column names, which are the same in every row. */
export type Exported = Readonly<Record<string, Cell | readonly string[]>>;

export type ExportFormat = 'csv' | 'json' | 'parquet';

/**
 * `list`: texts, separated by spaces where there are no lists; `time`: ISO 8601 in UTC; `number`: an integer; `sum`: one whose sum ends
 * the export.
 */
export type ColumnType = 'text' | 'list' | 'flag' | 'time' | 'number' | 'fraction' | 'sum';

/** The columns of an export in their order, the same in each format. */
export type Columns = Readonly<Record<string, ColumnType>>;
