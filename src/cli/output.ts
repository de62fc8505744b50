import { randomBytes } from 'node:crypto';
import type { Surroundings } from './surroundings.ts';

/** Data goes to standard output, messages to standard error. */
export interface Printer {
  readonly json: boolean;
  /** The result of a command: a value as JSON, or the lines for display. */
  result(value: unknown, lines: readonly Line[]): void;
  /** Text of the result, unchanged; waits for a slow reader. */
  raw(text: string): Promise<void>;
  say(line: string): void;
}

export function printer(json: boolean, { stdout, stderr }: Pick<Surroundings, 'stdout' | 'stderr'>): Printer {
  return {
    json,
    result: (value, lines) =>
      void stdout.write(
        json
          ? `${jsonText(value)}\n`
          : lines
              .flatMap((line) => (typeof line === 'string' ? line : tableLines(line, stdout.columns)))
              .map((line) => `${withoutControls(line)}\n`)
              .join(''),
      ),
    raw: (text) => new Promise((resolve) => void stdout.write(text, () => resolve())),
    say: (line) => void stderr.write(`${withoutControls(line)}\n`),
  };
}

/**
 * A reader that goes away, as in `tokenhouse usage | head -1`, is not our failure, and a service outlives the reader of its log.
 * Without a listener Node ends the process with a stack trace.
 */
export function outliveReaders(): void {
  const onError = (error: NodeJS.ErrnoException): void => {
    if (error.code !== 'EPIPE') process.exitCode = 69;
  };
  process.stdout.on('error', onError);
  process.stderr.on('error', onError);
}

/** Removes control characters and those that change the direction of text: names and messages of servers may contain them. */
export const withoutControls = (text: string): string =>
  text.replaceAll(/[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u202a-\u202e\u2066-\u2069]/g, '');

/** Escapes in JSON text the control characters that JSON allows unescaped: C1 and those of direction. */
export const escapedControls = (json: string): string =>
  json.replaceAll(
    /[\u007f-\u009f\u202a-\u202e\u2066-\u2069]/g,
    (character) => `\\u${character.codePointAt(0)!.toString(16).padStart(4, '0')}`,
  );

/** A time of the account API for display, in unix seconds there. */
export const timeText = (seconds: number): string => new Date(seconds * 1000).toISOString();

/** `2026-11-28 12:00:00`, in UTC. */
export const dayAndTime = (iso: string): string => iso.slice(0, 19).replace('T', ' ');

/** JSON in which a bigint is a plain integer, however large. */
export function jsonText(value: unknown): string {
  const mark = randomBytes(8).toString('hex');
  const text = JSON.stringify(value, (_name, part: unknown) => (typeof part === 'bigint' ? `${mark}${part}` : part), 2);
  return escapedControls(text.replaceAll(new RegExp(`"${mark}(-?\\d+)"`, 'g'), '$1'));
}

/** An amount as `dollars` prints it. */
const isAmount = (cell: unknown): boolean => typeof cell === 'string' && /^-?\$\d[\d,]*\.\d+$/.test(cell);

export type Cell = string | number | bigint | null;

/** A line of a result, or a table, whose form depends on the width of the terminal. */
export type Line = string | Table;
interface Table {
  readonly header: readonly string[];
  readonly rows: readonly (readonly Cell[])[];
}

export const table = (header: Table['header'], rows: Table['rows']): readonly [Table] => [{ header, rows }];

/**
 * Columns as wide as their widest cell; numbers and amounts are right-aligned. A terminal that is narrower than that would break
 * lines in the middle of words: there each row has its cells below each other.
 */
export function tableLines({ header, rows }: Table, columns: number | undefined): readonly string[] {
  const cells = [
    header,
    ...rows.map((row) => row.map((cell) => (cell === null ? '–' : withoutControls(String(cell))))),
  ];
  const widths = header.map((_, column) => Math.max(...cells.map((row) => (row[column] ?? '').length)));
  if (columns !== undefined && widths.reduce((sum, width) => sum + width + 2, -2) > columns) {
    const name = Math.max(...header.map(({ length }) => length));
    const below = (row: readonly string[]) => row.map((cell, column) => `${header[column]!.padEnd(name)}  ${cell}`);
    return cells.slice(1).flatMap((row, at) => (at === 0 ? below(row) : ['', ...below(row)]));
  }
  const toTheRight = header.map(
    (_, column) => rows.length > 0 && rows.every((row) => typeof row[column] !== 'string' || isAmount(row[column])),
  );
  return cells.map((row) =>
    row
      .map((cell, column) =>
        toTheRight[column] ? cell.padStart(widths[column] ?? 0) : cell.padEnd(widths[column] ?? 0),
      )
      .join('  ')
      .trimEnd(),
  );
}
