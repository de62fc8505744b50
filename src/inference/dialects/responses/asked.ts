/** What a request says about how its answer looks. */
export interface Asked {
  /** Whether the items of the answer may be referred to later (`store`). */
  readonly isKept: boolean;
  readonly includesLogprobs: boolean;
  readonly includesEncrypted: boolean;
  /** Fields of the Response object that repeat the request, in the order in which they are printed. */
  readonly echo: Readonly<Record<string, unknown>>;
}
