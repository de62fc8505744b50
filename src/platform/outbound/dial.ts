import { connect as connectPlain, isIP } from 'node:net';
import type { Socket } from 'node:net';
import { connect as connectTls } from 'node:tls';
import { Client } from 'undici';
import type { buildConnector } from 'undici';
import { ApiError } from '../errors.ts';
import { isGlobalUnicast } from './address.ts';
import type { FetchTarget } from './check-url.ts';
import type { NameResolver } from './resolver.ts';

const connectTimeoutMs = 3_000;
/** The most addresses to try; IPv4 comes first, because containers often have no other. */
const dialsMax = 3;
const headerBytesMax = 16_384;

export interface DialOptions {
  /** The default port of a URL. */
  readonly httpsPort: number;
  /** Certificate authorities, as PEM, instead of those that Node trusts. */
  readonly certificates: string | undefined;
}

/**
 * Second gate (reliability §3.2): the current addresses of the name. All of them have to be public, because any of them may be
 * used. Empty: the name is unknown. Throws `unsupported_value` with `param: at`.
 */
export async function judgedAddresses(
  { host, isAllowed }: FetchTarget,
  resolver: NameResolver,
  { at, noun }: { readonly at: string; readonly noun: string },
  signal: AbortSignal,
): Promise<readonly string[]> {
  const addresses = isIP(host) === 0 ? await resolver.resolve(host, isAllowed, signal) : [host];
  if (!isAllowed && !addresses.every(isGlobalUnicast))
    throw new ApiError('unsupported_value', `The ${noun} URL points at a private network.`, { param: at });
  return addresses;
}

/** A connection to judged addresses, for one request; the signal is its only time limit. The caller destroys it. */
export const clientTo = (
  target: FetchTarget,
  addresses: readonly string[],
  options: DialOptions,
  signal: AbortSignal,
): Client =>
  new Client(target.url.origin, {
    connect: connectorTo(target, addresses, options, signal),
    pipelining: 1,
    maxHeaderSize: headerBytesMax,
    headersTimeout: 0,
    bodyTimeout: 0,
  });

/**
 * Dials the judged addresses in turn, and checks once more which one it has reached. undici and `net.connect` never get a name, so
 * nothing is resolved a second time.
 */
function connectorTo(
  { url, host, isAllowed }: FetchTarget,
  addresses: readonly string[],
  { httpsPort, certificates }: DialOptions,
  signal: AbortSignal,
): buildConnector.connector {
  // Without TLS only if the operator has allowed the host.
  const isPlain = isAllowed && url.protocol === 'http:';
  const port = url.port !== '' ? Number(url.port) : isPlain ? 80 : httpsPort;
  const dial = (address: string): Promise<Socket> =>
    new Promise((resolve, reject) => {
      const socket: Socket = isPlain
        ? connectPlain({ host: address, port })
        : connectTls({
            host: address,
            port,
            // Checked against the certificate; a literal is checked as an address.
            ...(isIP(host) === 0 ? { servername: host } : {}),
            ALPNProtocols: ['http/1.1'],
            ...(certificates === undefined ? {} : { ca: certificates }),
          });
      const settle = (): void => {
        clearTimeout(timer);
        signal.removeEventListener('abort', onAbort);
      };
      const fail = (error: Error): void => {
        settle();
        socket.destroy();
        reject(error);
      };
      const onAbort = (): void => fail(new Error('called off'));
      const timer = setTimeout(() => fail(new Error('connecting took too long')), connectTimeoutMs);
      signal.addEventListener('abort', onAbort, { once: true });
      socket.on('error', fail);
      socket.once(isPlain ? 'connect' : 'secureConnect', () => {
        if (!isAllowed && !isGlobalUnicast(socket.remoteAddress ?? '')) {
          fail(new Error('another address was reached than the one dialled'));
          return;
        }
        settle();
        socket.off('error', fail);
        resolve(socket);
      });
      if (signal.aborted) onAbort();
    });
  const connect = async (): Promise<Socket> => {
    let failure: unknown;
    for (const address of addresses.slice(0, dialsMax)) {
      try {
        return await dial(address);
      } catch (error) {
        failure = error;
        if (signal.aborted) break;
      }
    }
    throw failure;
  };
  return (_, callback) => {
    connect().then(
      (socket) => callback(null, socket),
      (error: unknown) => callback(error as Error, null),
    );
  };
}
