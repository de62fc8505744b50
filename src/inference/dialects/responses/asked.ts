/** The parts of a request that affect how its answer looks. */
export interface Asked {
  /** Whether later requests may reference the items of the answer (`store`). */
  readonly isKept: boolean;
  readonly includesLogprobs: boolean;
  readonly includesEncrypted: boolean;
  /** Fields of the Response object that repeat the request, in printing order. */
  readonly echo: Readonly<Record<string, unknown>>;
}
