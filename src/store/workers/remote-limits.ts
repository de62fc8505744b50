import type {
  LimitAnswer,
  LimitExchange,
  LimitLeases,
  LimitListener,
  LimitShare,
  WantedLimit,
} from '../limit-leases.ts';
import type { Port } from './port.ts';

/** Limits that another process on this machine has whole, and leases in shares. */
export class RemoteLimitLeases implements LimitLeases {
  /** The other process gives them to no one else before this one is gone. */
  readonly trustedUntilMs = Infinity;
  readonly #port: Port;
  #listener: LimitListener | undefined;
  #last: Promise<unknown> = Promise.resolve();
  /** Every call has been answered, so what is held is known. */
  #isSure = true;

  constructor(port: Port) {
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

  async wanted(): Promise<readonly WantedLimit[]> {
    return (await this.#port.call('wanted_limits', null)) as readonly WantedLimit[];
  }

  async #exchange(collect: () => readonly LimitExchange[]): Promise<readonly LimitAnswer[]> {
    if (!this.#isSure) {
      const shares = (await this.#port.call('held_limits', null)) as readonly LimitShare[];
      this.#isSure = true;
      this.#listener?.restored(shares);
    }
    const asks = collect();
    if (asks.length === 0) return [];
    this.#isSure = false;
    const answers = (await this.#port.call('exchange_limits', asks)) as readonly LimitAnswer[];
    this.#isSure = true;
    return answers;
  }
}
