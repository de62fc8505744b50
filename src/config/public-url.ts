import type { ListenConfig } from './config.ts';

/** Address of one of our hosts for clients, without a slash at the end: from the file, else this computer at the bound port. */
export function publicUrl(listen: ListenConfig, boundPort: number = listen.port): string {
  return listen.publicUrl ?? `http://localhost:${boundPort}`;
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
