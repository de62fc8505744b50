import { randomBytes } from 'node:crypto';
import type { Readable } from 'node:stream';
import { withDeadline } from '../../platform/deadline.ts';
import { ApiError, atCap } from '../../platform/errors.ts';
import type { FileBounds, FileListRequest, FilePage, FileRow } from '../../store/repositories/files.ts';
import type { Repositories } from '../../store/repositories/repositories.ts';
import { StoreError } from '../../store/store-error.ts';
import { BytesError } from './file-bytes.ts';
import type { BytesPart, ByteStream, FileBytes } from './file-bytes.ts';
import { cleanName } from './file-name.ts';
import { endingOf, TypeSniffer } from './media-type.ts';

export type { FileBounds, FileCursor, FileRow } from '../../store/repositories/files.ts';

export type FileRepositories = Pick<
  Repositories,
  'beginFile' | 'finishFile' | 'getFile' | 'listFiles' | 'leaveFile' | 'forgetFiles' | 'unreadyFiles'
>;

export interface FilesOptions {
  readonly repositories: FileRepositories;
  readonly bytes: FileBytes;
  readonly bounds: FileBounds;
  /** Reports in fixed words, never with a name or content of a file. */
  readonly log: (event: 'file_bytes_failed' | 'file_rows_failed', reason: string) => void;
  readonly now?: () => number;
}

/** What is stored along with an upload's bytes; known once all of it has been read. */
export interface UploadFacts {
  readonly name: string | undefined;
  readonly purpose: string | null;
  /** Counted from the time of storing. */
  readonly expiresAfterMs: number | undefined;
}

/** An upload of the service's own. */
interface OwnUpload {
  readonly id?: string;
  /** Instead of the account's. */
  readonly bounds?: FileBounds;
}

/** Concurrent uploads of all accounts. */
const uploadsMax = 64;
const sweepEveryMs = 60_000;
const sweptAtOnce = 100;
/** Time limit for a sweep when the service starts and stops. */
const patienceMs = 5_000;

/**
 * The files of accounts: their metadata in the database, their bytes in a folder or a bucket.
 *
 * A file begins as a row marked as arriving, then its bytes are written, then it is ready; it ends as a row marked as leaving, then its
 * bytes are deleted, then its row. An interruption, by an error or by the death of the process, leaves a row that is not ready: no client
 * sees it, and the sweep deletes its bytes and then the row.
 */
export class Files {
  /** May change at any time; existing files stay. */
  bounds: FileBounds;
  readonly #repositories: FileRepositories;
  readonly #bytes: FileBytes;
  readonly #log: FilesOptions['log'];
  readonly #now: () => number;
  /** Uploads of this process, which the sweep leaves alone. */
  readonly #arriving = new Set<string>();
  #timer: NodeJS.Timeout | undefined;
  #sweeping: Promise<void> = Promise.resolve();

  constructor(options: FilesOptions) {
    this.#repositories = options.repositories;
    this.#bytes = options.bytes;
    this.#log = options.log;
    this.#now = options.now ?? Date.now;
    this.bounds = options.bounds;
  }

  /** Deletes what an earlier process has left, and from then on whatever expires. An unreachable bucket does not delay the start. */
  async start(): Promise<void> {
    await withDeadline(this.sweep(), patienceMs, () => {});
    this.#timer = setInterval(() => void this.sweep(), sweepEveryMs);
    this.#timer.unref();
  }

