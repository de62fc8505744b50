import { fstatSync, writeSync } from 'node:fs';

import type { LineSink } from '../platform/log.ts';
import { escapedControls } from './output.ts';

/**
 * Destination of the log: standard output, as JSON lines, and for a person at a terminal as text. `before` makes room for lines on the
 * terminal. A file is written to directly, because Node closes its stream for good at the first
 * error, and a full disk may have room again later: lines that cannot be written are dropped and counted (reliability S3).
 */
export function logOutput(before: () => void): LineSink {
  if (process.stdout.isTTY) return new TerminalOutput(before);
  return isFile() ? new FileOutput() : process.stdout;
}

class TerminalOutput implements LineSink {
  readonly #before: () => void;

  constructor(before: () => void) {
    this.#before = before;
  }

  write(lines: string): boolean {
    this.#before();
    return process.stdout.write(lines.replaceAll(/^.+$/gm, lineInWords));
  }

  once(event: 'drain', listener: () => void): unknown {
    return process.stdout.once(event, listener);
  }
}

/** `12:00:00 warn backend_failed model=small`: what a line of the log says, in its order and without what is null. */
export function lineInWords(line: string): string {
  let record;
  try {
    record = JSON.parse(line) as Readonly<Record<string, unknown>>;
  } catch {
    return line;
  }
  const { time, level, event, ...rest } = record;
  const facts = Object.entries(rest).flatMap(([name, value]) => {
    if (value === null) return [];
    const text = typeof value === 'string' ? value : JSON.stringify(value);
    return [`${name}=${/^[^\s"\\\p{C}]+$/u.test(text) ? text : escapedControls(JSON.stringify(text))}`];
  });
  const words = [
    String(time).slice(11, 19),
    ...(level === undefined || level === 'info' ? [] : [level]),
    event,
    ...facts,
  ];
  return words.join(' ');
}

const standardOutput = 1;

function isFile(): boolean {
  try {
    return fstatSync(standardOutput).isFile();
  } catch {
    return false;
  }
}

class FileOutput implements LineSink {
  /** A line was cut off when the disk was full; the next one starts on a new line. */
  #isCut = false;

  /** Throws if not all of the lines could be written. */
  write(lines: string): boolean {
    const bytes = Buffer.from(this.#isCut ? `\n${lines}` : lines);
    let from = 0;
    try {
      while (from < bytes.length) from += writeSync(standardOutput, bytes, from);
      this.#isCut = false;
    } finally {
      if (from > 0 && from < bytes.length) this.#isCut = true;
    }
    return true;
  }

  once(): void {
    // A file is never behind.
  }
}
