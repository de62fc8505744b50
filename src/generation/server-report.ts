/** What a server says of itself, of all that it does, whoever asked for it. */
export interface ServerReport {
  /** Requests that it works on; those that wait are not among them. */
  readonly running: number;
  /** Requests that wait for it to begin. */
  readonly waiting: number;
  /** Tokens that its prompt cache holds; 0: it has none; `undefined`: it does not say, or not all of it. */
  readonly cacheTokens: number | undefined;
}
