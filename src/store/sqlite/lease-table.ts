/** The name of the process that owns the file, among those that lease from it. */
export const owner = '';

/** A change of what a process has leased; negative: it has less. */
interface LeaseChange {
  readonly client: string;
  readonly balanceId: string;
  readonly microcents: bigint;
}

/**
 * What each process has leased of each balance and has neither spent nor returned, in microcents. Only in memory: on disk a balance
 * is whole, and no lease outlives these processes (docs/money.md). What a transaction changed is undone where it is not committed.
 */
export class LeaseTable {
  readonly #leases = new Map<string, Map<string, bigint>>();
  #changes: LeaseChange[] = [];

  /**
   * `undefined`: nothing. The owner keeps a lease of nothing until it returns it, and has less than nothing of a budget that was
   * lowered below what its requests hold.
   */
  of(client: string, balanceId: string): bigint | undefined {
    return this.#leases.get(balanceId)?.get(client);
  }

  total(balanceId: string): bigint {
    let total = 0n;
    for (const microcents of this.#leases.get(balanceId)?.values() ?? []) total += microcents;
    return total;
  }

  /** Other processes have some of the balance. */
  isElsewhere(client: string, balanceId: string): boolean {
    return this.total(balanceId) > (this.of(client, balanceId) ?? 0n);
  }

  grant(client: string, balanceId: string, microcents: bigint): void {
    this.#change({ client, balanceId, microcents });
  }

  spend(client: string, balanceId: string, microcents: bigint): void {
    this.#change({ client, balanceId, microcents: -microcents });
    if (client !== owner) this.#forgetEmpty(client, balanceId);
  }

  returned(client: string, balanceId: string, microcents: bigint): void {
    this.#change({ client, balanceId, microcents: -microcents });
    this.#forgetEmpty(client, balanceId);
  }

  /** The process is gone. */
  end(client: string): void {
    for (const [balanceId, clients] of this.#leases) {
      const microcents = clients.get(client);
      if (microcents !== undefined) this.returned(client, balanceId, microcents);
    }
  }

  /** The number of changes of the transaction so far. */
  get mark(): number {
    return this.#changes.length;
  }

  commit(): void {
    this.#changes = [];
  }

  /** Undoes the changes of the transaction after the mark. */
  rollback(mark: number): void {
    for (const { client, balanceId, microcents } of this.#changes.splice(mark).reverse()) {
      this.#add({ client, balanceId, microcents: -microcents });
      if (client !== owner) this.#forgetEmpty(client, balanceId);
    }
  }

  #change(change: LeaseChange): void {
    this.#changes.push(change);
    this.#add(change);
  }

  #add({ client, balanceId, microcents }: LeaseChange): void {
    const clients = this.#leases.get(balanceId) ?? new Map<string, bigint>();
    this.#leases.set(balanceId, clients.set(client, (clients.get(client) ?? 0n) + microcents));
  }

  #forgetEmpty(client: string, balanceId: string): void {
    const clients = this.#leases.get(balanceId);
    if (clients?.get(client) === 0n) clients.delete(client);
    if (clients?.size === 0) this.#leases.delete(balanceId);
  }
}
