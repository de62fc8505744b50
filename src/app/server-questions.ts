import type { Backend } from '../inference/pipeline/backend-pool.ts';
import type { FleetPeers } from '../inference/routing/fleet-peers.ts';
import type { ServerReports } from '../inference/routing/server-reports.ts';

/** How often due servers are polled. */
const everyMs = 250;
/** The same while no model has two servers that could be asked. */
const restEveryMs = 2_000;

/** Polls the load reports of servers that share a model, until it is stopped. */
export function askServers(reports: ServerReports<Backend>, peers: FleetPeers<Backend>): () => void {
  let timer: NodeJS.Timeout | undefined;
  const look = (): void => {
    for (const question of reports.due(performance.now(), canTell, peers.count > 0))
      void question.member.engine.report!().then((report) => reports.answered(question, report, performance.now()));
    timer = setTimeout(look, reports.hasTellers ? everyMs : restEveryMs).unref();
  };
  timer = setTimeout(look, everyMs).unref();
  return () => clearTimeout(timer);
}

/** How often a server that nobody uses is probed. */
const idleEveryMs = 5_000;

/**
 * Probes servers that have got no request since the last time, so that operators see one that died while nobody used it: requests would find
 * out three times. Until it is stopped.
 */
export function lookAtIdle(backends: () => readonly Backend[]): () => void {
  const placedBefore = new WeakMap<Backend, number>();
  const timer = setInterval(() => {
    for (const backend of backends()) {
      const { engine, placed, running, ejectedUntilMs } = backend;
      const isIdle = running === 0 && placedBefore.get(backend) === placed;
      placedBefore.set(backend, placed);
      if (isIdle && ejectedUntilMs === 0 && engine.status().state === 'ready') void engine.look?.(true);
    }
  }, idleEveryMs);
  timer.unref();
  return () => clearInterval(timer);
}

/** An excluded server is checked in other ways. */
const canTell = ({ engine, ejectedUntilMs }: Backend): boolean =>
  engine.report !== undefined && ejectedUntilMs === 0 && engine.status().state === 'ready';
