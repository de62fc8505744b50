import { createHash } from 'node:crypto';
import { createReadStream, createWriteStream, mkdirSync, mkdtempSync, readdirSync, rmSync, statSync } from 'node:fs';
import path from 'node:path';
import { Readable, Transform } from 'node:stream';
import { pipeline } from 'node:stream/promises';

import { OperationError } from '../accounts/operation.ts';
import { Bucket, BucketError, partBytesMin, partsMax } from '../platform/s3/bucket.ts';
import { stamp } from '../store/sqlite/backup.ts';
import type { Context } from './context.ts';
import { stoppable } from './stoppable.ts';

/** Name endings of backups: for SQLite the database file, for PostgreSQL an archive of pg_dump. */
const endings = { sqlite: '.db', postgres: '.dump' } as const;

/** A place for backups in a bucket: one object, or a folder of objects named by their time. */
export interface BucketPlace {
  readonly shown: string;
  readonly ending: (typeof endings)[keyof typeof endings];
  readonly bucket: string;
  /** The key of the object, or the prefix of the folder's keys. */
  readonly key: string;
  readonly isFolder: boolean;
}

export interface OpenPlace {
  readonly place: BucketPlace;
  readonly bucket: Bucket;
  readonly signal: AbortSignal;
  /** A folder for one copy, on the data's disk; removed afterwards. */
  readonly folder: string;
}

const dayMs = 86_400_000;
const cleanUpTimeoutMs = 10_000;
/** Limit for a secret or a checksum. */
const besideBytesMax = 4_096;
const copyPrefix = 'bucket-copy-';
const backupName = /^tokenhouse-\d{8}T\d{6}\.\d{3}(\.db|\.dump)(\.secret|\.sha256)?$/;

/** `s3://bucket/folder/`, or one object whose name ends like backups of this store; undefined if it is a file. */
export function bucketPlaceOf(word: string | undefined, store: keyof typeof endings): BucketPlace | undefined {
  if (word === undefined || !/^s3:/i.test(word)) return undefined;
  const ending = endings[store];
  const [, bucket, key = ''] = /^s3:\/\/([A-Za-z0-9._-]{3,255})(?:\/([^\p{Cc}]{0,800}))?$/u.exec(word) ?? [];
  const isOther = Object.values(endings).some((one) => one !== ending && key.endsWith(one));
  if (bucket === undefined || isOther)
    throw new OperationError(`Write s3://bucket/folder, or s3://bucket/folder/name${ending} for one object.`);
  const isFolder = !key.endsWith(ending);
  const folder = key === '' || key.endsWith('/') ? key : `${key}/`;
  return { shown: word, ending, bucket, key: isFolder ? folder : key, isFolder };
}

export const shownKey = ({ bucket }: OpenPlace, key: string): string => `s3://${bucket.name}/${key}`;

/** Uses the S3 service of `files`. SIGINT and SIGTERM stop the work, so that it can clean up. */
export async function inBucket<T>(
  { config, environment }: Context,
  place: BucketPlace,
  act: (open: OpenPlace) => Promise<T>,
): Promise<T> {
  const { bucketKeys } = environment;
  if (bucketKeys === undefined)
    throw new OperationError(
      `Nobody could sign in to ${place.shown}. Set the environment variables AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY.`,
    );
  const bucket = new Bucket({
    ...config.files.service,
    name: place.bucket,
    accessKeyId: bucketKeys.accessKeyId,
    secretAccessKey: bucketKeys.secretAccessKey.reveal(),
    sessionToken: bucketKeys.sessionToken?.reveal(),
  });
  const { directory } = config.storage;
  mkdirSync(directory, { recursive: true, mode: 0o700 });
  removeOldCopies(directory);
  const folder = mkdtempSync(path.join(directory, copyPrefix));
  try {
    return await stoppable(place.shown, (signal) => act({ place, bucket, signal, folder }));
  } finally {
    rmSync(folder, { recursive: true, force: true });
    await bucket.close();
  }
}

/** Removes the copies of processes that were killed. */
function removeOldCopies(directory: string): void {
  for (const name of readdirSync(directory)) {
    const copy = path.join(directory, name);
    if (!name.startsWith(copyPrefix) || Date.now() - statSync(copy).mtimeMs < dayMs) continue;
    rmSync(copy, { recursive: true, force: true });
  }
}

