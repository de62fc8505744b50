import { DatabaseSync } from '@photostructure/sqlite';
import { existsSync } from 'node:fs';
import { StoreError } from '../store-error.ts';
import { sqliteCode } from './connection.ts';

export interface Lock {
  release(): void;
}

/**
 * Makes this process the only owner of a database file, until `release` or its death. It holds a second, empty database in an exclusive
 * transaction: the kernel releases the lock when the process ends, even after kill -9. Balances live in the owner's memory, so a second
 * owner would spend the same money again.
 */
export function takeLock(file: string): Lock {
  const connection = new DatabaseSync(lockFile(file), { timeout: 250 }); // a check by isOwned is shorter
  try {
    connection.exec('begin exclusive');
  } catch (error) {
    connection.close();
    if (sqliteCode(error) !== 5)
      throw new StoreError('unusable', `${lockFile(file)} cannot be locked: ${String(error)}`, error);
    throw new StoreError(
      'busy',
      `Another process owns ${file}: a running service, or a command that writes to it. ` +
        'Stop it, or let the running service do the work. One database has one owner at a time.',
      error,
    );
  }
  return {
    release: () => {
      if (connection.isOpen) connection.close();
    },
  };
}

/** Whether a process owns the file now. The answer may already be outdated: for reports only, never to decide on a write. */
export function isOwned(file: string): boolean {
  if (!existsSync(lockFile(file))) return false;
  const connection = new DatabaseSync(lockFile(file), { timeout: 0, readOnly: true });
  try {
    connection.prepare('select count(*) from sqlite_schema').get();
    return false;
  } catch (error) {
    if (sqliteCode(error) === 5) return true;
    throw error;
  } finally {
    connection.close();
  }
}

function lockFile(file: string): string {
  return `${file}.lock`;
}
