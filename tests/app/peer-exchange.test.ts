import assert from 'node:assert/strict';
import { test } from 'node:test';
import { exchangeWithPeers } from '../../src/app/peer-exchange.ts';
import type { Backend } from '../../src/inference/pipeline/backend-pool.ts';
import { FleetPeers } from '../../src/inference/routing/fleet-peers.ts';
import { idleLoad } from '../../src/inference/routing/backend-load.ts';
import { Fleet } from '../../src/inference/routing/fleet.ts';
import type { Log } from '../../src/platform/log.ts';
import type { PeerMessage } from '../../src/platform/peers/peers.ts';
import { until } from '../support/service.ts';

/** Replicas whose exchanges the test ends, and the events that were logged. */
function exchanging() {
  const events: string[] = [];
  const asked: { resolve: (messages: readonly PeerMessage[]) => void; reject: (error: Error) => void }[] = [];
  const fleet = new Fleet(['a', 'b'].map((label) => ({ ...idleLoad(), label }) as unknown as Backend));
  const peers = {
    exchange: () => new Promise<readonly PeerMessage[]>((resolve, reject) => asked.push({ resolve, reject })),
  };
  const log = { service: ({ event }: { event: string }) => events.push(event) } as unknown as Log;
  const stop = exchangeWithPeers(peers, new FleetPeers(() => new Map([['m', fleet]])), log);
  return { asked, events, stop };
}

test('a store that does not answer is logged once, and once that it answers again', async () => {
  const { asked, events, stop } = exchanging();
  for (let count = 1; count <= 4; count++) {
    await until(() => asked.length === count);
    if (count < 3) asked.at(-1)!.reject(new Error('gone'));
    else asked.at(-1)!.resolve([]);
  }
  await until(() => events.length === 2);
  stop();
  assert.deepEqual(events, ['peers_unheard', 'peers_heard']);
});

test('an exchange that a stop of the service cuts off is not logged', async () => {
  const { asked, events, stop } = exchanging();
  await until(() => asked.length === 1);
  stop();
  asked[0]!.reject(new Error('the store is closed'));
  await new Promise(setImmediate);
  assert.deepEqual(events, []);
});
