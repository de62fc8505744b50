/**
 * What requests may spend of each balance and have neither spent nor returned, in microcents. Only in memory: on disk a balance is whole,
 * and no lease outlives the process (docs/money.md). Changes of a transaction that is not committed are undone.
 */
export class LeaseTable {
  readonly #leases = new Map<string, bigint>();
  /** The value before each change of the transaction. */
  #before: (readonly [balanceId: string, microcents: bigint | undefined])[] = [];

  /** undefined: no lease. A lease may be zero until it is returned, or negative after its budget was lowered below what requests hold. */
  of(balanceId: string): bigint | undefined {
    return this.#leases.get(balanceId);
  }

  grant(balanceId: string, microcents: bigint): void {
    this.#change(balanceId, (this.#leases.get(balanceId) ?? 0n) + microcents);
  }

  /** Balances without a lease are debited all the same, which changes nothing here. */
  spend(balanceId: string, microcents: bigint): void {
    const leased = this.#leases.get(balanceId);
    if (leased !== undefined) this.#change(balanceId, leased - microcents);
  }

  returned(balanceId: string, microcents: bigint): void {
    const leased = this.#leases.get(balanceId);
    if (leased !== undefined) this.#change(balanceId, leased === microcents ? undefined : leased - microcents);
  }

  /** The number of changes of the transaction so far. */
  get mark(): number {
    return this.#before.length;
  }

  commit(): void {
    this.#before = [];
  }

  /** Undoes the changes of the transaction after the mark. */
  rollback(mark: number): void {
    for (const [balanceId, microcents] of this.#before.splice(mark).reverse()) this.#set(balanceId, microcents);
  }

  #change(balanceId: string, microcents: bigint | undefined): void {
    this.#before.push([balanceId, this.#leases.get(balanceId)]);
    this.#set(balanceId, microcents);
  }

  #set(balanceId: string, microcents: bigint | undefined): void {
    if (microcents === undefined) this.#leases.delete(balanceId);
    else this.#leases.set(balanceId, microcents);
  }
}
