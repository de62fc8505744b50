/** One thing that the rows record differently from what they should. */
export interface Difference {
  /** Null when it is about the whole ledger. */
  readonly accountId: string | null;
  /** What was compared, with the row's id where there is one. */
  readonly what: string;
  readonly expected: bigint | string;
  readonly found: bigint | string;
}
