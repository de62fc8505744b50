import type { FleetPeers } from '../inference/routing/fleet-peers.ts';
import type { Backend } from '../inference/pipeline/backend-pool.ts';
import type { Log } from '../platform/log.ts';
import type { Peers } from '../platform/peers/peers.ts';

/** On traces of conversations two processes chose nearly as one did with 0.1 to 2 s between messages (bench/results.md). */
const everyMs = 500;

/**
 * Tells other processes what is known of backends that several of them use, and hears what they know, until it is stopped. Where the
 * store does not answer, this process chooses by what it knows itself.
 */
export function exchangeWithPeers(peers: Peers, fleets: FleetPeers<Backend>, log: Log): () => void {
  let isExchanging = false;
  let isDeaf = false;
  // The store may close before the last exchange has ended, which says nothing of it.
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
