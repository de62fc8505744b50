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

/** An excluded server is checked in other ways. */
const canTell = ({ engine, ejectedUntilMs }: Backend): boolean =>
  engine.report !== undefined && ejectedUntilMs === 0 && engine.status().state === 'ready';
