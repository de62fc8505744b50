import type { Readable } from 'node:stream';

/** The content of a file, as it arrives. */
export type ByteStream = AsyncIterable<Uint8Array>;

/**
 * Where the bytes of files are. Ids are ours, 32 hex digits, and never from a client. No method checks the account: the caller
 * has asked the database whose the file is.
 */
export interface FileBytes {
  /** Memory that one upload may take: bytes flow through, they are never collected. */
  readonly memoryPerUploadBytes: number;
  /**
   * Stores all of the stream, and resolves when the bytes would survive a power loss. Rejects with what the stream throws, with
   * the reason of the signal, or with `BytesError`; then nothing of it can be read, and `remove` leaves nothing behind.
   */
  write(id: string, source: ByteStream, signal: AbortSignal): Promise<void>;
  /** Rejects with `BytesError`. The stream's own failures are errors of the stream; a caller that stops reading destroys it. */
  read(id: string, signal: AbortSignal): Promise<Readable>;
  /** Removes all there is of it, also of an interrupted write; nothing is not a failure. Rejects with `BytesError`. */
  remove(id: string): Promise<void>;
  close(): Promise<void>;
}

/** `full`: there is no room. `missing`: there are no such bytes. The message is for the operator and holds no content. */
export class BytesError extends Error {
  override readonly name = 'BytesError';
  readonly code: 'full' | 'missing' | 'failed';

  constructor(code: BytesError['code'], message: string, cause?: unknown) {
    super(message, cause === undefined ? undefined : { cause });
    this.code = code;
  }
}
