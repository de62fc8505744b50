import { setMaxListeners } from 'node:events';
import type { Tier } from '../../src/generation/tier.ts';
import { Waiter, WaitQueue } from '../../src/inference/pipeline/wait-queue.ts';
import type { TracedRequest } from './trace.ts';

/** A request of a trace, by whom and how. */
interface Asked {
  readonly request: TracedRequest;
  readonly account: string;
  readonly tier: Tier;
}

/** Decides who gets the slot that is free. */
export interface Queued {
  /** Calls `start` at once or later. */
  ask(asked: Asked, isFree: () => boolean, start: () => void): void;
  /** A slot was given back. */
  offer(): void;
}

/** Slots of a server. */
export const slotsPerServer = 8;
export const promptTokensPerMs = 8;
export const answerTokenMs = 25;
/** SMG raises a request to the next class when it has waited for this long. */
const promotedAfterMs = 5_000;

export const queueOrders: Readonly<Record<string, (now: () => number) => Queued>> = {
  'fair, by tiers': fairOrder,
  'first come, first served': (now) => sorted(now, () => 0),
  'tiers, promoted when starved': (now) =>
    sorted(now, ({ tier, atMs }) => Math.max(0, rank[tier] - Math.floor((now() - atMs) / promotedAfterMs))),
};
const rank: Readonly<Record<Tier, number>> = { priority: 0, default: 1, flex: 2, batch: 3 };

/** The queue of the service itself. */
function fairOrder(): Queued {
  let free = (): boolean => true;
  const queue = new WaitQueue<object>({ lengthMax: 1e6, timeoutMs: 2 ** 30, mayHaveChanged: () => free() });
  const { signal } = new AbortController();
  // Each request that waits listens.
  setMaxListeners(0, signal);
  const slot = {};
  return {
    ask: ({ request, account, tier }, isFree, start) => {
      free = isFree;
      const take = (): object | undefined => {
        if (!isFree()) return undefined;
        start();
        return slot;
      };
      const asking = { tier, account: { id: account }, key: { id: account }, model: {} };
      const tokens = { promptTokensLikely: request.promptTokens, completionTokensMax: request.answerTokens };
      const got = queue.acquire(take, signal, { ...asking, ...tokens });
      if (!(got instanceof Waiter) && typeof got === 'string') throw new Error(got);
    },
    offer: () => queue.offer(),
  };
}

interface Sorted {
  readonly tier: Tier;
  readonly atMs: number;
  readonly isFree: () => boolean;
  readonly start: () => void;
}

/** Those of the least rank first, of equals the first to come. */
function sorted(now: () => number, rankOf: (asked: Sorted) => number): Queued {
  const waiting: Sorted[] = [];
  const offer = (): void => {
    while (waiting[0]?.isFree() === true) {
      let next = 0;
      let least = Infinity;
      for (const [index, each] of waiting.entries()) {
        const own = rankOf(each);
        if (own < least) [next, least] = [index, own];
        if (least === 0) break;
      }
      waiting.splice(next, 1)[0]!.start();
    }
  };
  return {
    ask: ({ tier }, isFree, start) => {
      waiting.push({ tier, atMs: now(), isFree, start });
      offer();
    },
    offer,
  };
}
