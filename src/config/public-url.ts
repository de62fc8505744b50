import { hostNameOf } from '../platform/http/host-name.ts';
import type { ListenConfig, ServerConfig } from './config.ts';

/** Address of one of our hosts for clients, without a slash at the end: from the file, else this computer at the bound port. */
export function publicUrl(listen: ListenConfig, boundPort: number = listen.port): string {
  return listen.publicUrl ?? `http://localhost:${boundPort}`;
}

/**
 * Address of the inference host for a client that has called the account host as `host`, which is its `Host` header. Where no address is
 * configured, others than this computer reach both hosts by the same name.
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

/** Address of one of our hosts on this computer, whatever is in front of it for others. */
export function localUrl({ host, port }: ListenConfig, boundPort: number = port): string {
  if (host === '0.0.0.0') return `http://127.0.0.1:${boundPort}`;
  if (host === '::') return `http://[::1]:${boundPort}`;
  return `http://${host.includes(':') ? `[${host}]` : host}:${boundPort}`;
}

/** Whether only this computer can reach one of our hosts. */
export const isLocalOnly = ({ host }: ListenConfig): boolean =>
  host === 'localhost' || host === '::1' || /^127\./.test(host);
