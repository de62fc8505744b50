import { setTimeout as sleep } from 'node:timers/promises';

import type { LimitServer } from './limit-server.ts';
import type {
  LimitAnswer,
  LimitExchange,
  LimitLeases,
  LimitListener,
  WantedLimit,
} from '../../../src/store/limit-leases.ts';
import { StoreError } from '../../../src/store/store-error.ts';

/** At most, in each direction. */
const wayMs = 2;

/** What lies between a process and the limit server: a way of some milliseconds, on which questions and answers can be lost. */
export class LimitServerLeases implements LimitLeases {
  trustedUntilMs = Infinity;
  exchanges = 0;
  /** One is asked for and not answered. */
  isBusy = false;
  /** Chances from 0 to 1. */
  loss = 0;
  isCut = false;
  readonly #limitServer: LimitServer;
  readonly #random: () => number;
  #holder: string;
  #listener: LimitListener | undefined;
  #last: Promise<unknown> = Promise.resolve();
  #isSure = true;

  constructor(limitServer: LimitServer, holder: string, random: () => number) {
    this.#limitServer = limitServer;
    this.#holder = holder;
    this.#random = random;
  }

  listen(listener: LimitListener): void {
    this.#listener = listener;
  }

  /** The limit server takes the process for dead, and it goes on as another one. */
  die(): void {
    this.#limitServer.drop(this.#holder);
    this.#holder += "'";
    this.#isSure = true;
    this.#listener?.lost();
  }

  exchange(collect: () => readonly LimitExchange[]): Promise<readonly LimitAnswer[]> {
    this.isBusy = true;
    const turn = this.#last.then(() => this.#exchange(collect)).finally(() => (this.isBusy = false));
    this.#last = turn.catch(() => {});
    return turn;
  }

  async wanted(): Promise<readonly WantedLimit[]> {
    await sleep(wayMs);
    if (this.isCut) throw new StoreError('failed', 'cut');
    return this.#limitServer.wanted(this.#holder);
  }

  async #exchange(collect: () => readonly LimitExchange[]): Promise<readonly LimitAnswer[]> {
    if (this.isCut) throw new StoreError('failed', 'cut');
    const holder = this.#holder;
    if (!this.#isSure) this.#listener?.restored(this.#limitServer.sharesOf(holder));
    this.#isSure = true;
    const asks = collect();
    if (asks.length === 0) return [];
    this.exchanges++;
    const lost = this.#random() < this.loss;
    if (lost) this.#isSure = false;
    await sleep(wayMs * this.#random());
    if (holder !== this.#holder) throw new StoreError('failed', 'of an earlier epoch');
    if (lost && this.#random() < 0.5) throw new StoreError('failed', 'the question was lost');
    const answers = this.#limitServer.exchange(holder, asks);
    await sleep(wayMs * this.#random());
    if (lost) throw new StoreError('failed', 'the answer was lost');
    return answers;
  }
}
