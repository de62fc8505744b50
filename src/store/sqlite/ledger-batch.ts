/** The messages between the two sides of the ledger: one batch there, one reply back, one at a time. */
import type { AccountStatus } from '../database.ts';
import type { BudgetChange, Ending, NewAccount, OpenRequest, Transfer } from '../ledger.ts';
import type { StoreFailure } from '../store-error.ts';
import type { SqlValue } from '../reports/usage-columns.ts';

/** Everything in it is committed together, in this order: open requests, settlements, operations. */
export interface LedgerBatch {
  /** Request ids of the settlements, 16 bytes each: one buffer is cheaper to copy than one for each row. */
  readonly ids: Uint8Array;
  /** Their other columns, in the order of `usageColumns`. */
  readonly rows: readonly (readonly SqlValue[])[];
  readonly opens: readonly ListedRequest[];
  readonly operations: readonly LedgerOperation[];
}

/** A running request, and the process that runs it: null for this one. */
export interface ListedRequest extends OpenRequest {
  readonly replicaId: Uint8Array | null;
}

export type LedgerOperation =
  | { readonly kind: 'lease'; readonly balanceId: string }
  | { readonly kind: 'release'; readonly balanceId: string }
  | { readonly kind: 'transfer'; readonly transfer: Transfer; readonly reserved: boolean }
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
      /** The limit that the caller has seen; a different current limit is a conflict. */
      readonly fromMicrocents: bigint;
      readonly toMicrocents: bigint;
      readonly reserved: boolean;
      readonly at: number;
      readonly changeId: Uint8Array;
    }
  | { readonly kind: 'read_limit'; readonly accountId: string }
  | { readonly kind: 'budget'; readonly change: BudgetChange }
  | { readonly kind: 'probe' }
  /** A process begins to work on the ledger through this one. */
  | { readonly kind: 'replica_begins'; readonly replicaId: Uint8Array; readonly at: number }
  /** It is gone: its running requests have crashed. */
  | { readonly kind: 'replica_ended'; readonly replicaId: Uint8Array; readonly at: number }
  | { readonly kind: 'read_back'; readonly requestId: Uint8Array };

/** The answer of an operation, by its kind. */
export interface OperationAnswers {
  readonly lease: bigint;
  readonly release: undefined;
  readonly transfer: boolean;
  readonly create_account: undefined;
  readonly account_status: undefined;
  readonly credit_limit: undefined;
  readonly read_limit: bigint;
  readonly budget: undefined;
  readonly probe: undefined;
  readonly replica_begins: undefined;
  /** How many requests it left behind. */
  readonly replica_ended: number;
  readonly read_back: { readonly costMicrocents: bigint; readonly ending: Ending } | undefined;
}

export type OperationResult =
  { readonly value: OperationAnswers[keyof OperationAnswers] } | { readonly failure: StoreFailure };

export interface LedgerReply {
  /** Set when nothing of the batch was written. */
  readonly refused?: StoreFailure;
  /** Settlements that were not written, by their place in the batch. All others are durable. */
  readonly failures: readonly (readonly [index: number, failure: StoreFailure])[];
  /** Settlements whose row existed already, by their place: their account was not debited again. Ascending. */
  readonly again: readonly number[];
  readonly results: readonly OperationResult[];
  /** Changes, up or down, of balances that this process has in memory. */
  readonly credits: readonly (readonly [balanceId: string, microcents: bigint])[];
}
