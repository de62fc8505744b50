import { copyFileSync, chmodSync, existsSync, mkdirSync, renameSync, rmSync, statSync } from 'node:fs';
import path from 'node:path';

import { sql } from 'kysely';

import { OperationError } from '../accounts/operation.ts';
import { openSecret, secretIdOf } from '../accounts/secret.ts';
import { openStore } from '../app/stores.ts';
import type { Config } from '../config/config.ts';
import { contentStatus, type ContentStatus } from '../store/repositories/content-status.ts';
import { backUp, databaseStatus, examine, putInPlace, stamp, syncFile, type Examined } from '../store/sqlite/backup.ts';
import { isOwned, takeLock } from '../store/sqlite/lock.ts';
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
  type OpenPlace,
} from './db-bucket.ts';

/** Keys are stored as hashes with a secret, so a copy of the database alone gives no access. */
const secretBeside = (backup: string): string => `${backup}.secret`;
const secretFile = (config: Config): string => path.join(config.storage.directory, 'secret');

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
  const file = fileOf(context.config, 'backed up with: pg_dump --format=custom --file=BACKUP');
  const place = bucketPlaceOf(word);
  if (options.keep !== undefined && place?.isFolder !== true)
    throw new OperationError('--keep goes with a folder of a bucket: s3://bucket/folder');
  refuseMissing(file);
  return place === undefined
    ? await backUpToFile(context, options, file, path.resolve(context.around.directory, word ?? ''))
    : await inBucket(context, place, (open) => backUpToBucket(context, options, file, open));
}

async function backUpToFile(context: Context, options: BackupOptions, file: string, target: string): Promise<number> {
  if (existsSync(target) && options.force !== true)
    throw new OperationError(`The file ${target} exists. Choose another name, or overwrite it with --force.`);
  const examined = await backUp(file, target);
  const isSecretCopied = copiesSecret(context, options);
  if (isSecretCopied) copySecret(secretFile(context.config), secretBeside(target));
  const { size: bytes } = statSync(target);
  return report(context, { shown: target, bytes, examined, isSecretCopied, removed: [] });
}

/** The copy is made and verified on the disk first, so nothing unverified gets a name in the bucket. */
async function backUpToBucket(
  context: Context,
  options: BackupOptions,
  file: string,
  open: OpenPlace,
): Promise<number> {
  const key = await newKey(open, options.force === true);
  const copy = path.join(open.folder, path.basename(key));
  const examined = await backUp(file, copy);
  const isSecretCopied = copiesSecret(context, options);
  await sendBackup(open, key, { file: copy, secretFile: isSecretCopied ? secretFile(context.config) : undefined });
  // Where the new one has differences, an old one may be the last that has none.
  const { keep } = options;
  const removed = keep === undefined || examined.differences.length > 0 ? [] : await removeOldBackups(open, keep);
  const { size: bytes } = statSync(copy);
  const shownRemoved = removed.map((each) => shownKey(open, each));
  return report(context, { shown: shownKey(open, key), bytes, examined, isSecretCopied, removed: shownRemoved });
}

/** A secret of the environment is none of ours to copy. */
const copiesSecret = ({ environment }: Context, { secret }: BackupOptions): boolean =>
  secret && environment.secret === undefined;

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
      `${shown}: ${bytes} bytes, ${accounts} accounts, ${transfers} transfers, ${usageRows} requests; ` +
        (differences.length === 0 ? 'verified' : `${differences.length} DIFFERENCES, see: tokenhouse ledger verify`),
      isSecretCopied
        ? `${secretBeside(shown)}: the secret that its keys are hashed with. Anyone with both files can test guesses of keys; keep them apart if possible.`
        : `Its keys need the secret that they were created with: ${secretNeeded}. The secret is not in the backup.`,
      ...removed.map((each) => `${each}: removed`),
    ],
  );
  return differences.length === 0 ? 0 : 1;
}

