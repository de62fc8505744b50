import { createHash, timingSafeEqual } from 'node:crypto';
import type { IncomingMessage } from 'node:http';

export interface MetricsAccess {
  /** If there is a token, every client needs it, also on this computer. */
  readonly token: string | undefined;
  /** Whether a public address is configured: then a proxy is in front, and every peer looks local. */
  readonly isProxied: boolean;
}

/**
 * Metrics reveal how much is sold and to how many, so without a token only this computer may read them. A proxy on this computer
 * makes every client look local, so requests that look proxied are refused.
 */
export function mayReadMetrics(request: IncomingMessage, { token, isProxied }: MetricsAccess): boolean {
  if (token !== undefined) return isSame(/^Bearer (.+)$/i.exec(request.headers.authorization ?? '')?.[1] ?? '', token);
  return (
    !isProxied && isLoopback(request.socket.remoteAddress) && !isForwarded(request) && isLocalName(request.headers.host)
  );
}

/** Compares in constant time, which does not reveal where they differ. */
function isSame(presented: string, token: string): boolean {
  const digest = (text: string): Buffer => createHash('sha256').update(text).digest();
  return timingSafeEqual(digest(presented), digest(token));
}

const isLoopback = (address: string | undefined): boolean => /^(::1|(::ffff:)?127\.\d+\.\d+\.\d+)$/.test(address ?? '');

const isForwarded = ({ headers }: IncomingMessage): boolean =>
  ['forwarded', 'via', 'x-forwarded-for', 'x-forwarded-host', 'x-real-ip'].some((name) => headers[name] !== undefined);

/** Also excludes pages of other sites, whose names can be made to resolve to this computer. */
const isLocalName = (host: string | undefined): boolean =>
  /^(localhost|127\.\d+\.\d+\.\d+|\[::1\])(:\d+)?$/i.test(host ?? '');
