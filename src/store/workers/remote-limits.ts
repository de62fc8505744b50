import type { LimitAnswer, LimitExchange, LimitLeases, LimitListener, WantedLimit } from '../limit-leases.ts';
import type { OwnerPort } from './protocol.ts';

/** Limits that another process on this machine has whole, and leases in shares. */
export class RemoteLimitLeases implements LimitLeases {
  /** The other process gives them to no one else before this one is gone. */
  readonly trustedUntilMs = Infinity;
  readonly #port: OwnerPort;
  #listener: LimitListener | undefined;
  #last: Promise<unknown> = Promise.resolve();
  /** Every call has been answered, so what is held is known. */
  #isSure = true;

  constructor(port: OwnerPort) {
    this.#port = port;
  }

  listen(listener: LimitListener): void {
    this.#listener = listener;
  }

  /** One after the other. */
  exchange(collect: () => readonly LimitExchange[]): Promise<readonly LimitAnswer[]> {
    const turn = this.#last.then(() => this.#exchange(collect));
    this.#last = turn.catch(() => {});
    return turn;
  }

  wanted(): Promise<readonly WantedLimit[]> {
    return this.#port.call('wanted_limits', null);
  }

  async #exchange(collect: () => readonly LimitExchange[]): Promise<readonly LimitAnswer[]> {
    if (!this.#isSure) {
      const shares = await this.#port.call('held_limits', null);
      this.#isSure = true;
      this.#listener?.restored(shares);
    }
    const asks = collect();
    if (asks.length === 0) return [];
    this.#isSure = false;
    const answers = await this.#port.call('exchange_limits', asks);
    this.#isSure = true;
    return answers;
  }
}
