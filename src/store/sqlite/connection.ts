import { DatabaseSync } from '@photostructure/sqlite';
import { closeSync, existsSync, openSync } from 'node:fs';
import { StoreError } from '../store-error.ts';

/**
 * How long a statement waits for another process's lock before it fails as busy (reliability D1). Well below a settlement's two seconds, so
 * that its outcome is known when its client is notified.
 */
const busyTimeoutMs = 1500;
/** "tkhs": marks a file as Tokenhouse's, so that a wrong path is refused instead of filled with tables. */
const applicationId = 0x746b6873;

export type Connection = InstanceType<typeof DatabaseSync>;

/**
 * Opens a connection that may write. Every per-connection pragma is set on each open: the connection that creates the file reads
 * `synchronous` as 2, a later one as 1, which would lose acknowledged money at power loss.
 */
export function openConnection(file: string): Connection {
  return inWords(file, () => {
    if (!existsSync(file)) makeFile(file);
    const connection = new DatabaseSync(file, { timeout: busyTimeoutMs, readBigInts: true });
    if (refuseForeignFile(connection, file) === 'empty') {
      connection.exec('pragma auto_vacuum = incremental'); // has an effect only before the first table
      connection.exec(`pragma application_id = ${applicationId}`);
    }
    connection.exec('pragma journal_mode = wal');
    connection.exec('pragma synchronous = full');
    connection.exec('pragma fullfsync = on'); // macOS only: its fsync does not reach the disk
    connection.exec('pragma secure_delete = on');
    connection.exec('pragma foreign_keys = on');
    connection.exec('pragma recursive_triggers = on'); // otherwise `insert or replace` bypasses the triggers (M7)
    connection.exec(`pragma journal_size_limit = ${64 * 1024 * 1024}`);
    assertDurable(connection);
    return connection;
  });
}

/**
 * SQLite would create it world-readable; -wal and -shm inherit the mode. Never open a file manually while a connection of this process has
 * it open: POSIX drops all of a process's locks on a file when it closes any descriptor of it, and SQLite, which counts its locks, does not
 * take them again. Another program's connection would then assume that it is the last one and delete the log.
 */
function makeFile(file: string): void {
  closeSync(openSync(file, 'a', 0o600)); // not 'wx', which would refuse a symlink to the file's location
}

/** Opens a connection that cannot write, with or without a running owner. */
export function openReadOnlyConnection(file: string): Connection {
  return inWords(file, () => {
    const connection = new DatabaseSync(file, { timeout: busyTimeoutMs, readBigInts: true, readOnly: true });
    refuseForeignFile(connection, file);
    return connection;
  });
}

/** Closes a connection that may write, leaving all data in the main file: SQLite does that only once all statements are collected. */
export function closeConnection(connection: Connection): void {
  if (!connection.isOpen) return;
  try {
    connection.exec('pragma wal_checkpoint(truncate)');
  } catch {
    // The disk is full, or another connection is using the file: the log stays beside it, and the next open reads both.
  }
  connection.close();
}

/** M10: what a connection acknowledges has reached the disk. */
export function assertDurable(connection: Connection): void {
  const synchronous = readPragma(connection, 'synchronous');
  const journal = readPragma(connection, 'journal_mode');
  if (synchronous !== 2n || journal !== 'wal') {
    throw new StoreError(
      'unusable',
      `the ledger needs synchronous=2 and WAL, and has ${String(synchronous)} and ${String(journal)}`,
    );
  }
}

export function readPragma(connection: Connection, name: string): unknown {
  const row = connection.prepare(`pragma ${name}`).get() as Record<string, unknown> | undefined;
  return row === undefined ? undefined : Object.values(row)[0];
}

/** A quick check of the structure of small files at boot; a thorough one, including indexes, for files of any size. */
export function refuseDamaged(connection: Connection, file: string, look: 'quick' | 'thorough' = 'quick'): void {
  inWords(file, () => {
    const pages = readPragma(connection, 'page_count') as bigint;
    if (look === 'quick' && pages > 16_384n) return; // 64 MiB: about 0.1 s
    const found = readPragma(connection, look === 'quick' ? 'quick_check(1)' : 'integrity_check(1)');
    if (found !== 'ok') throw damaged(file, String(found));
  });
}

export function refuseForeignFile(connection: Connection, file: string): 'ours' | 'empty' {
  const id = readPragma(connection, 'application_id');
  if (id === BigInt(applicationId)) return 'ours';
  const { tables } = connection.prepare('select count(*) as tables from sqlite_schema').get() as { tables: bigint };
  if (id === 0n && tables === 0n) return 'empty';
  throw new StoreError('unusable', `${file} is the database of another program. Set \`storage\` to another path.`);
}

/** Runs the steps of opening and converts errors of SQLite and the file system to instructions for the operator. */
function inWords<T>(file: string, open: () => T): T {
  try {
    return open();
  } catch (error) {
    if (error instanceof StoreError) throw error;
    const reason = error instanceof Error ? error.message : String(error);
    switch (sqliteCode(error)) {
      case 5:
        throw new StoreError('busy', `${file} is locked by another program. Close it and try again.`, error);
      case 11:
        throw damaged(file, reason);
      case 13:
        throw new StoreError(
          'full',
          `The disk of ${file} is full. Free some space and start again; nothing was lost.`,
          error,
        );
      case 26:
        throw new StoreError(
          'unusable',
          `${file} is not a database, or its beginning is damaged. Restore a backup, or set \`storage\` to another path.`,
          error,
        );
    }
    throw new StoreError(
      'unusable',
      `${file} cannot be opened: ${reason}. Check that the folder exists and is writable.`,
      error,
    );
  }
}

function damaged(file: string, reason: string): StoreError {
  return new StoreError(
    'unusable',
    `${file} is damaged (${reason}). Do not start with it: keep a copy, check the disk, and restore the last backup.`,
  );
}

/** SQLite's messages for its primary codes (`sqlite3ErrStr`). */
const messages: readonly (readonly [said: RegExp, code: number])[] = [
  [/^database (?:table )?is locked/, 5],
  [/^disk I\/O error/, 10],
  [/^database disk image is malformed/, 11],
  [/^database or disk is full/, 13],
  [/^[A-Z ]+ constraint failed/, 19],
  [/^file is not a database/, 26],
];

/**
 * SQLite's primary result code, 0 for errors that are not SQLite's. For statements that return rows (`all`, `iterate`) the binding omits
 * the code, so it is determined by the message.
 */
export function sqliteCode(error: unknown): number {
  if (!(error instanceof Error)) return 0;
  const { code, errcode } = error as { readonly code?: unknown; readonly errcode?: unknown };
  if (typeof errcode === 'number') return errcode & 0xff;
  if (code !== 'ERR_SQLITE_ERROR') return 0;
  return messages.find(([said]) => said.test(error.message))?.[1] ?? 0;
}
