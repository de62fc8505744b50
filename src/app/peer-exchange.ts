import type { FleetPeers } from '../inference/routing/fleet-peers.ts';
import type { Backend } from '../inference/pipeline/backend-pool.ts';
import type { Log } from '../platform/log.ts';
import type { Peers } from '../platform/peers/peers.ts';

/** On traces of conversations, two processes with 0.1 to 2 s between messages chose nearly as one did (bench/results.md). */
const everyMs = 500;

/**
 * Exchanges what is known about shared backends with other processes, until it is stopped. If the store does not answer, this
 * process chooses by its own knowledge.
 */
export function exchangeWithPeers(peers: Peers, fleets: FleetPeers<Backend>, log: Log): () => void {
  let isExchanging = false;
  let isDeaf = false;
  // The store may close before the last exchange has ended, which is not a fault.
  let isStopped = false;
  const report = (deaf: boolean, reason: string): void => {
    if (isStopped || deaf === isDeaf) return;
    isDeaf = deaf;
    log.service({ level: deaf ? 'warn' : 'info', event: deaf ? 'peers_unheard' : 'peers_heard', detail: { reason } });
  };
  const exchange = async (): Promise<void> => {
    try {
      fleets.hear(await peers.exchange(fleets.report(performance.now())), performance.now());
      report(false, 'the store answers again');
    } catch (error) {
      fleets.hear([], performance.now());
      report(true, error instanceof Error ? error.message : String(error));
    }
  };
  const timer = setInterval(() => {
    if (isExchanging || !fleets.hasChoice) return;
    isExchanging = true;
    void exchange().finally(() => (isExchanging = false));
  }, everyMs);
  timer.unref();
  return () => {
    isStopped = true;
    clearInterval(timer);
  };
}
