import pg from 'pg';
import { StoreError, type StoreErrorCode } from '../store-error.ts';

/** PostgreSQL's five-character error code; undefined if the connection failed rather than a statement. */
export function sqlState(error: unknown): string | undefined {
  return error instanceof pg.DatabaseError ? error.code : undefined;
}

/**
 * Whether the connection is unusable, so that the statement's outcome is unknown: it broke, the server is shutting down (57P), or the
 * server has become a standby that takes no writes (25006).
 */
export function isConnectionLost(error: unknown): boolean {
  if (error instanceof StoreError) return false;
  const state = sqlState(error);
  return state === undefined || /^(08|57P|25006|XX)/.test(state);
}

/** Whether it lost a race with another session, so that retrying can succeed (reliability D7). */
export function isWorthAnotherTry(error: unknown): boolean {
  return ['40001', '40P01', '55P03'].includes(sqlState(error) ?? '');
}

/** Maps an error of PostgreSQL to the store's error for its callers. */
export function storeErrorOf(error: unknown): StoreError {
  if (error instanceof StoreError) return error;
  const message = error instanceof Error ? error.message : String(error);
  return new StoreError(codeOf(sqlState(error) ?? ''), message, error);
}

function codeOf(state: string): StoreErrorCode {
  switch (state) {
    case '23505': // unique_violation
      return 'conflict';
    case '23503': // foreign_key_violation
      return 'not_found';
    case '53100': // disk_full
      return 'full';
    case '40001': // serialization_failure
    case '40P01': // deadlock_detected
    case '55P03': // lock_not_available
      return 'busy';
    case 'P0001': // raised by a trigger: the row may not be changed
      return 'invalid';
  }
  return /^2[23]/.test(state) ? 'invalid' : 'failed';
}
