import type { Server } from 'node:http';
import type { AddressInfo } from 'node:net';

import type { LimitsConfig, ListenConfig, ServerConfig } from '../config/config.ts';
import { defaultListenerLimits } from '../platform/http/listener.ts';
import type { ListenerLimits } from '../platform/http/listener.ts';
import { AddressRanges } from '../platform/ip/ranges.ts';

/** How long a stop may take. */
export type DrainTimes = Pick<LimitsConfig, 'drainDelayMs' | 'drainTimeoutMs'>;

export interface HowStopped {
  /** Skips `drain_delay_seconds`: it should take nothing more. */
  readonly takesNothing: boolean;
}

export const drainTimesOf = ({ limits }: ServerConfig, how?: HowStopped): DrainTimes => ({
  drainDelayMs: how?.takesNothing === true ? 0 : limits.drainDelayMs,
  drainTimeoutMs: limits.drainTimeoutMs,
});

/** The limits of connections on both hosts. */
export const listenerLimitsOf = (
  limits: LimitsConfig,
): { -readonly [Name in keyof ListenerLimits]: ListenerLimits[Name] } => ({
  ...defaultListenerLimits,
  headersTimeoutMs: limits.headersTimeoutMs,
  bodyTimeoutMs: limits.bodyTimeoutMs,
  bodyBytesPerSecondMin: limits.bodyBytesPerSecondMin,
  keepAliveTimeoutMs: limits.keepAliveTimeoutMs,
  readerStallMs: limits.readerStallTimeoutMs,
  connectionsMax: limits.connectionsMax,
  requestsPerConnectionMax: limits.requestsPerConnectionMax,
});

/** The proxies that both hosts trust for a client's address; undefined if there are none. Made once for each configuration. */
export const trustedProxiesOf = ({ trustedProxies }: ServerConfig): AddressRanges | undefined =>
  trustedProxies.length === 0 ? undefined : new AddressRanges(trustedProxies);

/** Returns a function that counts a server's open connections. */
export function countSockets(server: Server): () => number {
  let open = 0;
  server.on('connection', (socket) => {
    open++;
    socket.once('close', () => open--);
  });
  return () => open;
}

/** Resolves with the bound port. Rejects with the system's error, for example `EADDRINUSE`. */
export function listen(server: Server, { host, port }: ListenConfig): Promise<number> {
  return new Promise((resolve, reject) => {
    server.once('error', reject);
    server.listen({ host, port, backlog: 1024 }, () => {
      server.off('error', reject);
      resolve((server.address() as AddressInfo).port);
    });
  });
}
