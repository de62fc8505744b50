import { Readable } from 'node:stream';
import type * as Sdk from '@aws-sdk/client-s3';

export interface BucketSettings {
  readonly name: string;
  /** `undefined`: Amazon's endpoint for the region. */
  readonly endpoint: string | undefined;
  readonly region: string;
  /** `https://host/bucket/key` instead of `https://bucket.host/key`. */
  readonly pathStyle: boolean;
  readonly accessKeyId: string;
  readonly secretAccessKey: string;
  readonly sessionToken: string | undefined;
}

export interface BucketObject {
  readonly key: string;
  readonly bytes: number;
  readonly metadata: Readonly<Record<string, string>>;
}

export interface PutOptions {
  readonly signal: AbortSignal;
  /** Size of an uploaded part; memory holds two of them. */
  readonly partBytes?: number;
  readonly metadata?: Readonly<Record<string, string>>;
}

/** `missing`: the object does not exist. `reason` is the error's name in the S3 protocol, or the network's. Holds no credentials. */
export class BucketError extends Error {
  override readonly name = 'BucketError';
  readonly code: 'missing' | 'failed';
  readonly reason: string;

  constructor(code: BucketError['code'], bucket: string, reason: string, cause: unknown) {
    super(`the bucket ${bucket} ${code === 'missing' ? 'has no such object' : 'cannot be used'} (${reason})`, {
      cause,
    });
    this.code = code;
    this.reason = reason;
  }
}

interface Opened {
  readonly sdk: typeof Sdk;
  readonly client: Sdk.S3Client;
}

/** The smallest part that S3 accepts, except for the last, and the maximum number of parts of an object. */
export const partBytesMin = 5 * 1024 * 1024;
export const partsMax = 10_000;
const connectTimeoutMs = 5_000;
const requestTimeoutMs = 60_000;
/** S3 lists 1,000 at a time. */
const pagesMax = 1_000;

/** A bucket of any S3-compatible store. */
export class Bucket {
  readonly name: string;
  readonly #settings: BucketSettings;
  #opened: Promise<Opened> | undefined;

  constructor(settings: BucketSettings) {
    this.name = settings.name;
    this.#settings = settings;
  }

