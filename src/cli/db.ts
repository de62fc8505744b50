import { existsSync, mkdirSync, statSync } from 'node:fs';
import path from 'node:path';

import { sql } from 'kysely';

import { OperationError } from '../accounts/operation.ts';
import { openStore } from '../app/stores.ts';
import { shownPlace, type PostgresStorageConfig } from '../config/sections/storage.ts';
import { contentStatus, type ContentStatus } from '../store/repositories/content-status.ts';
import { backUp, databaseStatus, examine, putInPlace } from '../store/sqlite/backup.ts';
import { isOwned, takeLock } from '../store/sqlite/lock.ts';
import type { Examined } from '../store/verify/examine.ts';
import { copySecret, secretBeside, secretFile, secretFor, takeSecret } from './backup-secret.ts';
import type { Context } from './context.ts';
import { reading } from './database.ts';
import {
  bucketPlaceOf,
  fetchBackup,
  inBucket,
  newKey,
  removeOldBackups,
  sendBackup,
  shownKey,
  type BucketPlace,
  type OpenPlace,
} from './db-bucket.ts';
import { stoppable } from './stoppable.ts';
import { counted } from './amount.ts';

export interface BackupOptions {
  readonly force?: boolean;
  readonly secret: boolean;
  readonly keep?: number;
}

/** Copies the database, with the service running or not, and checks the copy. */
export async function backUpDatabase(
  context: Context,
  options: BackupOptions,
  word: string | undefined,
): Promise<number> {
  const { storage } = context.config;
  const place = bucketPlaceOf(word, storage.type);
  if (options.keep !== undefined && place?.isFolder !== true)
    throw new OperationError('--keep goes with a folder of a bucket: s3://bucket/folder');
  if (storage.type === 'sqlite') refuseMissing(storage.path);
  return place === undefined
    ? await backUpToFile(context, options, path.resolve(context.around.directory, word ?? ''))
    : await inBucket(context, place, (open) => backUpToBucket(context, options, open));
}

async function backUpToFile(context: Context, options: BackupOptions, target: string): Promise<number> {
  const { storage } = context.config;
  if (existsSync(target) && options.force !== true)
    throw new OperationError(`The file ${target} exists. Choose another name, or overwrite it with --force.`);
  const examined =
    storage.type === 'sqlite'
      ? await backUp(storage.path, target)
      : await stoppable(target, async (signal) => {
          const { dumpToFile } = await import('./db-server.ts');
          return await dumpToFile({ context, storage }, target, signal);
        });
  const isSecretCopied = copiesSecret(context, options);
  if (isSecretCopied) copySecret(secretFile(context.config), secretBeside(target));
  const { size: bytes } = statSync(target);
  return report(context, { shown: target, bytes, examined, isSecretCopied, removed: [] });
}

async function backUpToBucket(context: Context, options: BackupOptions, open: OpenPlace): Promise<number> {
  const key = await newKey(open, options.force === true);
  const isSecretCopied = copiesSecret(context, options);
  const named = { key, secretFile: isSecretCopied ? secretFile(context.config) : undefined };
  const { examined, bytes } = await copyToBucket(context, open, named);
  // If the new one has differences, an old one may be the last without any.
  const { keep } = options;
  const removed = keep === undefined || examined.differences.length > 0 ? [] : await removeOldBackups(open, keep);
  const shownRemoved = removed.map((each) => shownKey(open, each));
  return report(context, { shown: shownKey(open, key), bytes, examined, isSecretCopied, removed: shownRemoved });
}

/** A backup of a file is first made and verified on the disk, so nothing unverified gets a name in the bucket. */
async function copyToBucket(
  context: Context,
  open: OpenPlace,
  named: { readonly key: string; readonly secretFile: string | undefined },
): Promise<{ readonly examined: Examined; readonly bytes: number }> {
  const { storage } = context.config;
  if (storage.type === 'postgres') {
    const { dumpToBucket } = await import('./db-server.ts');
    return await dumpToBucket({ context, storage }, open, named);
  }
  const copy = path.join(open.folder, path.basename(named.key));
  const examined = await backUp(storage.path, copy);
  await sendBackup(open, named.key, { file: copy, secretFile: named.secretFile });
  return { examined, bytes: statSync(copy).size };
}

/** A secret from the environment is not ours to copy. A computer from which a server is backed up may not have one. */
const copiesSecret = ({ config, environment }: Context, { secret }: BackupOptions): boolean =>
  secret && environment.secret === undefined && (config.storage.type === 'sqlite' || existsSync(secretFile(config)));

