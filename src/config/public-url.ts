import { hostNameOf } from '../platform/http/host-name.ts';
import type { ListenConfig, ServerConfig } from './config.ts';

/** Address of one of our hosts for clients, without a trailing slash: from the file, else this computer at the bound port. */
export function publicUrl(listen: ListenConfig, boundPort: number = listen.port): string {
  return listen.publicUrl ?? `http://localhost:${boundPort}`;
}

/**
 * Address of the inference host for a client that called the account host by the `Host` header `host`. Without a configured
 * address, other computers reach both hosts by the same name.
 */
export function inferenceUrlFor(
  { inference, account }: ServerConfig,
  boundPort: number,
  host: string | undefined,
): string {
  const isConfigured = inference.publicUrl !== undefined || account.publicUrl !== undefined;
  const name = isConfigured || isLocalOnly(inference) ? undefined : hostNameOf(host);
  return name === undefined ? publicUrl(inference, boundPort) : `http://${name}:${boundPort}`;
}

/** Address of one of our hosts on this computer, regardless of any proxy for others. */
export function localUrl({ host, port }: ListenConfig, boundPort: number = port): string {
  if (host === '0.0.0.0') return `http://127.0.0.1:${boundPort}`;
  if (host === '::') return `http://[::1]:${boundPort}`;
  return `http://${host.includes(':') ? `[${host}]` : host}:${boundPort}`;
}

/** Whether only this computer can reach one of our hosts. */
export const isLocalOnly = ({ host }: ListenConfig): boolean =>
  host === 'localhost' || host === '::1' || /^127\./.test(host);