  /** Uploads an object in one piece if it is smaller than a part, otherwise in parts. It exists once it is complete. */
  async put(key: string, source: AsyncIterable<Uint8Array>, options: PutOptions): Promise<void> {
    const { signal, metadata, partBytes = partBytesMin } = options;
    const { sdk, client } = await this.#open();
    const at = this.#at(key);
    const described = metadata === undefined ? at : { ...at, Metadata: { ...metadata } };
    const abortable = { abortSignal: signal };
    let uploadId: string | undefined;
    const parts: { readonly PartNumber: number; readonly ETag: string | undefined }[] = [];
    const send = async (Body: Uint8Array): Promise<void> => {
      const create = new sdk.CreateMultipartUploadCommand(described);
      uploadId ??= (await this.#try(signal, () => client.send(create, abortable))).UploadId;
      const PartNumber = parts.length + 1;
      const part = { ...at, UploadId: uploadId, PartNumber, Body, ContentLength: Body.length };
      const { ETag } = await this.#try(signal, () => client.send(new sdk.UploadPartCommand(part), abortable));
      parts.push({ PartNumber, ETag });
    };
    try {
      for await (const piece of piecesOf(source, partBytes, signal)) {
        if (piece.isLast && parts.length === 0) {
          const whole = { ...described, Body: piece.bytes, ContentLength: piece.bytes.length };
          await this.#try(signal, () => client.send(new sdk.PutObjectCommand(whole), abortable));
          return;
        }
        if (piece.bytes.length > 0) await send(piece.bytes);
      }
      const all = { ...at, UploadId: uploadId, MultipartUpload: { Parts: parts } };
      await this.#try(signal, () => client.send(new sdk.CompleteMultipartUploadCommand(all), abortable));
    } catch (error) {
      // Parts of an abandoned upload cost money forever; `abandonUploads` finds those of a process that died.
      if (uploadId !== undefined) {
        const abort = new sdk.AbortMultipartUploadCommand({ ...at, UploadId: uploadId });
        await client.send(abort).catch(() => {});
      }
      throw error;
    }
  }

  async get(
    key: string,
    signal: AbortSignal,
    part?: { readonly from: number; readonly length: number },
  ): Promise<Readable> {
    const { sdk, client } = await this.#open();
    const range = part === undefined ? {} : { Range: `bytes=${part.from}-${part.from + part.length - 1}` };
    const command = new sdk.GetObjectCommand({ ...this.#at(key), ...range });
    const { Body } = await this.#try(signal, () => client.send(command, { abortSignal: signal }));
    if (!(Body instanceof Readable)) throw new BucketError('failed', this.name, 'no body', undefined);
    return Body;
  }

  /** The metadata of an object; undefined if it does not exist. */
  async head(key: string, signal: AbortSignal): Promise<BucketObject | undefined> {
    const { sdk, client } = await this.#open();
    const command = new sdk.HeadObjectCommand(this.#at(key));
    try {
      const found = await this.#try(signal, () => client.send(command, { abortSignal: signal }));
      return { key, bytes: found.ContentLength ?? 0, metadata: found.Metadata ?? {} };
    } catch (error) {
      if (error instanceof BucketError && error.code === 'missing') return undefined;
      throw error;
    }
  }

  /** The keys that begin with this prefix, in byte order. */
  async list(beginning: string, signal: AbortSignal): Promise<readonly string[]> {
    const { sdk, client } = await this.#open();
    const keys: string[] = [];
    let token: string | undefined;
    for (let page = 0; page < pagesMax; page++) {
      const wanted = {
        Bucket: this.name,
        Prefix: beginning,
        ...(token === undefined ? {} : { ContinuationToken: token }),
      };
      const command = new sdk.ListObjectsV2Command(wanted);
      const { Contents = [], NextContinuationToken } = await this.#try(signal, () =>
        client.send(command, { abortSignal: signal }),
      );
      for (const { Key } of Contents) if (Key !== undefined) keys.push(Key);
      if (NextContinuationToken === undefined) return keys;
      token = NextContinuationToken;
    }
    throw new BucketError('failed', this.name, `more than ${pagesMax * 1_000} objects`, undefined);
  }

  /** Removes an object; a missing one is not an error. */
  async remove(key: string, signal: AbortSignal): Promise<void> {
    const { sdk, client } = await this.#open();
    const command = new sdk.DeleteObjectCommand(this.#at(key));
    await this.#try(signal, () => client.send(command, { abortSignal: signal }));
  }

  /** Removes the parts of incomplete uploads. */
  async abandonUploads(
    beginning: string,
    isAbandoned: (key: string, begunAt: Date) => boolean,
    signal: AbortSignal,
  ): Promise<void> {
    const { sdk, client } = await this.#open();
    const list = new sdk.ListMultipartUploadsCommand({ Bucket: this.name, Prefix: beginning });
    const { Uploads = [] } = await this.#try(signal, () => client.send(list, { abortSignal: signal }));
    for (const { Key, UploadId, Initiated = new Date() } of Uploads) {
      if (Key === undefined || !isAbandoned(Key, Initiated)) continue;
      const abort = new sdk.AbortMultipartUploadCommand({ ...this.#at(Key), UploadId });
      await this.#try(signal, () => client.send(abort, { abortSignal: signal }));
    }
  }

  async close(): Promise<void> {
    if (this.#opened !== undefined) (await this.#opened).client.destroy();
  }

  #at(key: string): { readonly Bucket: string; readonly Key: string } {
    return { Bucket: this.name, Key: key };
  }

  async #try<T>(signal: AbortSignal, act: () => Promise<T>): Promise<T> {
    try {
      return await act();
    } catch (error) {
      if (signal.aborted) throw signal.reason;
      const { name, code, $metadata } = error as NodeJS.ErrnoException & {
        readonly $metadata?: { readonly httpStatusCode?: number };
      };
      // An answer to HEAD has no body that could name the error.
      const isUnnamed = name === 'Unknown' || /^\d+$/.test(name);
      const reason = isUnnamed ? `status ${$metadata?.httpStatusCode}` : name === 'Error' ? (code ?? name) : name;
      throw new BucketError(
        name === 'NoSuchKey' || name === 'NotFound' ? 'missing' : 'failed',
        this.name,
        reason,
        error,
      );
    }
  }

  /** Loaded only if a bucket is used: it is the largest of the dependencies. */
  #open(): Promise<Opened> {
    this.#opened ??= import('@aws-sdk/client-s3').then((sdk) => {
      const { endpoint, region, pathStyle, accessKeyId, secretAccessKey, sessionToken } = this.#settings;
      const client = new sdk.S3Client({
        region,
        forcePathStyle: pathStyle,
        ...(endpoint === undefined ? {} : { endpoint }),
        credentials: { accessKeyId, secretAccessKey, ...(sessionToken === undefined ? {} : { sessionToken }) },
        // Checksums in trailers are an Amazon extension; other stores refuse them. TLS and the signature guard the bytes.
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

interface Piece {
  readonly bytes: Uint8Array;
  readonly isLast: boolean;
}

/** Splits the stream into pieces of this size; the last may be smaller, or empty. */
async function* piecesOf(
  source: AsyncIterable<Uint8Array>,
  pieceBytes: number,
  signal: AbortSignal,
): AsyncGenerator<Piece> {
  let filling = Buffer.allocUnsafeSlow(pieceBytes);
  let used = 0;
  for await (const chunk of source) {
    signal.throwIfAborted();
    for (let from = 0; from < chunk.length;) {
      const count = Math.min(chunk.length - from, pieceBytes - used);
      filling.set(chunk.subarray(from, from + count), used);
      used += count;
      from += count;
      if (used < pieceBytes) continue;
      yield { bytes: filling, isLast: false };
      filling = Buffer.allocUnsafeSlow(pieceBytes);
      used = 0;
    }
  }
  signal.throwIfAborted();
  yield { bytes: filling.subarray(0, used), isLast: true };
}
