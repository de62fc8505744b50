import type { Backend } from '../inference/pipeline/backend-pool.ts';
import type { FleetPeers } from '../inference/routing/fleet-peers.ts';
import type { ServerReports } from '../inference/routing/server-reports.ts';

/** How often due servers are polled. */
const everyMs = 250;

/** Polls the load reports of servers that share a model, until it is stopped. */
export function askServers(reports: ServerReports<Backend>, peers: FleetPeers<Backend>): () => void {
  const timer = setInterval(() => {
    for (const question of reports.due(performance.now(), canTell, peers.count > 0))
      void question.member.engine.report!().then((report) => reports.answered(question, report, performance.now()));
  }, everyMs);
  timer.unref();
  return () => clearInterval(timer);
}

/** An excluded server is checked in other ways. */
const canTell = ({ engine, ejectedUntilMs }: Backend): boolean =>
  engine.report !== undefined && ejectedUntilMs === 0 && engine.status().state === 'ready';
