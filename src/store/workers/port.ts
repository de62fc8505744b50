/**
 * What a store and the process that owns its books need of the connection between them. Values travel as structured clones:
 * bigint and bytes survive. Messages arrive in the order in which they were sent; an answer rejects with what the other side
 * threw, a StoreError with its code.
 */
export interface Port {
  /** Calls the other side. Rejects with a StoreError `failed` when the connection ends first, `busy` when overloaded. */
  call(name: string, request: unknown): Promise<unknown>;
  /** Notifies the other side, without an answer. */
  note(name: string, value: unknown): void;
  /** Handles a call or a note. One handler for each name; a name without one is refused. */
  on(name: string, handler: (value: unknown) => unknown): void;
}