/** Replaces the database of a stopped service with a backup. */
export async function restoreDatabase(
  context: Context,
  options: { readonly force?: boolean },
  word: string | undefined,
): Promise<number> {
  const { around, config } = context;
  const file = fileOf(config, 'restored with: pg_restore --clean --if-exists --dbname=DATABASE BACKUP');
  const place = bucketPlaceOf(word);
  const source = path.resolve(around.directory, word ?? '');
  if (place === undefined) refuseMissing(source);
  mkdirSync(config.storage.directory, { recursive: true, mode: 0o700 });
  // From here on no service can start on it.
  const lock = takeLock(file);
  try {
    if (existsSync(file) && options.force !== true) {
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

async function restoreFile(
  { config, environment, print }: Context,
  source: string,
  file: string,
  shown = source,
): Promise<number> {
  const secret = secretFor((await examine(source)).pepperIds, { source, shown }, config, environment.secret?.reveal());
  const now = new Date();
  const { examined, kept } = await putInPlace(source, file, now);
  const keptSecret = secret === 'of the backup' ? takeSecret(source, config, now) : undefined;
  print.result(
    {
      file,
      restored_from: shown,
      kept: kept ?? null,
      kept_secret: keptSecret ?? null,
      accounts: examined.accounts,
      transfers: examined.transfers,
      usage_rows: examined.usageRows,
    },
    [
      `${file} is restored from ${shown}: ${examined.accounts} accounts, ${examined.transfers} transfers, ${examined.usageRows} requests; verified.`,
      ...[kept, keptSecret].flatMap((name) => (name === undefined ? [] : [`The replaced database is kept: ${name}`])),
      'Requests that were running during the backup are recorded as crashed, without a charge, at the next start.',
    ],
  );
  return 0;
}

/** Makes or updates the tables as a start does, and starts nothing. */
export async function migrateDatabase({ config, print }: Context): Promise<number> {
  const { storage } = config;
  const place = storage.type === 'sqlite' ? storage.path : storage.shown;
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
  const { status, bytes, replicas } = await reading(context, async (_repositories, db) => ({
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

/** What a database holds, for programs and for people; the same of both stores. */
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
      `  rows      ${accounts} accounts, ${liveKeys} live keys, ${transfers} transfers, ${requests} requests, ${openRequests} running`,
      `  newest    ${last ?? 'no request yet'}`,
      ...(since === null
        ? []
        : [
            `  details   of requests since ${since}; the rows of ${prunedRequests} older ones are removed, their sums are kept`,
          ]),
    ],
  };
}

/** PostgreSQL has its own tools for this, which see one moment of the database as ours do. */
function fileOf({ storage }: Config, remedy: string): string {
  if (storage.type === 'sqlite') return storage.path;
  throw new OperationError(
    `The database is PostgreSQL, which is ${remedy}. Keep the secret that the keys were created with, too: TOKENHOUSE_SECRET, or ${path.join(storage.directory, 'secret')}.`,
  );
}

/** The secret that the restored keys will be checked with. Refuses when they would all be dead. */
function secretFor(
  pepperIds: readonly string[],
  { source, shown }: { readonly source: string; readonly shown: string },
  config: Config,
  fromEnvironment: string | undefined,
): 'as it is' | 'of the backup' {
  if (pepperIds.length === 0) return 'as it is';
  const matches = (id: string | undefined): boolean => id !== undefined && pepperIds.every((needed) => needed === id);
  if (fromEnvironment !== undefined) {
    const { id } = openSecret({ fromEnvironment, dataFolder: config.storage.directory, warn: () => {} });
    if (matches(id)) return 'as it is';
    throw new OperationError(
      `The keys in ${shown} were created with another secret (${pepperIds.join(', ')}) than TOKENHOUSE_SECRET (${id}). Set it to the earlier secret.`,
    );
  }
  if (matches(secretIdOf(secretFile(config)))) return 'as it is';
  if (matches(secretIdOf(secretBeside(source)))) return 'of the backup';
  throw new OperationError(
    `The keys in ${shown} were created with a secret (${pepperIds.join(', ')}) that is neither in ${secretFile(config)} nor in ${secretBeside(shown)}, so none of them would work. ` +
      'Put the earlier secret into one of the two files, or into TOKENHOUSE_SECRET.',
  );
}

/** Puts the backup's secret in place; the old one is kept under another name. */
function takeSecret(source: string, config: Config, now: Date): string | undefined {
  const target = secretFile(config);
  const kept = existsSync(target) ? `${target}.before-restore-${stamp(now)}` : undefined;
  if (kept !== undefined) copySecret(target, kept);
  copySecret(secretBeside(source), target);
  return kept;
}

function copySecret(from: string, to: string): void {
  const draft = `${to}.part`;
  try {
    copyFileSync(from, draft);
    chmodSync(draft, 0o600);
    syncFile(draft);
    renameSync(draft, to);
    syncFile(path.dirname(to));
  } finally {
    rmSync(draft, { force: true });
  }
}

function refuseMissing(file: string): void {
  if (!existsSync(file)) throw new OperationError(`The file ${file} does not exist.`);
}