/** The key of a new backup. Refuses an object that exists, unless it may be overwritten. */
export async function newKey({ place, bucket, signal }: OpenPlace, isForced: boolean): Promise<string> {
  if (place.isFolder) return `${place.key}tokenhouse-${stamp(new Date())}${place.ending}`;
  if (!isForced && (await bucket.head(place.key, signal)) !== undefined)
    throw new OperationError(`${place.shown} exists. Choose another name, or overwrite it with --force.`);
  return place.key;
}

/** Sends a copy, which carries its own checksum. */
export async function sendBackup(
  open: OpenPlace,
  key: string,
  { file, secretFile }: { readonly file: string; readonly secretFile: string | undefined },
): Promise<void> {
  const { bucket, signal } = open;
  await withSecret(open, key, secretFile, async () => {
    const { size: bytes } = statSync(file);
    const sha256 = await sha256Of(file);
    await bucket.put(key, createReadStream(file), { signal, partBytes: partBytesFor(bytes), metadata: { sha256 } });
    await refuseUnlessKept(open, key, { bytes, sha256 });
  });
}

export interface StreamedBackup {
  readonly source: AsyncIterable<Uint8Array>;
  /** Rejects if the backup must not count. */
  readonly verified: Promise<unknown>;
  readonly bytesExpected: number;
  readonly secretFile: string | undefined;
}

/**
 * Sends a backup while it is being made. Its checksum, known only at the end, is an object beside it, without which it is not a
 * backup. Returns the number of bytes.
 */
export async function streamBackup(
  open: OpenPlace,
  key: string,
  { source, verified, bytesExpected, secretFile }: StreamedBackup,
): Promise<number> {
  const { bucket, signal } = open;
  const hash = createHash('sha256');
  let bytes = 0;
  const counted = async function* (): AsyncGenerator<Uint8Array> {
    for await (const chunk of source) {
      hash.update(chunk);
      bytes += chunk.length;
      yield chunk;
    }
  };
  return await withSecret(open, key, secretFile, async () => {
    await bucket.put(key, counted(), { signal, partBytes: partBytesFor(2 * bytesExpected) });
    try {
      await refuseUnlessKept(open, key, { bytes });
      await verified;
      // In the format of `sha256sum --check`.
      const line = Buffer.from(`${hash.digest('hex')}  ${path.basename(key)}\n`);
      await bucket.put(checksumKeyOf(key), Readable.from([line]), { signal });
    } catch (error) {
      await bucket.remove(key, AbortSignal.timeout(cleanUpTimeoutMs)).catch(() => {});
      throw error;
    }
    return bytes;
  });
}

/** S3 limits the number of parts; their size is constant, because Cloudflare R2 refuses varying ones. */
const partBytesFor = (bytes: number): number => Math.max(partBytesMin, Math.ceil(bytes / partsMax));

/**
 * Sends the secret before the backup, so that a backup that exists is complete. Removes uploads that dead processes began more than
 * a day ago.
 */
async function withSecret<T>(
  open: OpenPlace,
  key: string,
  secretFile: string | undefined,
  send: () => Promise<T>,
): Promise<T> {
  const { place, bucket, signal } = open;
  const begun = new Date(Date.now() - dayMs);
  await bucket.abandonUploads(place.key, (found, at) => (found === key || isOurs(place, found)) && at < begun, signal);
  try {
    if (secretFile !== undefined) await bucket.put(secretKeyOf(key), createReadStream(secretFile), { signal });
    return await send();
  } catch (error) {
    // Our generated name is new, so the secret is ours. If the service is unreachable, `--keep` removes it later.
    if (place.isFolder && secretFile !== undefined)
      await bucket.remove(secretKeyOf(key), AbortSignal.timeout(cleanUpTimeoutMs)).catch(() => {});
    throw error;
  }
}

/** Compares the service's metadata of the object with what was sent. */
async function refuseUnlessKept(
  { bucket, signal }: OpenPlace,
  key: string,
  { bytes, sha256 }: { readonly bytes: number; readonly sha256?: string },
): Promise<void> {
  const sent = await bucket.head(key, signal);
  if (sent?.bytes === bytes && sent.metadata['sha256'] === sha256) return;
  await bucket.remove(key, signal);
  throw new BucketError('failed', bucket.name, 'it did not keep what was sent', undefined);
}

/** Removes all but the newest backups of the folder, and secrets without a backup. Returns their keys. */
export async function removeOldBackups({ place, bucket, signal }: OpenPlace, keep: number): Promise<readonly string[]> {
  const ours = (await bucket.list(place.key, signal)).filter((key) => isOurs(place, key));
  const backups = backupsAmong(place, ours);
  const oldestKept = backups.at(-keep) ?? backups[0];
  if (oldestKept === undefined) return [];
  const old = ours.filter((key) => key < oldestKept);
  for (const key of old) await bucket.remove(key, signal);
  return old.filter((key) => key.endsWith(place.ending));
}

