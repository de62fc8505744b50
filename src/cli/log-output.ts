import { fstatSync, writeSync } from 'node:fs';

import type { LineSink } from '../platform/log.ts';

/**
 * Destination of the log: standard output. A file is written to directly, because Node closes its stream for good at the first
 * error, and a full disk may have room again later: lines that cannot be written are dropped and counted (reliability S3).
 */
export function logOutput(): LineSink {
  return isFile() ? new FileOutput() : process.stdout;
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
