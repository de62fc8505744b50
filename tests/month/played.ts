/** What was played, added up one by one: what every report is compared with. */
import type { TransferKind, UsageRow } from '../../src/store/ledger.ts';
import { members } from './timeline.ts';

export interface Moved {
  readonly accountId: string;
  readonly at: number;
  readonly kind: TransferKind;
  /** Below 0 when it was taken from the account. */
  readonly microcents: bigint;
  /** The other side is the operator's revenue. */
  readonly ofRevenue: boolean;
  /** What was given back of it. */
  readonly request?: UsageRow;
}

export interface Played {
  readonly accountId: string;
  /** Of all accounts, as they were settled. */
  readonly rows: readonly UsageRow[];
  readonly moved: readonly Moved[];
  /** By their index. */
  readonly keyIds: readonly string[];
}

export interface Span {
  readonly from: number;
  readonly to: number;
}

export const isIn = ({ from, to }: Span, at: number): boolean => from <= at && at < to;

export const sumOf = <Item>(items: readonly Item[], of: (item: Item) => bigint): bigint => {
  let sum = 0n;
  for (const item of items) sum += of(item);
  return sum;
};

export const hexOf = (id: Uint8Array): string => Buffer.from(id).toString('hex');

export const requestsIn = ({ rows }: Played, accountId: string, span: Span): readonly UsageRow[] =>
  rows.filter((row) => row.accountId === accountId && isIn(span, row.endedAt));

export const movedIn = ({ moved }: Played, accountId: string, span: Span): readonly Moved[] =>
  moved.filter((one) => one.accountId === accountId && isIn(span, one.at));

export const dimensions = ['model', 'api_key_id', 'user_id', 'tag'] as const;
export type Dimension = (typeof dimensions)[number];

/** Under which values of a dimension a request counts. */
export function valuesOf(
  { keyIds }: Pick<Played, 'keyIds'>,
  row: UsageRow,
  by: Dimension | undefined,
): readonly (string | null)[] {
  switch (by) {
    case undefined:
      return [null];
    case 'model':
      return [row.modelId];
    case 'api_key_id':
      return [row.keyId];
    case 'user_id':
      return [members[keyIds.indexOf(row.keyId)] ?? null];
    case 'tag':
      return row.tags === null ? [] : (JSON.parse(row.tags) as string[]);
  }
}