/** Fetches the named backup, or the newest of the folder, with its secret beside it. Refuses a backup that differs from what was sent. */
export async function fetchBackup(open: OpenPlace): Promise<{ readonly file: string; readonly shown: string }> {
  const { place, bucket, signal, folder } = open;
  const key = place.isFolder ? await newestKey(open) : place.key;
  const shown = shownKey(open, key);
  const found = await bucket.head(key, signal);
  if (found === undefined) throw new OperationError(`There is no ${shown}.`);
  const sha256 = found.metadata['sha256'] ?? (await checksumBeside(open, key));
  if (sha256 === undefined)
    throw new OperationError(
      `${shown} has no checksum, so tokenhouse db backup did not write it there. To restore it all the same, download it and name the file.`,
    );
  const file = path.join(folder, path.basename(key));
  const received = await receive(open, key, file, found.bytes);
  if (received !== sha256)
    throw new OperationError(`${shown} is not as it was sent: its sha256 is ${received}, not ${sha256}.`);
  const secret = await bucket.head(secretKeyOf(key), signal);
  if (secret !== undefined && secret.bytes <= besideBytesMax)
    await receive(open, secretKeyOf(key), secretKeyOf(file), secret.bytes);
  return { file, shown };
}

async function newestKey({ place, bucket, signal }: OpenPlace): Promise<string> {
  const newest = backupsAmong(place, await bucket.list(place.key, signal)).at(-1);
  if (newest === undefined) throw new OperationError(`There is no backup in ${place.shown}.`);
  return newest;
}

/** Oldest first. An archive without a checksum was cut off. */
function backupsAmong(place: BucketPlace, keys: readonly string[]): readonly string[] {
  const all = new Set(keys);
  const isWhole = (key: string): boolean => place.ending === endings.sqlite || all.has(checksumKeyOf(key));
  return keys.filter((key) => isOurs(place, key) && key.endsWith(place.ending) && isWhole(key)).toSorted();
}

async function checksumBeside({ bucket, signal }: OpenPlace, key: string): Promise<string | undefined> {
  const found = await bucket.head(checksumKeyOf(key), signal);
  if (found === undefined || found.bytes > besideBytesMax) return undefined;
  const parts: Uint8Array[] = [];
  for await (const part of named(await bucket.get(checksumKeyOf(key), signal), bucket)) parts.push(part);
  return /^[0-9a-f]{64}(?= )/.exec(Buffer.concat(parts).toString())?.[0];
}

/** Writes at most `bytesMax` bytes; returns the SHA-256 of what was received. */
async function receive({ bucket, signal }: OpenPlace, key: string, file: string, bytesMax: number): Promise<string> {
  const hash = createHash('sha256');
  const source = await bucket.get(key, signal);
  let bytes = 0;
  const counted = new Transform({
    transform(chunk: Buffer, _encoding, done) {
      bytes += chunk.length;
      hash.update(chunk);
      done(bytes > bytesMax ? new OperationError('The bucket sends more bytes than it said.') : null, chunk);
    },
  });
  try {
    await pipeline(named(source, bucket), counted, createWriteStream(file, { flags: 'wx', mode: 0o600 }), { signal });
  } catch (error) {
    if (signal.aborted) throw signal.reason;
    throw error;
  }
  return hash.digest('hex');
}

/** Wraps the bucket's errors, to distinguish them from disk errors. */
async function* named(source: AsyncIterable<Uint8Array>, { name }: Bucket): AsyncGenerator<Uint8Array> {
  try {
    yield* source;
  } catch (error) {
    const { code, message } = error as NodeJS.ErrnoException;
    throw new BucketError('failed', name, code ?? message, error);
  }
}

async function sha256Of(file: string): Promise<string> {
  const hash = createHash('sha256');
  for await (const chunk of createReadStream(file)) hash.update(chunk as Buffer);
  return hash.digest('hex');
}

/** Beside the backup, as with a backup file. */
const secretKeyOf = (key: string): string => `${key}.secret`;
const checksumKeyOf = (key: string): string => `${key}.sha256`;

const isOurs = ({ key: folder, isFolder, ending }: BucketPlace, key: string): boolean =>
  isFolder && key.startsWith(folder) && backupName.exec(key.slice(folder.length))?.[1] === ending;
