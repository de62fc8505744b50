import { createHash, type Hash } from 'node:crypto';
import { open, readFile, rename, rm, writeFile, type FileHandle } from 'node:fs/promises';

/** The known origin of a partial file, kept beside it in `<part>.json`. */
export interface PartOrigin {
  readonly url: string;
  /** Strong validator for `If-Range`: an entity tag, or a modification date. */
  readonly validator: string | undefined;
  /** The SHA-256 that the whole file must have. */
  readonly sha256: string | undefined;
  readonly size: number | undefined;
}

/** A file being fetched: its bytes so far, and their hash. Bytes from an earlier process are read again first. */
export class Part {
  readonly path: string;
  readonly #handle: FileHandle;
  #hash: Hash = createHash('sha256');
  #length = 0;
  #origin: PartOrigin | undefined;
  #resumed = false;
  #pieced = false;

  private constructor(path: string, handle: FileHandle, origin: PartOrigin | undefined) {
    this.path = path;
    this.#handle = handle;
    this.#origin = origin;
  }

  /** Opens a part. Bytes of a file other than the expected one are discarded. `onBytes` reports progress in reading the rest. */
  static async open(
    path: string,
    sha256: string | undefined,
    signal: AbortSignal,
    onBytes: (bytes: number, total: number) => void,
  ): Promise<Part> {
    const origin = await readOrigin(`${path}.json`);
    const handle = await open(path, 'a+');
    const part = new Part(path, handle, origin);
    try {
      const { size } = await handle.stat();
      if (size > 0 && (origin === undefined || origin.sha256 !== sha256)) await part.restart();
      else await part.#readAgain(size, signal, onBytes);
      return part;
    } catch (error) {
      await handle.close();
      throw error;
    }
  }

  get length(): number {
    return this.#length;
  }

  /** Whether it contains bytes from an earlier process. */
  get resumed(): boolean {
    return this.#resumed;
  }

  /** Whether it comes from more than one response, so that a wrong hash need not be the fault of the last one. */
  get pieced(): boolean {
    return this.#pieced;
  }

  get origin(): PartOrigin | undefined {
    return this.#origin;
  }

  get sha256(): string {
    return this.#hash.copy().digest('hex');
  }

  /** Marks that the next bytes come from a different response. */
  goOn(): void {
    this.#pieced = true;
  }

  async append(chunk: Buffer): Promise<void> {
    for (let written = 0; written < chunk.length;) {
      written += (await this.#handle.write(chunk, written, chunk.length - written)).bytesWritten;
    }
    this.#hash.update(chunk);
    this.#length += chunk.length;
  }

  /** Discards all bytes. */
  async restart(): Promise<void> {
    await this.#handle.truncate(0);
    this.#hash = createHash('sha256');
    this.#length = 0;
    this.#resumed = this.#pieced = false;
  }

  /** Must be called before the first byte of a new origin: a part whose origin is unknown is never continued. */
  async setOrigin(origin: PartOrigin): Promise<void> {
    if (JSON.stringify(origin) === JSON.stringify(this.#origin)) return;
    const draft = `${this.path}.json.new`;
    await writeFile(draft, JSON.stringify(origin));
    await rename(draft, `${this.path}.json`);
    this.#origin = origin;
  }

  /** Makes the bytes durable. */
  async sync(): Promise<void> {
    await this.#handle.sync();
  }

  async close(): Promise<void> {
    await this.#handle.close();
  }

  /** Removes bytes that are of no further use. */
  async remove(): Promise<void> {
    await Promise.all([this.path, `${this.path}.json`].map((file) => rm(file, { force: true })));
  }

  async #readAgain(size: number, signal: AbortSignal, onBytes: (bytes: number, total: number) => void): Promise<void> {
    const buffer = Buffer.allocUnsafe(1 << 20);
    while (this.#length < size) {
      signal.throwIfAborted();
      const { bytesRead } = await this.#handle.read(buffer, 0, buffer.length, this.#length);
      if (bytesRead === 0) break;
      this.#hash.update(buffer.subarray(0, bytesRead));
      this.#length += bytesRead;
      onBytes(this.#length, size);
    }
    this.#resumed = this.#pieced = size > 0;
  }
}

async function readOrigin(file: string): Promise<PartOrigin | undefined> {
  try {
    const { url, validator, sha256, size } = JSON.parse(await readFile(file, 'utf8')) as Partial<PartOrigin>;
    return url === undefined ? undefined : { url, validator, sha256, size };
  } catch {
    return undefined; // Missing or damaged: the part starts over.
  }
}
