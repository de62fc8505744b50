/** A line of a file. */
export interface FileLine {
  /** Counted from 1. */
  readonly line: number;
  readonly offsetBytes: number;
  /** Its length without the line's end. */
  readonly length: number;
  /** undefined: it is longer than a line may be. */
  readonly bytes: Buffer<ArrayBuffer> | undefined;
}

const newline = 0x0a;

/** Reads the lines that are not empty; memory holds one line, of at most `bytesMax` bytes. */
export async function* splitLines(source: AsyncIterable<Uint8Array>, bytesMax: number): AsyncGenerator<FileLine> {
  let line = 1;
  let begunAt = 0;
  let at = 0;
  let parts: Uint8Array[] = [];
  let length = 0;
  const ended = (): FileLine | undefined => {
    const bytes = length <= bytesMax ? Buffer.concat(parts, length) : undefined;
    const found = { line, offsetBytes: begunAt, length, bytes };
    line++;
    begunAt = at;
    parts = [];
    length = 0;
    return bytes !== undefined && isBlank(bytes) ? undefined : found;
  };
  for await (const chunk of source) {
    for (let from = 0; from < chunk.length;) {
      const end = chunk.indexOf(newline, from);
      const until = end < 0 ? chunk.length : end;
      length += until - from;
      // What is too long is counted, and not kept.
      if (length <= bytesMax) parts.push(chunk.subarray(from, until));
      else parts = [];
      at += until - from + (end < 0 ? 0 : 1);
      from = until + 1;
      if (end < 0) continue;
      const found = ended();
      if (found !== undefined) yield found;
    }
  }
  const last = ended();
  if (last !== undefined) yield last;
}

/** Only white space of JSON. */
const isBlank = (bytes: Buffer): boolean => bytes.every((byte) => byte === 0x20 || byte === 0x09 || byte === 0x0d);
