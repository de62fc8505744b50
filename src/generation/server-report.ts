/** A server's own load report, including other clients' requests. */
export interface ServerReport {
  /** Requests in progress, not including waiting ones. */
  readonly running: number;
  /** Requests that wait to be started. */
  readonly waiting: number;
  /** Tokens in its prompt cache; 0: it has no cache; undefined: not reported, or not completely. */
  readonly cacheTokens: number | undefined;
}
