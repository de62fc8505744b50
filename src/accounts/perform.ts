import type { TObject } from 'typebox';

import { StoreError } from '../store/store-error.ts';
import { memberSubject } from '../store/budget.ts';
import type { Change } from '../store/feed.ts';
import { beginEntry } from './audit.ts';
import type { Audited, Subject } from './audit.ts';
import { OperationError } from './operation.ts';
import type { OperationServices } from './operation.ts';
import type { Input } from './request-schema.ts';

/**
 * An operator action, defined once. The types of its request and its answer, what the control socket accepts, and its audit log entry
 * derive from it.
 */
export interface OperationRow<Schema extends TObject, Answer> {
  /** The request without its `kind`. */
  readonly schema: Schema;
  readonly audit: Audited<Input<Schema>, NoInfer<Answer>>;
  /** Throws OperationError. When the promise resolves, the change is durable. */
  run(input: Input<Schema>, services: OperationServices): Promise<Answer>;
}

export type OperationTable = Readonly<Record<string, OperationRow<TObject, unknown>>>;
export type InputOf<Row> = Row extends { readonly schema: infer Schema extends TObject } ? Input<Schema> : never;
export type AnswerOf<Row> = Row extends { run(...args: never): Promise<infer Answer> } ? Answer : never;

/** Declares an operation, typing its function by its schema. */
export const operation = <const Schema extends TObject, Answer>(
  row: OperationRow<Schema, Answer>,
): OperationRow<Schema, Answer> => row;

/**
 * Carries out one operation of a table. When the promise resolves, it is durable, in force in this process, and in the audit log.
 */
export async function perform<Table extends OperationTable, Kind extends keyof Table & string>(
  table: Table,
  request: { readonly kind: Kind } & InputOf<Table[Kind]>,
  services: OperationServices,
): Promise<AnswerOf<Table[Kind]>> {
  const row = table[request.kind]!;
  const entry = await beginEntry(request, row.audit, services);
  let answer: unknown;
  try {
    answer = await row.run(request, services);
    await services.followed?.(changesOf(entry.subjectOf(answer)));
  } catch (error) {
    const mapped = mappedError(error);
    await entry.complete(mapped instanceof OperationError ? 'refused' : 'failed');
    throw mapped;
  }
  await entry.complete('done', answer);
  return answer as AnswerOf<Table[Kind]>;
}

/** Which rows to read again. Reading a key includes the state of its account. */
function changesOf({ accountId, keyId, userId }: Subject): readonly Change[] {
  if (keyId !== undefined) return [{ kind: 'key_changed', ref: keyId }];
  if (accountId !== null && userId !== undefined)
    return [{ kind: 'member_budget', ref: memberSubject(accountId, userId) }];
  return accountId === null ? [] : [{ kind: 'account_changed', ref: accountId }];
}

/** Converts errors that the user can fix to readable messages. */
function mappedError(error: unknown): unknown {
  const isWrong =
    error instanceof StoreError &&
    (error.code === 'not_found' ||
      error.code === 'conflict' ||
      error.code === 'insufficient' ||
      error.code === 'gone' ||
      error.code === 'invalid');
  return isWrong ? new OperationError(error.message, { cause: error }) : error;
}
