import type { ErrorMapping } from '../platform/rpc/failure.ts';

/** Why the store refused. Callers decide by the code; the message is for the operator's log, never for a client. */
export type StoreErrorCode =
  | 'busy' // another process has locked the database, or the queue is too long: nothing was written, try again
  | 'full' // the disk is full: nothing was written
  | 'insufficient' // a debit would take a customer below its credit limit
  | 'conflict' // the idempotency key, or the id, is in use for something else
  | 'not_found' // the account or key does not exist
  | 'gone' // the required details are no longer kept
  | 'invalid' // the row breaks a rule of the schema
  | 'unusable' // the file cannot be opened as a database; the message says what to do
  | 'failed'; // the store is closed, died, or did not answer: whether something was written is unknown

export class StoreError extends Error {
  override readonly name = 'StoreError';
  readonly code: StoreErrorCode;

  constructor(code: StoreErrorCode, message: string, cause?: unknown) {
    super(message, cause === undefined ? undefined : { cause });
    this.code = code;
  }
}

/** A serialized StoreError for passing between threads: a structured clone would lose the code. */
export interface StoreFailure {
  readonly code: StoreErrorCode;
  readonly message: string;
}

export function toFailure(error: unknown): StoreFailure {
  if (error instanceof StoreError) return { code: error.code, message: error.message };
  return { code: 'failed', message: error instanceof Error ? error.message : String(error) };
}

export function fromFailure(failure: StoreFailure): StoreError {
  return new StoreError(failure.code, failure.message);
}

/** Errors of a connection to a store thread, converted so that callers get only StoreErrors. */
export const storeErrors: ErrorMapping = {
  ofConnection: (error) =>
    new StoreError(error.code === 'busy' ? 'busy' : 'failed', error.message, error.cause ?? error),
  revive: ({ name, code, message }, cause) =>
    new StoreError(name === 'StoreError' ? (code as StoreErrorCode) : 'failed', message, cause),
};

/** Converts an error for the callers of the store. */
export function storeErrorFrom(error: unknown): StoreError {
  return error instanceof StoreError ? error : new StoreError('failed', toFailure(error).message, error);
}
