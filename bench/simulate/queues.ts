import { mulberry32 } from '../../tests/support/random.ts';
import { EventQueue } from './event-queue.ts';
import { answerTokenMs, promptTokensPerMs, queueOrders, slotsPerServer, type Queued } from './queue-orders.ts';
import type { TracedRequest } from './trace.ts';

/**
 * Plays a trace whose requests are of 200 accounts, one of which sends a third of them in ten bursts. A tenth of the others are `priority`, a
 * fifth are `flex`.
 */
export function compareQueues(trace: readonly TracedRequest[], servers: number): string {
  const lines = Object.entries(queueOrders).map(([name, orderOf]) => {
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
  orderOf: (now: () => number) => Queued,
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
