import type { Readable } from 'node:stream';
import { Bucket, BucketError, partBytesMin, type BucketSettings } from '../../platform/s3/bucket.ts';
import { BytesError } from './file-bytes.ts';
import type { BytesPart, ByteStream, FileBytes } from './file-bytes.ts';

/** Stores bytes in a bucket of any S3-compatible store; memory never holds a whole file. */
export class BucketBytes implements FileBytes {
  /** The part being filled, and the one being sent. */
  readonly memoryPerUploadBytes = 2 * partBytesMin;
  readonly #bucket: Bucket;
  readonly #prefix: string;

  /** The prefix begins the key of every object; it ends with a slash unless it is empty. */
  constructor({ prefix, ...settings }: BucketSettings & { readonly prefix: string }) {
    this.#bucket = new Bucket(settings);
    this.#prefix = prefix;
  }

  async write(id: string, source: ByteStream, signal: AbortSignal): Promise<void> {
    await inWords(() => this.#bucket.put(this.#key(id), source, { signal }));
  }

  async read(id: string, signal: AbortSignal, part?: BytesPart): Promise<Readable> {
    return await inWords(() => this.#bucket.get(this.#key(id), signal, part));
  }

  async remove(id: string): Promise<void> {
    const key = this.#key(id);
    const never = new AbortController().signal;
    await inWords(async () => {
      await this.#bucket.abandonUploads(key, (found) => found === key, never);
      await this.#bucket.remove(key, never);
    });
  }

  async close(): Promise<void> {
    await this.#bucket.close();
  }

  #key(id: string): string {
    return `${this.#prefix}${id}`;
  }
}

async function inWords<T>(act: () => Promise<T>): Promise<T> {
  try {
    return await act();
  } catch (error) {
    if (!(error instanceof BucketError)) throw error;
    if (error.code === 'missing') throw new BytesError('missing', 'the bytes of a file are not in the bucket', error);
    throw new BytesError('failed', `the bucket of the files cannot be used (${error.reason})`, error);
  }
}
