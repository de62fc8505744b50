import type { Readable } from 'node:stream';

/** The content of a file, as it arrives. */
export type ByteStream = AsyncIterable<Uint8Array>;

/** At least one byte. */
export interface BytesPart {
  readonly from: number;
  readonly length: number;
}

/**
 * The storage of file bytes. Ids are ours, 32 hex digits, and never from a client. No method checks the account: the caller has checked in
 * the database that the file belongs to it.
 */
export interface FileBytes {
  /** Memory that one upload may take: bytes are streamed, never collected. */
  readonly memoryPerUploadBytes: number;
  /**
   * Stores all of the stream, and resolves when the bytes would survive a power loss. Rejects with the stream's error, with the reason of
   * the signal, or with `BytesError`; then nothing of it can be read, and `remove` leaves nothing behind.
   */
  write(id: string, source: ByteStream, signal: AbortSignal): Promise<void>;
  /** All of the bytes, or a part of them. Rejects with `BytesError`. The stream's own failures are errors of the stream; a caller that stops reading destroys it. */
  read(id: string, signal: AbortSignal, part?: BytesPart): Promise<Readable>;
  /** Removes all bytes of an id, even of an interrupted write; having none is not a failure. Rejects with `BytesError`. */
  remove(id: string): Promise<void>;
  close(): Promise<void>;
}

/** `full`: there is no room. `missing`: the bytes do not exist. The message is for the operator and contains no file content. */
export class BytesError extends Error {
  override readonly name = 'BytesError';
  readonly code: 'full' | 'missing' | 'failed';

  constructor(code: BytesError['code'], message: string, cause?: unknown) {
    super(message, cause === undefined ? undefined : { cause });
    this.code = code;
  }
}