interface Made {
  readonly shown: string;
  readonly bytes: number;
  readonly examined: Examined;
  readonly isSecretCopied: boolean;
  readonly removed: readonly string[];
}

function report(
  { config, environment, print }: Context,
  { shown, bytes, examined, isSecretCopied, removed }: Made,
): number {
  const { accounts, transfers, usageRows, differences } = examined;
  const secretNeeded = environment.secret === undefined ? secretFile(config) : 'TOKENHOUSE_SECRET';
  print.result(
    {
      file: shown,
      bytes,
      secret: isSecretCopied ? secretBeside(shown) : null,
      accounts,
      transfers,
      usage_rows: usageRows,
      differences,
      removed,
    },
    [
      `${shown}: ${bytes} bytes, ${counted(accounts, 'account')}, ${counted(transfers, 'transfer')}, ${counted(usageRows, 'request')}; ` +
        (differences.length === 0 ? 'verified' : `${differences.length} DIFFERENCES, see: tokenhouse ledger verify`),
      isSecretCopied
        ? `${secretBeside(shown)}: the secret that its keys are hashed with. Anyone with both files can test guesses of keys; keep them apart if possible.`
        : `Its keys need the secret that they were created with: ${secretNeeded}. The secret is not in the backup.`,
      ...removed.map((each) => `${each}: removed`),
    ],
  );
  return differences.length === 0 ? 0 : 1;
}

/** Replaces the database of a stopped service with a backup; on PostgreSQL, fills an empty one with it. */
export async function restoreDatabase(
  context: Context,
  options: { readonly force?: boolean },
  word: string | undefined,
): Promise<number> {
  const { around, config } = context;
  const place = bucketPlaceOf(word, config.storage.type);
  const source = path.resolve(around.directory, word ?? '');
  if (place === undefined) refuseMissing(source);
  mkdirSync(config.storage.directory, { recursive: true, mode: 0o700 });
  if (config.storage.type === 'sqlite')
    return await replaceFile(context, {
      file: config.storage.path,
      force: options.force === true,
      place,
      source,
      word,
    });
  const { storage } = config;
  if (options.force === true)
    throw new OperationError(
      'A backup of PostgreSQL is put into an empty database only, so there is nothing to force. Create one, and set `storage` to it.',
    );
  if (place === undefined)
    return await stoppable(source, (signal) =>
      restoreServer(context, storage, { file: source, shown: source, signal }),
    );
  return await inBucket(context, place, async (open) =>
    restoreServer(context, storage, { ...(await fetchBackup(open)), signal: open.signal }),
  );
}

async function replaceFile(
  context: Context,
  {
    file,
    force,
    place,
    source,
    word,
  }: {
    readonly file: string;
    readonly force: boolean;
    readonly place: BucketPlace | undefined;
    readonly source: string;
    readonly word: string | undefined;
  },
): Promise<number> {
  // From here on no service can start on it.
  const lock = takeLock(file);
  try {
    if (existsSync(file) && !force) {
      throw new OperationError(
        `A database exists at ${file}. To replace it (the old one is kept under another name): tokenhouse db restore ${word} --force`,
      );
    }
    if (place === undefined) return await restoreFile(context, source, file);
    return await inBucket(context, place, async (open) => {
      const fetched = await fetchBackup(open);
      return await restoreFile(context, fetched.file, file, fetched.shown);
    });
  } finally {
    lock.release();
  }
}

async function restoreServer(
  context: Context,
  storage: PostgresStorageConfig,
  { file, shown, signal }: { readonly file: string; readonly shown: string; readonly signal: AbortSignal },
): Promise<number> {
  const { config, environment } = context;
  const { restoreToServer } = await import('./db-server.ts');
  let isSecretTaken = false;
  const examined = await restoreToServer({ context, storage }, { file, signal }, ({ pepperIds }) => {
    const secret = secretFor(pepperIds, { source: file, shown }, config, environment.secret?.reveal());
    isSecretTaken = secret === 'of the backup';
  });
  const keptSecret = isSecretTaken ? takeSecret(file, config, new Date()) : undefined;
  return reportRestored(context, { database: storage.shown, shown, examined, kept: undefined, keptSecret });
}

async function restoreFile(context: Context, source: string, file: string, shown = source): Promise<number> {
  const { config, environment } = context;
  const secret = secretFor((await examine(source)).pepperIds, { source, shown }, config, environment.secret?.reveal());
  const now = new Date();
  const { examined, kept } = await putInPlace(source, file, now);
  const keptSecret = secret === 'of the backup' ? takeSecret(source, config, now) : undefined;
  return reportRestored(context, { database: file, shown, examined, kept, keptSecret });
}

