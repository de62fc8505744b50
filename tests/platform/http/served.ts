import type { Server } from 'node:http';
import type { AddressInfo } from 'node:net';

import { createListener, defaultListenerLimits } from '../../../src/platform/http/listener.ts';
import type { ListenerLimits, Handler } from '../../../src/platform/http/listener.ts';
import type { ApiError } from '../../../src/platform/errors.ts';

export interface Served {
  readonly url: string;
  readonly server: Server;
  /** Codes of what the edge has refused itself. */
  readonly refusals: string[];
  close(): void;
}

/** An edge with the given handler and limits, on a free port. */
export async function serveListener(handler: Handler, limits: Partial<ListenerLimits> = {}): Promise<Served> {
  const refusals: string[] = [];
  let ids = 0;
  const services = {
    newRequestId: () => `req_${(++ids).toString(16).padStart(12, '0')}`,
    accountUrl: () => 'http://account.test',
    isHttps: () => false,
    refused: (error: ApiError) => void refusals.push(error.code),
  };
  const server = createListener(handler, services, { ...defaultListenerLimits, checkEveryMs: 20, ...limits });
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
