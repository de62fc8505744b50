export type Cell = string | number | bigint | boolean | null;

/**
 * A line of RFC 4180, with its end. Text that a spreadsheet would interpret as a formula is prefixed with an apostrophe; some read
 * full-width signs as the others.
 */
export const csvLine = (cells: readonly Cell[]): string => `${cells.map(csvCell).join(',')}\r\n`;

function csvCell(cell: Cell): string {
  if (cell === null) return '';
  if (typeof cell !== 'string') return String(cell);
  const text = /^[=+\-@\t\r\n＝＋－＠]/.test(cell) ? `'${cell}` : cell;
  return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}
