import { copyFileSync, chmodSync, existsSync, mkdirSync, renameSync, rmSync, statSync } from 'node:fs';
import path from 'node:path';

import { sql } from 'kysely';

import { OperationError } from '../accounts/operation.ts';
import { openSecret, secretIdOf } from '../accounts/secret.ts';
import { openStore } from '../app/stores.ts';
import type { Config } from '../config/config.ts';
import { contentStatus, type ContentStatus } from '../store/repositories/content-status.ts';
import { backUp, databaseStatus, examine, putInPlace, stamp, syncFile } from '../store/sqlite/backup.ts';
import { isOwned, takeLock } from '../store/sqlite/lock.ts';
import type { Context } from './context.ts';
import { reading } from './database.ts';

/** Keys are stored as hashes with a secret, so a copy of the database alone gives no access. */
const secretBeside = (backup: string): string => `${backup}.secret`;
const secretFile = (config: Config): string => path.join(config.storage.directory, 'secret');

/** Copies the database, with the service running or not, and checks the copy. */
export async function backUpDatabase(
  { around, config, environment, print }: Context,
  options: { readonly force?: boolean; readonly secret: boolean },
  word: string | undefined,
): Promise<number> {
  const target = path.resolve(around.directory, word ?? '');
  const file = fileOf(config, 'backed up with: pg_dump --format=custom --file=BACKUP');
  refuseMissing(file);
  if (existsSync(target) && options.force !== true)
    throw new OperationError(`The file ${target} exists. Choose another name, or overwrite it with --force.`);
  const examined = await backUp(file, target);
  const fromEnvironment = environment.secret !== undefined;
  const copiesSecret = options.secret && !fromEnvironment;
  if (copiesSecret) copySecret(secretFile(config), secretBeside(target));
  const { differences } = examined;
  print.result(
    {
      file: target,
      bytes: statSync(target).size,
      secret: copiesSecret ? secretBeside(target) : null,
      accounts: examined.accounts,
      transfers: examined.transfers,
      usage_rows: examined.usageRows,
      differences,
    },
    [
      `${target}: ${statSync(target).size} bytes, ${examined.accounts} accounts, ${examined.transfers} transfers, ${examined.usageRows} requests; ` +
        (differences.length === 0 ? 'verified' : `${differences.length} DIFFERENCES, see: tokenhouse ledger verify`),
      copiesSecret
        ? `${secretBeside(target)}: the secret that its keys are hashed with. Anyone with both files can test guesses of keys; keep them apart if possible.`
        : `Its keys need the secret that they were created with: ${fromEnvironment ? 'TOKENHOUSE_SECRET' : secretFile(config)}. The secret is not in the backup.`,
    ],
  );
  return differences.length === 0 ? 0 : 1;
}

/** Replaces the database of a stopped service with a backup. */
export async function restoreDatabase(
  { around, config, environment, print }: Context,
  options: { readonly force?: boolean },
  word: string | undefined,
): Promise<number> {
  const source = path.resolve(around.directory, word ?? '');
  const file = fileOf(config, 'restored with: pg_restore --clean --if-exists --dbname=DATABASE BACKUP');
  refuseMissing(source);
  mkdirSync(config.storage.directory, { recursive: true, mode: 0o700 });
  // From here on no service can start on it.
  const lock = takeLock(file);
  try {
    if (existsSync(file) && options.force !== true) {
      throw new OperationError(
        `A database exists at ${file}. To replace it (the old one is kept under another name): tokenhouse db restore ${word} --force`,
      );
    }
    const secret = secretFor((await examine(source)).pepperIds, source, config, environment.secret?.reveal());
    const now = new Date();
    const { examined, kept } = await putInPlace(source, file, now);
    const keptSecret = secret === 'of the backup' ? takeSecret(source, config, now) : undefined;
    print.result(
      {
        file,
        kept: kept ?? null,
        kept_secret: keptSecret ?? null,
        accounts: examined.accounts,
        transfers: examined.transfers,
        usage_rows: examined.usageRows,
      },
      [
        `${file} is restored: ${examined.accounts} accounts, ${examined.transfers} transfers, ${examined.usageRows} requests; verified.`,
        ...[kept, keptSecret].flatMap((name) => (name === undefined ? [] : [`The replaced database is kept: ${name}`])),
        'Requests that were running during the backup are recorded as crashed, without a charge, at the next start.',
      ],
    );
    return 0;
  } finally {
    lock.release();
  }
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
  const last = lastEndedAt === undefined ? null : new Date(lastEndedAt).toISOString();
  return {
    fields: {
      migrations,
      accounts,
      live_keys: liveKeys,
      transfers,
      usage_rows: requests,
      open_requests: openRequests,
      last_request_at: last,
      secrets: pepperIds,
    },
    lines: [
      `  schema    ${migrations.at(-1) ?? 'none'}`,
      `  rows      ${accounts} accounts, ${liveKeys} live keys, ${transfers} transfers, ${requests} requests, ${openRequests} running`,
      `  newest    ${last ?? 'no request yet'}`,
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
  source: string,
  config: Config,
  fromEnvironment: string | undefined,
): 'as it is' | 'of the backup' {
  if (pepperIds.length === 0) return 'as it is';
  const matches = (id: string | undefined): boolean => id !== undefined && pepperIds.every((needed) => needed === id);
  if (fromEnvironment !== undefined) {
    const { id } = openSecret({ fromEnvironment, dataFolder: config.storage.directory, warn: () => {} });
    if (matches(id)) return 'as it is';
    throw new OperationError(
      `The keys in ${source} were created with another secret (${pepperIds.join(', ')}) than TOKENHOUSE_SECRET (${id}). Set it to the earlier secret.`,
    );
  }
  if (matches(secretIdOf(secretFile(config)))) return 'as it is';
  if (matches(secretIdOf(secretBeside(source)))) return 'of the backup';
  throw new OperationError(
    `The keys in ${source} were created with a secret (${pepperIds.join(', ')}) that is neither in ${secretFile(config)} nor in ${secretBeside(source)}, so none of them would work. ` +
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