  async close(): Promise<void> {
    clearInterval(this.#timer);
    await withDeadline(this.#sweeping, patienceMs, () => {});
    await this.#bytes.close();
  }

  get memoryPerUploadBytes(): number {
    return this.#bytes.memoryPerUploadBytes;
  }

  /**
   * Stores a file of at most `bytesMax` bytes while it arrives. `facts` is called when the stream has ended, and may wait for what follows
   * it. Rejects with `ApiError`, with the error of the stream or of `facts`, or with the reason of the signal; then nothing is left of it,
   * now or after the next sweep.
   */
  async upload(
    accountId: string,
    bytesMax: number,
    source: ByteStream,
    facts: (bytes: number) => Promise<UploadFacts>,
    signal: AbortSignal,
    { id = randomBytes(16).toString('hex'), bounds = this.bounds }: OwnUpload = {},
  ): Promise<FileRow> {
    if (this.#arriving.size >= uploadsMax) {
      const message = 'Too many files are being uploaded. Try again shortly.';
      throw new ApiError('backend_at_capacity', message, atCap(uploadsMax, 1));
    }
    this.#arriving.add(id);
    try {
      const at = this.#now();
      const hasRoom = await this.#inWords(() => this.#repositories.beginFile({ id, accountId, bytesMax, at, bounds }));
      if (!hasRoom) throw noRoom(bounds);
      let isFinishing = false;
      try {
        const sniffer = new TypeSniffer();
        await this.#inWords(() => this.#bytes.write(id, sniffed(source, sniffer), signal));
        const { name, purpose, expiresAfterMs } = await facts(sniffer.length);
        const cleaned = cleanName(name);
        const mediaType = sniffer.mediaType(cleaned);
        const createdAt = this.#now();
        const file: FileRow = {
          id,
          accountId,
          name: cleaned === '' ? `unnamed${endingOf(mediaType)}` : cleaned,
          mediaType,
          purpose,
          bytes: sniffer.length,
          createdAt,
          expiresAt: expiresAfterMs === undefined ? null : createdAt + expiresAfterMs,
        };
        signal.throwIfAborted();
        isFinishing = true;
        const isFinished = await this.#inWords(() => this.#repositories.finishFile(file));
        if (!isFinished) throw new Error('the row of a file that arrives has gone');
        return file;
      } catch (error) {
        // After a failed finish the row may already be a file; as long as it may be one, its bytes stay.
        if (!isFinishing || (await this.#leave(accountId, id))) await this.#discard([id]);
        throw error;
      }
    } finally {
      this.#arriving.delete(id);
    }
  }

  /** Returns a part of the bytes of a file that a batch reads, which stay until it is over. */
  async readPart(id: string, from: number, length: number, signal: AbortSignal): Promise<Buffer<ArrayBuffer>> {
    const source = await this.readBytes(id, signal, { from, length });
    const chunks: Uint8Array[] = [];
    for await (const chunk of source as AsyncIterable<Uint8Array>) chunks.push(chunk);
    return Buffer.concat(chunks, length);
  }

  /** The same as a stream; all of them without a part. */
  async readBytes(id: string, signal: AbortSignal, part?: BytesPart): Promise<Readable> {
    return await this.#inWords(() => this.#bytes.read(id, signal, part));
  }

  /** `undefined`: the account has no such file. */
  async find(accountId: string, fileId: string): Promise<FileRow | undefined> {
    const id = readFileId(fileId);
    if (id === undefined) return undefined;
    return await this.#inWords(() => this.#repositories.getFile({ accountId, id, now: this.#now() }));
  }

  async list(accountId: string, request: Omit<FileListRequest, 'accountId' | 'now'>): Promise<FilePage> {
    return await this.#inWords(() => this.#repositories.listFiles({ ...request, accountId, now: this.#now() }));
  }

  /** Returns the bytes of a file from `find`; `undefined`: it has been deleted since. */
  async read(file: FileRow, signal: AbortSignal): Promise<Readable | undefined> {
    try {
      return await this.#inWords(() => this.#bytes.read(file.id, signal));
    } catch (error) {
      if (isMissing(error) && (await this.find(file.accountId, file.id)) === undefined) return undefined;
      throw error;
    }
  }

  /**
   * Deletes a file. `false`: the account has no such file. When it resolves, the bytes are gone, or hidden until the sweep deletes them.
   */
  async remove(accountId: string, fileId: string): Promise<boolean> {
    const id = readFileId(fileId);
    if (id === undefined) return false;
    const left = await this.#inWords(() => this.#repositories.leaveFile({ accountId, id, now: this.#now() }));
    if (left === undefined) return false;
    if (left === 'read')
      throw new ApiError('http_409', 'A batch reads the file: cancel the batch first, or wait for its end.');
    await this.#discard([id]);
    return true;
  }

  /** Runs one sweep at a time; never rejects. */
  sweep(): Promise<void> {
    this.#sweeping = this.#sweeping.then(async () => {
      try {
        for (;;) {
          const unready = await this.#repositories.unreadyFiles({ now: this.#now(), limit: sweptAtOnce + uploadsMax });
          const orphans = unready.filter((id) => !this.#arriving.has(id)).slice(0, sweptAtOnce);
          if (orphans.length === 0 || !(await this.#discard(orphans))) return;
        }
      } catch (error) {
        this.#log('file_rows_failed', error instanceof StoreError ? error.code : 'unexpected');
      }
    });
    return this.#sweeping;
  }

  async #leave(accountId: string, id: string): Promise<boolean> {
    try {
      await this.#repositories.leaveFile({ accountId, id, now: this.#now() });
      return true;
    } catch (error) {
      this.#log('file_rows_failed', error instanceof StoreError ? error.code : 'unexpected');
      return false;
    }
  }

  /** Deletes bytes first: a row without bytes is found again, bytes without a row never are. `false`: some are still there. */
  async #discard(ids: readonly string[]): Promise<boolean> {
    const gone: string[] = [];
    const begunMs = performance.now();
    for (const id of ids) {
      try {
        await this.#bytes.remove(id);
        gone.push(id);
      } catch (error) {
        this.#log('file_bytes_failed', error instanceof BytesError ? error.message : 'unexpected');
        // If all of them would fail, each after its timeout, the next sweep tries again.
        if (performance.now() - begunMs > patienceMs) break;
      }
    }
    try {
      await this.#repositories.forgetFiles({ ids: gone });
    } catch (error) {
      this.#log('file_rows_failed', error instanceof StoreError ? error.code : 'unexpected');
      return false;
    }
    return gone.length === ids.length;
  }

  /** Converts a failure of the store into the client's error: no reason, but a hint to retry (reliability S3). */
  async #inWords<T>(act: () => Promise<T>): Promise<T> {
    try {
      return await act();
    } catch (error) {
      if (error instanceof BytesError) {
        this.#log('file_bytes_failed', error.message);
        const message =
          error.code === 'full'
            ? 'There is no space left to store files.'
            : 'Files cannot be stored or read at the moment.';
        throw new ApiError('internal_error', message, { retryAfterSeconds: 1, cause: error });
      }
      if (error instanceof StoreError) {
        this.#log('file_rows_failed', error.code);
        const message =
          error.code === 'full'
            ? 'There is no space left to store files.'
            : 'The list of files cannot be read at the moment.';
        throw new ApiError('internal_error', message, { retryAfterSeconds: 1, cause: error });
      }
      throw error;
    }
  }
}

/** Whether a file could not be read because its bytes are gone. */
export const isMissing = (error: unknown): boolean =>
  error instanceof ApiError && error.cause instanceof BytesError && error.cause.code === 'missing';

/** Both spellings name the same file (contracts §1.4); `undefined`: not a valid file id. */
const readFileId = (text: string): string | undefined => /^(?:file[-_])?([0-9a-f]{32})$/.exec(text)?.[1];

async function* sniffed(source: ByteStream, sniffer: TypeSniffer): AsyncGenerator<Uint8Array> {
  for await (const chunk of source) {
    sniffer.push(chunk);
    yield chunk;
  }
}

const noRoom = ({ filesMax, bytesMax }: FileBounds): ApiError =>
  new ApiError(
    'http_403',
    `The account may have at most ${filesMax} files with ${bytesMax} bytes in total, and this one exceeds that. Delete some files first.`,
  );
