import { createHash, timingSafeEqual } from 'node:crypto';
import type { IncomingMessage } from 'node:http';

export interface MetricsAccess {
  /** With a token everybody needs it, this computer too. */
  readonly token: string | undefined;
  /** A public address is configured, so a proxy stands in front and every peer looks local. */
  readonly isProxied: boolean;
}

/**
 * Metrics tell how much is sold and to how many, so nobody may read them from outside without a token: without one they
 * are for this computer only. A proxy on this computer makes everybody look local, so whatever looks like one is refused.
 */
export function mayReadMetrics(request: IncomingMessage, { token, isProxied }: MetricsAccess): boolean {
  if (token !== undefined) return isSame(/^Bearer (.+)$/i.exec(request.headers.authorization ?? '')?.[1] ?? '', token);
  return (
    !isProxied && isLoopback(request.socket.remoteAddress) && !isForwarded(request) && isLocalName(request.headers.host)
  );
}

/** Time tells nothing about where they differ. */
function isSame(presented: string, token: string): boolean {
  const digest = (text: string): Buffer => createHash('sha256').update(text).digest();
  return timingSafeEqual(digest(presented), digest(token));
}

const isLoopback = (address: string | undefined): boolean => /^(::1|(::ffff:)?127\.\d+\.\d+\.\d+)$/.test(address ?? '');

const isForwarded = ({ headers }: IncomingMessage): boolean =>
  ['forwarded', 'via', 'x-forwarded-for', 'x-forwarded-host', 'x-real-ip'].some((name) => headers[name] !== undefined);

/** Also keeps pages of other sites out, whose names can be made to resolve to this computer. */
const isLocalName = (host: string | undefined): boolean =>
  /^(localhost|127\.\d+\.\d+\.\d+|\[::1\])(:\d+)?$/i.test(host ?? '');
