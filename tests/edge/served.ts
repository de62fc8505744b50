import type { Server } from 'node:http';
import type { AddressInfo } from 'node:net';

import { createEdge, defaultEdgeLimits } from '../../src/edge/edge.ts';
import type { EdgeLimits, Handler } from '../../src/edge/edge.ts';
import type { ApiError } from '../../src/errors.ts';

export interface Served {
  readonly url: string;
  readonly server: Server;
  /** Codes of what the edge has refused itself. */
  readonly refusals: string[];
  close(): void;
}

/** An edge with the given handler and limits, on a free port. */
export async function serveEdge(handler: Handler, limits: Partial<EdgeLimits> = {}): Promise<Served> {
  const refusals: string[] = [];
  let ids = 0;
  const services = {
    newRequestId: () => `req_${(++ids).toString(16).padStart(12, '0')}`,
    accountUrl: () => 'http://account.test',
    refused: (error: ApiError) => void refusals.push(error.code),
  };
  const server = createEdge(handler, services, { ...defaultEdgeLimits, checkEveryMs: 20, ...limits });
  await new Promise<void>((resolve) => server.listen({ host: '127.0.0.1', port: 0, backlog: 1024 }, resolve));
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    server,
    refusals,
    close: () => {
      server.close();
      server.closeAllConnections();
    },
  };
}
