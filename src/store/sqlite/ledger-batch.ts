/** The messages between the two sides of the ledger: one batch there, one reply back, one at a time. */
import type { AccountStatus } from '../database.ts';
import type {
  BudgetChange,
  Ending,
  Reinstatement,
  Reinstated,
  NewAccount,
  OpenRequest,
  Reversal,
  Reversed,
  Transfer,
} from '../ledger.ts';
import type { Granted, LeaseRequest } from '../leases.ts';
import type { StoreFailure } from '../store-error.ts';
import type { SqlValue } from '../reports/usage-columns.ts';

/** Everything in a batch is committed together, in this order: open requests, settlements, operations. */
export interface LedgerBatch {
  /** Request ids of the settlements, 16 bytes each: one buffer is cheaper to copy than one for each row. */
  readonly ids: Uint8Array;
  /** Their other columns, in the order of `usageColumns`. */
  readonly rows: readonly (readonly SqlValue[])[];
  readonly opens: readonly OpenRequest[];
  readonly operations: readonly LedgerOperation[];
}

export type LedgerOperation =
  | { readonly kind: 'grant'; readonly request: LeaseRequest }
  | { readonly kind: 'return'; readonly balanceId: string; readonly microcents: bigint }
  | { readonly kind: 'transfer'; readonly transfer: Transfer }
  | { readonly kind: 'reverse'; readonly request: Reversal }
  | { readonly kind: 'reinstate'; readonly request: Reinstatement }
  | { readonly kind: 'create_account'; readonly account: NewAccount }
  | {
      readonly kind: 'account_status';
      readonly accountId: string;
      readonly status: AccountStatus;
      readonly at: number;
      readonly changeId: Uint8Array;
    }
  | {
      readonly kind: 'credit_limit';
      readonly accountId: string;
      readonly toMicrocents: bigint;
      readonly at: number;
      readonly changeId: Uint8Array;
    }
  | { readonly kind: 'budget'; readonly change: BudgetChange }
  | { readonly kind: 'probe' }
  | { readonly kind: 'read_back'; readonly requestId: Uint8Array };

/** The answer of each kind of operation. */
export interface OperationAnswers {
  readonly grant: Granted;
  readonly return: undefined;
  readonly transfer: boolean;
  readonly reverse: Reversed;
  readonly reinstate: Reinstated | undefined;
  readonly create_account: undefined;
  readonly account_status: undefined;
  readonly credit_limit: undefined;
  readonly budget: undefined;
  readonly probe: undefined;
  readonly read_back: { readonly costMicrocents: bigint; readonly ending: Ending } | undefined;
}

export type OperationResult =
  { readonly value: OperationAnswers[keyof OperationAnswers] } | { readonly failure: StoreFailure };

export interface LedgerReply {
  /** Set if nothing of the batch was written. */
  readonly refused?: StoreFailure;
  /** Settlements that were not written, by their index in the batch. All others are durable. */
  readonly failures: readonly (readonly [index: number, failure: StoreFailure])[];
  readonly results: readonly OperationResult[];
}

/** The 16 bytes of an id as a map key. */
export const nameOf = (id: Uint8Array): string =>
  Buffer.from(id.buffer, id.byteOffset, id.byteLength).toString('latin1');
