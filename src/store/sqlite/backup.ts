/** For CLI commands: only files that no connection of this process has open are copied and synced manually (see `makeFile`). */
import {
  closeSync,
  copyFileSync,
  existsSync,
  fsyncSync,
  linkSync,
  openSync,
  renameSync,
  rmSync,
  statSync,
} from 'node:fs';
import { dirname } from 'node:path';
import { contentStatus, type ContentStatus } from '../repositories/content-status.ts';
import { isUpToDate, migrate, migrationsThatRan, refuseNewer } from '../migrations/migrate.ts';
import { StoreError } from '../store-error.ts';
import { examineLedger, type Examined } from '../verify/examine.ts';
import {
  closeConnection,
  openConnection,
  openReadOnlyConnection,
  readPragma,
  refuseDamaged,
  refuseForeignFile,
} from './connection.ts';
import { kyselyOn, openReadOnly } from './dialect.ts';

/**
 * Writes a copy of the database as of one moment, with or without a running owner, and examines it. A reader makes the copy, so no writer
 * waits for it; it has no free pages, so it contains no deleted data. Once the file has its final name, it is complete, on disk, and
 * verified.
 */
export async function backUp(file: string, target: string): Promise<Examined> {
  const draft = `${target}.part`;
  rmSync(draft, { force: true });
  closeSync(openSync(draft, 'wx', 0o600));
  try {
    const connection = openReadOnlyConnection(file);
    try {
      connection.prepare('vacuum into ?').run(draft);
    } finally {
      connection.close();
    }
    syncFile(draft);
    const examined = await examine(draft);
    renameSync(draft, target);
    syncFile(dirname(target));
    return examined;
  } catch (error) {
    rmSync(draft, { force: true });
    throw error;
  }
}

/**
 * Checks every page and every row. Throws a `StoreError` if the file is not a Tokenhouse database, is damaged, or is newer than this
 * program.
 */
export async function examine(file: string): Promise<Examined> {
  const connection = openReadOnlyConnection(file);
  try {
    if (refuseForeignFile(connection, file) === 'empty')
      throw new StoreError('unusable', `${file} is empty: it contains nothing to restore.`);
    refuseDamaged(connection, file, 'thorough');
    const db = kyselyOn(connection);
    refuseNewer(await migrationsThatRan(db));
    return (await isUpToDate(db)) ? await examineLedger(db) : await verifyUpgraded(file);
  } finally {
    connection.close();
  }
}

/** Verifies an upgraded copy of an earlier version's file; the file itself stays readable for its own version. */
async function verifyUpgraded(file: string): Promise<Examined> {
  const copy = `${file}.upgraded`;
  copyFileSync(file, copy);
  try {
    const connection = openConnection(copy);
    try {
      const db = kyselyOn(connection);
      await migrate(db, 'sqlite');
      return await examineLedger(db);
    } finally {
      closeConnection(connection);
    }
  } finally {
    for (const ending of ['', '-wal', '-shm']) rmSync(`${copy}${ending}`, { force: true });
  }
}

/**
 * Replaces the database with a copy; the caller owns it by the lock. The old file keeps a second name, which is returned. At every moment
 * either the old or the new database has the name.
 */
export async function putInPlace(
  source: string,
  file: string,
  now: Date,
): Promise<{ readonly examined: Examined; readonly kept: string | undefined }> {
  const draft = `${file}.restore`;
  rmSync(draft, { force: true });
  try {
    copyFileSync(source, draft);
    syncFile(draft);
    // The copy itself is examined rather than its source, because the copy is what will be used.
    const examined = await examine(draft);
    if (examined.differences.length > 0)
      throw new StoreError(
        'unusable',
        `${source} does not verify: ${examined.differences.length} differences. Nothing was changed.`,
      );
    const kept = existsSync(file) ? keep(file, `${file}.before-restore-${stamp(now)}`) : undefined;
    for (const ending of ['-wal', '-shm']) rmSync(`${file}${ending}`, { force: true });
    renameSync(draft, file);
    syncFile(dirname(file));
    return { examined, kept };
  } finally {
    for (const ending of ['', '-wal', '-shm']) rmSync(`${draft}${ending}`, { force: true });
  }
}

/** Gives the old database a second name, if possible with its write-ahead log merged into it; otherwise the log gets one too. */
function keep(file: string, name: string): string {
  try {
    closeConnection(openConnection(file));
  } catch {
    // Damaged or not a Tokenhouse database: it is kept as is.
  }
  const log = `${file}-wal`;
  if (existsSync(log) && statSync(log).size > 0) copyFileSync(log, `${name}-wal`);
  linkSync(file, name);
  return name;
}

export interface DatabaseStatus extends ContentStatus {
  readonly bytes: bigint;
  readonly freeBytes: bigint;
}

/** A summary of a database, with or without a running owner. */
export async function databaseStatus(file: string): Promise<DatabaseStatus> {
  const connection = openReadOnlyConnection(file);
  const pageBytes = readPragma(connection, 'page_size') as bigint;
  const bytes = (readPragma(connection, 'page_count') as bigint) * pageBytes;
  const freeBytes = (readPragma(connection, 'freelist_count') as bigint) * pageBytes;
  connection.close();
  const db = openReadOnly(file);
  try {
    return { bytes, freeBytes, ...(await contentStatus(db)) };
  } finally {
    await db.destroy();
  }
}

/** Precise to the millisecond, so that two restores in one second keep the old files under different names: `20261123T200213.487`. */
export const stamp = (now: Date): string => now.toISOString().slice(0, 23).replaceAll(/[-:]/g, '');

/** Syncs a file or a folder, so that names survive a power loss. */
export function syncFile(path: string): void {
  const descriptor = openSync(path, 'r');
  try {
    fsyncSync(descriptor);
  } finally {
    closeSync(descriptor);
  }
}
