import { csvLine } from './csv.ts';
import type { Cell } from './csv.ts';

/** A row of an export by column names, which are the same in every row. */
export type Exported = Readonly<Record<string, Cell | readonly string[]>>;

export type ExportFormat = 'csv' | 'json';

/** Approximate length of each piece that is sent. */
const pieceLength = 16_384;

/**
 * Prints rows as they arrive, followed by the sums of the `added` columns of the printed rows. A page of rows is requested when the
 * text of the previous one has been read, so an export of any length takes the memory of one page.
 */
export async function* printExport(
  format: ExportFormat,
  columns: readonly string[],
  added: readonly string[],
  pages: AsyncIterable<readonly Exported[]>,
): AsyncGenerator<string> {
  const totals = new Map<string, bigint>(added.map((name) => [name, 0n]));
  let text = format === 'csv' ? csvLine(columns) : '{"object":"list","data":[\n';
  let rows = 0;
  for await (const page of pages) {
    for (const row of page) {
      for (const name of added) totals.set(name, totals.get(name)! + BigInt(row[name] as number | bigint));
      if (format === 'csv') text += csvLine(columns.map((name) => cellOf(row[name]!)));
      else text += `${rows === 0 ? '' : ',\n'}${jsonRow(columns, row)}`;
      rows++;
      if (text.length >= pieceLength) {
        yield text;
        text = '';
      }
    }
  }
  yield (
    text + (format === 'csv' ? footer(columns, totals) : `\n],"totals":${jsonTotals(totals, rows)},"has_more":false}\n`)
  );
}

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
