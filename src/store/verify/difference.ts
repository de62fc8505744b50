/** A row value that differs from what it should be. */
export interface Difference {
  /** Null if it concerns the whole ledger. */
  readonly accountId: string | null;
  /** What was compared, with the row's id if there is one. */
  readonly what: string;
  readonly expected: bigint | string;
  readonly found: bigint | string;
}

export type Report = (difference: Difference) => void;