interface Restored {
  readonly database: string;
  readonly shown: string;
  readonly examined: Examined;
  readonly kept: string | undefined;
  readonly keptSecret: string | undefined;
}

function reportRestored({ print }: Context, { database, shown, examined, kept, keptSecret }: Restored): number {
  print.result(
    {
      file: database,
      restored_from: shown,
      kept: kept ?? null,
      kept_secret: keptSecret ?? null,
      accounts: examined.accounts,
      transfers: examined.transfers,
      usage_rows: examined.usageRows,
    },
    [
      `${database} is restored from ${shown}: ${counted(examined.accounts, 'account')}, ${counted(examined.transfers, 'transfer')}, ${counted(examined.usageRows, 'request')}; verified.`,
      ...[kept, keptSecret].flatMap((name) => (name === undefined ? [] : [`The replaced database is kept: ${name}`])),
      'Requests that were running during the backup are recorded as crashed, without a charge, at the next start.',
    ],
  );
  return 0;
}

/** Creates or updates the tables as a start does, without starting anything. */
export async function migrateDatabase({ config, print }: Context): Promise<number> {
  const { storage } = config;
  const place = shownPlace(storage);
  const store = await openStore(storage, { onFatal: ({ message }) => print.say(message) });
  try {
    const { migrated } = store;
    print.result({ database: place, migrated }, [
      `${place}: ${migrated.length === 0 ? 'up to date, nothing was changed' : `brought up to date: ${migrated.join(', ')}`}`,
    ]);
    return 0;
  } finally {
    await store.close();
  }
}

export async function showDatabase(context: Context): Promise<number> {
  const { config, print } = context;
  if (config.storage.type === 'postgres') return await showServer(context, config.storage.shown);
  const { path: file } = config.storage;
  refuseMissing(file);
  const isRunning = isOwned(file);
  const status = await databaseStatus(file);
  const walBytes = existsSync(`${file}-wal`) ? statSync(`${file}-wal`).size : 0;
  const content = shownContent(status);
  print.result(
    {
      file,
      running: isRunning,
      bytes: status.bytes,
      free_bytes: status.freeBytes,
      wal_bytes: walBytes,
      ...content.fields,
    },
    [
      `${file}: ${isRunning ? 'in use by a running service' : 'not in use'}`,
      `  size      ${status.bytes} bytes, ${status.freeBytes} of them free, and ${walBytes} in the write-ahead log`,
      ...content.lines,
    ],
  );
  return 0;
}

async function showServer(context: Context, shown: string): Promise<number> {
  const { status, bytes, replicas } = await reading(context, async ({ db }) => ({
    status: await contentStatus(db),
    bytes: (await sql<{ bytes: bigint }>`select pg_database_size(current_database()) as bytes`.execute(db)).rows[0]!
      .bytes,
    replicas: (await db.selectFrom('replica').select('id').execute()).length,
  }));
  const content = shownContent(status);
  context.print.result({ database: shown, replicas, bytes, ...content.fields }, [
    `${shown}: ${replicas === 0 ? 'not in use' : `in use by ${replicas} replicas`}`,
    `  size      ${bytes} bytes`,
    ...content.lines,
  ]);
  return 0;
}

/** What a database contains, for programs and for people; the same for both stores. */
function shownContent(status: ContentStatus): { readonly fields: object; readonly lines: readonly string[] } {
  const { migrations, accounts, liveKeys, transfers, requests, openRequests, lastEndedAt, pepperIds } = status;
  const { keptSince, prunedRequests } = status;
  const since = keptSince === 0 ? null : new Date(keptSince).toISOString();
  const last = lastEndedAt === undefined ? null : new Date(lastEndedAt).toISOString();
  return {
    fields: {
      migrations,
      accounts,
      live_keys: liveKeys,
      transfers,
      usage_rows: requests,
      details_since: since,
      pruned_requests: prunedRequests,
      open_requests: openRequests,
      last_request_at: last,
      secrets: pepperIds,
    },
    lines: [
      `  schema    ${migrations.at(-1) ?? 'none'}`,
      `  rows      ${counted(accounts, 'account')}, ${counted(liveKeys, 'live key')}, ${counted(transfers, 'transfer')}, ${counted(requests, 'request')}, ${openRequests} running`,
      `  newest    ${last ?? 'no request yet'}`,
      ...(since === null
        ? []
        : [
            `  details   of requests since ${since}; the rows of ${prunedRequests} older ones are removed, their sums are kept`,
          ]),
    ],
  };
}

function refuseMissing(file: string): void {
  if (!existsSync(file)) throw new OperationError(`The file ${file} does not exist.`);
}
