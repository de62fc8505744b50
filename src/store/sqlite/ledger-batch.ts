/** What the two sides of the ledger say to each other: one batch there, one reply back, one at a time. */
import type { AccountStatus } from '../database.ts';
import type { Ending, OpenRequest, Transfer, UsageRow } from '../ledger.ts';
import type { StoreFailure } from '../store-error.ts';

export type SqlValue = string | number | bigint | null;

/** Everything in it is committed together, in this order: open requests, settlements, operations. */
export interface LedgerBatch {
  /** Request ids of the settlements, 16 bytes each: one buffer is cheaper to copy than one for each row. */
  readonly ids: Uint8Array;
  /** Their other columns, in the order of `usageColumns`. */
  readonly rows: readonly (readonly SqlValue[])[];
  readonly opens: readonly OpenRequest[];
  readonly operations: readonly LedgerOperation[];
}

export interface NewAccount {
  readonly id: string;
  readonly name: string;
  readonly creditLimitMicrocents: bigint;
  readonly at: number;
  readonly changeId: Uint8Array;
}

export type LedgerOperation =
  | { readonly kind: 'slice'; readonly accountId: string }
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
      /** The limit that the caller has seen; another one is a conflict. */
      readonly fromMicrocents: bigint;
      readonly toMicrocents: bigint;
      readonly reserved: boolean;
      readonly at: number;
      readonly changeId: Uint8Array;
    }
  | { readonly kind: 'read_limit'; readonly accountId: string }
  | { readonly kind: 'read_back'; readonly requestId: Uint8Array };

/** What an operation answers with, by its kind. */
export interface OperationAnswers {
  readonly slice: bigint;
  readonly transfer: boolean;
  readonly create_account: undefined;
  readonly account_status: undefined;
  readonly credit_limit: undefined;
  readonly read_limit: bigint;
  readonly read_back: { readonly costMicrocents: bigint; readonly ending: Ending } | undefined;
}

export type OperationResult =
  { readonly value: OperationAnswers[keyof OperationAnswers] } | { readonly failure: StoreFailure };

export interface LedgerReply {
  /** Set when nothing of the batch was written. */
  readonly refused?: StoreFailure;
  /** Settlements that were not written, by their place in the batch. All others are durable. */
  readonly failures: readonly (readonly [index: number, failure: StoreFailure])[];
  readonly results: readonly OperationResult[];
  /** Credits to accounts whose balance this process has in memory. */
  readonly credits: readonly (readonly [accountId: string, microcents: bigint])[];
}

/** The columns of usage behind `request_id`, in the order in which `usageValues` gives them. */
export const usageColumns = [
  'public_id',
  'client_id',
  'account_id',
  'key_id',
  'model_id',
  'api',
  'streamed',
  'started_at',
  'ended_at',
  'prompt_tokens',
  'cached_tokens',
  'completion_tokens',
  'reasoning_tokens',
  'cost',
  'uncharged',
  'hold',
  'ending',
  'finish',
  'error_code',
  'counted',
  'input_price',
  'output_price',
  'cache_read_price',
  'backend',
  'first_token_ms',
  'total_ms',
  'tags',
] as const;

export const accountColumn = usageColumns.indexOf('account_id');
export const costColumn = usageColumns.indexOf('cost');

export function usageValues(row: UsageRow): SqlValue[] {
  return [
    clean(row.publicId),
    row.clientId === null ? null : clean(row.clientId),
    row.accountId,
    row.keyId,
    clean(row.modelId),
    row.api,
    row.streamed ? 1 : 0,
    row.startedAt,
    row.endedAt,
    row.promptTokens,
    row.cachedTokens,
    row.completionTokens,
    row.reasoningTokens,
    row.costMicrocents,
    row.unchargedMicrocents,
    row.holdMicrocents,
    row.ending,
    row.finish === null ? null : clean(row.finish),
    row.errorCode,
    row.counted ? 1 : 0,
    row.inputPrice,
    row.outputPrice,
    row.cacheReadPrice,
    row.backend === null ? null : clean(row.backend),
    row.firstTokenMs,
    row.totalMs,
    row.tags === null ? null : clean(row.tags),
  ];
}

/** reliability D9: PostgreSQL refuses U+0000, and a lone surrogate is no text; a settlement must not fail on a label. */
export function clean(text: string): string {
  return unclean.test(text) ? text.replace(uncleanAll, '\ufffd') : text;
}

// With the flag u a surrogate class matches lone surrogates only.
const unclean = /[\0\ud800-\udfff]/u;
const uncleanAll = /[\0\ud800-\udfff]/gu;
