import { Readable } from 'node:stream';
import type * as Sdk from '@aws-sdk/client-s3';
import { BytesError } from './file-bytes.ts';
import type { ByteStream, FileBytes } from './file-bytes.ts';

export interface BucketSettings {
  readonly name: string;
  /** `undefined`: Amazon's own for the region. */
  readonly endpoint: string | undefined;
  readonly region: string;
  /** Begins the key of every object; ends with a slash unless it is empty. */
  readonly prefix: string;
  /** `https://host/bucket/key` instead of `https://bucket.host/key`. */
  readonly pathStyle: boolean;
  readonly accessKeyId: string;
  readonly secretAccessKey: string;
  readonly sessionToken: string | undefined;
}

interface Opened {
  readonly sdk: typeof Sdk;
  readonly client: Sdk.S3Client;
}

/** The smallest part that S3 accepts, except for the last. */
const partBytes = 5 * 1024 * 1024;
const connectTimeoutMs = 5_000;
const requestTimeoutMs = 60_000;

/**
 * Bytes in a bucket of any S3-compatible store. A file smaller than a part is sent as one object; others go in parts, so memory
 * never holds a whole file. An object exists once it is complete.
 */
export class BucketBytes implements FileBytes {
  /** A part being filled, and the one being sent. */
  readonly memoryPerUploadBytes = 2 * partBytes;
  readonly #settings: BucketSettings;
  #opened: Promise<Opened> | undefined;

  constructor(settings: BucketSettings) {
    this.#settings = settings;
  }

  async write(id: string, source: ByteStream, signal: AbortSignal): Promise<void> {
    const { sdk, client } = await this.#open();
    const at = this.#at(id);
    const options = { abortSignal: signal };
    let uploadId: string | undefined;
    const parts: { readonly PartNumber: number; readonly ETag: string | undefined }[] = [];
    try {
      let filling = Buffer.allocUnsafeSlow(partBytes);
      let used = 0;
      const send = async (): Promise<void> => {
        uploadId ??= (await inWords(signal, () => client.send(new sdk.CreateMultipartUploadCommand(at), options)))
          .UploadId;
        const PartNumber = parts.length + 1;
        const Body = filling.subarray(0, used);
        const part = new sdk.UploadPartCommand({ ...at, UploadId: uploadId, PartNumber, Body, ContentLength: used });
        const { ETag } = await inWords(signal, () => client.send(part, options));
        parts.push({ PartNumber, ETag });
        filling = Buffer.allocUnsafeSlow(partBytes);
        used = 0;
      };
      for await (const chunk of source) {
        signal.throwIfAborted();
        for (let from = 0; from < chunk.length;) {
          const count = Math.min(chunk.length - from, partBytes - used);
          filling.set(chunk.subarray(from, from + count), used);
          used += count;
          from += count;
          if (used === partBytes) await send();
        }
      }
      signal.throwIfAborted();
      if (uploadId === undefined && parts.length === 0) {
        const Body = filling.subarray(0, used);
        const whole = new sdk.PutObjectCommand({ ...at, Body, ContentLength: used });
        await inWords(signal, () => client.send(whole, options));
        return;
      }
      if (used > 0) await send();
      const all = { ...at, UploadId: uploadId, MultipartUpload: { Parts: parts } };
      await inWords(signal, () => client.send(new sdk.CompleteMultipartUploadCommand(all), options));
    } catch (error) {
      // Parts of an abandoned upload cost money forever; `remove` finds those of a process that died.
      if (uploadId !== undefined) {
        const abort = new sdk.AbortMultipartUploadCommand({ ...at, UploadId: uploadId });
        await client.send(abort).catch(() => {});
      }
      throw error;
    }
  }

  async read(id: string, signal: AbortSignal): Promise<Readable> {
    const { sdk, client } = await this.#open();
    const { Body } = await inWords(signal, () =>
      client.send(new sdk.GetObjectCommand(this.#at(id)), { abortSignal: signal }),
    );
    if (!(Body instanceof Readable)) throw new BytesError('failed', 'the bucket answered without a body');
    return Body;
  }

  async remove(id: string): Promise<void> {
    const { sdk, client } = await this.#open();
    const at = this.#at(id);
    const never = new AbortController().signal;
    const { Uploads = [] } = await inWords(never, () =>
      client.send(new sdk.ListMultipartUploadsCommand({ Bucket: at.Bucket, Prefix: at.Key })),
    );
    for (const { Key, UploadId } of Uploads) {
      if (Key !== at.Key) continue;
      await inWords(never, () => client.send(new sdk.AbortMultipartUploadCommand({ ...at, UploadId })));
    }
    await inWords(never, () => client.send(new sdk.DeleteObjectCommand(at)));
  }

  async close(): Promise<void> {
    if (this.#opened !== undefined) (await this.#opened).client.destroy();
  }

  #at(id: string): { readonly Bucket: string; readonly Key: string } {
    return { Bucket: this.#settings.name, Key: `${this.#settings.prefix}${id}` };
  }

  /** Loaded only if a bucket is configured: it is the largest of the dependencies. */
  #open(): Promise<Opened> {
    this.#opened ??= import('@aws-sdk/client-s3').then((sdk) => {
      const { endpoint, region, pathStyle, accessKeyId, secretAccessKey, sessionToken } = this.#settings;
      const client = new sdk.S3Client({
        region,
        forcePathStyle: pathStyle,
        ...(endpoint === undefined ? {} : { endpoint }),
        credentials: { accessKeyId, secretAccessKey, ...(sessionToken === undefined ? {} : { sessionToken }) },
        // Checksums in trailers are Amazon's own addition; others refuse them. TLS and the signature guard the bytes.
        requestChecksumCalculation: 'WHEN_REQUIRED',
        responseChecksumValidation: 'WHEN_REQUIRED',
        maxAttempts: 3,
        requestHandler: {
          connectionTimeout: connectTimeoutMs,
          requestTimeout: requestTimeoutMs,
          socketTimeout: requestTimeoutMs,
        },
      });
      return { sdk, client };
    });
    return this.#opened;
  }
}

async function inWords<T>(signal: AbortSignal, act: () => Promise<T>): Promise<T> {
  try {
    return await act();
  } catch (error) {
    if (signal.aborted) throw signal.reason;
    const { name } = error as Error;
    if (name === 'NoSuchKey') throw new BytesError('missing', 'the bytes of a file are not in the bucket', error);
    throw new BytesError('failed', `the bucket of the files cannot be used (${name})`, error);
  }
}
