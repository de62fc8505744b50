/**
 * What a store and the process that owns its books need of the line between them. Values travel as structured clones:
 * bigint and bytes survive. Messages arrive in the order in which they were sent; an answer rejects with what the other side
 * threw, a StoreError with its code.
 */
export interface Port {
  /** Asks the other side. Rejects with a StoreError `failed` when the line ends first, `busy` when too much is under way. */
  call(name: string, request: unknown): Promise<unknown>;
  /** Tells the other side; nobody answers. */
  note(name: string, value: unknown): void;
  /** What this side does when it is asked, or told. One for each name; a name without one is refused. */
  on(name: string, handler: (value: unknown) => unknown): void;
}
