import { csvLine } from './csv.ts';
import type { Cell } from './csv.ts';
import type { Columns, Exported, ExportFormat } from './columns.ts';

/** Approximate length of each piece that is sent. */
const pieceLength = 16_384;

/**
 * Prints rows as they arrive, followed by the sums of the columns that are summed. A page of rows is requested when the text of the
 * previous one has been read, so an export of any length takes the memory of one page, as Parquet that of a group of rows.
 */
export async function* printExport(
  format: ExportFormat,
  columns: Columns,
  pages: AsyncIterable<readonly Exported[]>,
): AsyncGenerator<string | Uint8Array> {
  const names = Object.keys(columns);
  const totals = new Map<string, bigint>(names.filter((name) => columns[name] === 'sum').map((name) => [name, 0n]));
  const parquet = format === 'parquet' ? await openParquet(columns) : undefined;
  let text = { csv: csvLine(names), json: '{"object":"list","data":[\n', parquet: '' }[format];
  let rows = 0;
  for await (const page of pages) {
    for (const row of page) {
      for (const name of totals.keys()) totals.set(name, totals.get(name)! + BigInt(row[name] as number | bigint));
      const group = parquet?.add(row);
      if (group !== undefined) yield group;
      if (format === 'csv') text += csvLine(names.map((name) => cellOf(row[name]!)));
      else if (format === 'json') text += `${rows === 0 ? '' : ',\n'}${jsonRow(names, row)}`;
      rows++;
      if (text.length >= pieceLength) {
        yield text;
        text = '';
      }
    }
  }
  if (parquet !== undefined) yield parquet.end(jsonTotals(totals, rows));
  else if (format === 'csv') yield text + footer(names, totals);
  else yield `${text}\n],"totals":${jsonTotals(totals, rows)},"has_more":false}\n`;
}

/** Loaded when such a file is asked for. */
const openParquet = async (columns: Columns) => (await import('./parquet.ts')).ParquetPrinter.open(columns);

const cellOf = (value: Cell | readonly string[]): Cell => (isList(value) ? value.join(' ') : value);

const isList = (value: Cell | readonly string[]): value is readonly string[] => Array.isArray(value);

const footer = (columns: readonly string[], totals: ReadonlyMap<string, bigint>): string =>
  csvLine(columns.map((name, index) => totals.get(name) ?? (index === 0 ? 'total' : null)));

/** Integers of any size, unchanged. */
const jsonText = (value: Cell | readonly string[]): string =>
  typeof value === 'bigint' ? String(value) : JSON.stringify(value);

const jsonRow = (columns: readonly string[], row: Exported): string =>
  `{${columns.map((name) => `${JSON.stringify(name)}:${jsonText(row[name]!)}`).join(',')}}`;

const jsonTotals = (totals: ReadonlyMap<string, bigint>, rows: number): string =>
  `{${[['rows', rows] as const, ...totals].map(([name, sum]) => `${JSON.stringify(name)}:${sum}`).join(',')}}`;
