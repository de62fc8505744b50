/** One thing that the rows say differently from what they should say. */
export interface Difference {
  /** Null when it is about the whole. */
  readonly accountId: string | null;
  /** What was compared, with the row's id where there is one. */
  readonly what: string;
  readonly expected: bigint | string;
  readonly found: bigint | string;
}
