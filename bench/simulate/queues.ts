import { mulberry32 } from '../../tests/support/random.ts';
import type { Tier } from '../../src/generation/tier.ts';
import { Waiter, WaitQueue } from '../../src/inference/pipeline/wait-queue.ts';
import { EventQueue } from './event-queue.ts';
import type { TracedRequest } from './trace.ts';

/** A request of a trace, by whom and how. */
interface Asked {
  readonly request: TracedRequest;
  readonly account: string;
  readonly tier: Tier;
}

/** Decides who gets the slot that is free. */
interface Order {
  /** Calls `start` at once or later. */
  ask(asked: Asked, isFree: () => boolean, start: () => void): void;
  /** A slot was given back. */
  offer(): void;
}

/** Slots of a server. */
const slotsPerServer = 8;
const promptTokensPerMs = 8;
const answerTokenMs = 25;
/** SMG raises a request to the next class when it has waited for this long. */
const promotedAfterMs = 5_000;

const orders: Readonly<Record<string, (now: () => number) => Order>> = {
  'fair, by tiers': fairOrder,
  'first come, first served': (now) => sorted(now, () => 0),
  'tiers, promoted when starved': (now) =>
    sorted(now, ({ tier, atMs }) => Math.max(0, rank[tier] - Math.floor((now() - atMs) / promotedAfterMs))),
};
const rank: Readonly<Record<Tier, number>> = { priority: 0, default: 1, flex: 2, batch: 3 };

/** The queue of the service itself. */
function fairOrder(): Order {
  let free = (): boolean => true;
  const queue = new WaitQueue<object>({ lengthMax: 1e6, timeoutMs: 2 ** 30, mayHaveChanged: () => free() });
  const signal = new AbortController().signal;
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
function sorted(now: () => number, rankOf: (asked: Sorted) => number): Order {
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

/**
 * Plays a trace whose requests are of 200 accounts, one of which sends a third of them in ten bursts. A tenth of the others are `priority`, a
 * fifth are `flex`.
 */
export function compareQueues(trace: readonly TracedRequest[], servers: number): string {
  const lines = Object.entries(orders).map(([name, orderOf]) => {
    const waits = play(trace, servers, orderOf);
    const cells = ['priority', 'default', 'flex', 'greedy'].flatMap((who) => {
      const all = (waits.get(who) ?? [0]).toSorted((a, b) => a - b);
      return [0.5, 0.99].map((part) => `${(all[Math.floor(all.length * part)]! / 1_000).toFixed(2)} s`);
    });
    return `| ${[name, ...cells].join(' | ')} |`;
  });
  return [
    '| order | priority p50 | p99 | default p50 | p99 | flex p50 | p99 | greedy p50 | p99 |',
    '|-|-:|-:|-:|-:|-:|-:|-:|-:|',
    ...lines,
  ].join('\n');
}

/** Waits for a slot in milliseconds, by tier; those of the greedy account apart. */
function play(
  trace: readonly TracedRequest[],
  servers: number,
  orderOf: (now: () => number) => Order,
): ReadonlyMap<string, readonly number[]> {
  const events = new EventQueue();
  const waits = new Map<string, number[]>();
  const random = mulberry32(7);
  let nowMs = 0;
  let running = 0;
  const order = orderOf(() => nowMs);
  const burstMs = trace.at(-1)!.atMs / 10;
  for (const request of trace) {
    const isGreedy = random() < 1 / 3;
    const chance = random();
    const tier = isGreedy || chance > 0.3 ? 'default' : chance < 0.1 ? 'priority' : 'flex';
    const account = isGreedy ? 'greedy' : `account_${Math.floor(random() * 200)}`;
    const atMs = isGreedy ? Math.floor(request.atMs / burstMs) * burstMs : request.atMs;
    events.add(atMs, () => {
      nowMs = atMs;
      const isFree = (): boolean => running < servers * slotsPerServer;
      order.ask({ request, account, tier }, isFree, () => {
        running++;
        const who = isGreedy ? 'greedy' : tier;
        const known = waits.get(who);
        if (known === undefined) waits.set(who, [nowMs - atMs]);
        else known.push(nowMs - atMs);
        const endMs = nowMs + request.promptTokens / promptTokensPerMs + request.answerTokens * answerTokenMs;
        events.add(endMs, () => {
          nowMs = endMs;
          running--;
          order.offer();
        });
      });
    });
  }
  events.run();
  return waits;
}
