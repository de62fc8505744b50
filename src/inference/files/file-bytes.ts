import type { Readable } from 'node:stream';

/** What a file is made of, as it arrives. */
export type ByteStream = AsyncIterable<Uint8Array>;

/**
 * Where the bytes of files are. Ids are ours, 32 hex digits, and never anything that a client has said. No method answers for
 * an account: whoever calls has asked the database whose the file is.
 */
export interface FileBytes {
  /** Memory that one upload may take: bytes flow through, they are never collected. */
  readonly memoryPerUploadBytes: number;
  /**
   * Stores all of the stream, and resolves when the bytes would survive a power loss. Rejects with what the stream throws, with
   * the reason of the signal, or with `BytesError`; then nothing of it can be read, and `remove` leaves nothing behind.
   */
  write(id: string, source: ByteStream, signal: AbortSignal): Promise<void>;
  /** Rejects with `BytesError`. The stream's own failures are errors of the stream; whoever stops reading destroys it. */
  read(id: string, signal: AbortSignal): Promise<Readable>;
  /** Whatever there is of it, also of a write that was cut off; nothing is no failure. Rejects with `BytesError`. */
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
