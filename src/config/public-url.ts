import type { ListenConfig } from './config.ts';

/** How clients reach a host of ours, without a slash at the end: what the file says, else this computer at the bound port. */
export function publicUrl(listen: ListenConfig, boundPort: number = listen.port): string {
  return listen.publicUrl ?? `http://localhost:${boundPort}`;
}

/** How a host of ours is reached from this very computer, whatever stands in front of it for others. */
export function localUrl({ host, port }: ListenConfig, boundPort: number = port): string {
  if (host === '0.0.0.0') return `http://127.0.0.1:${boundPort}`;
  if (host === '::') return `http://[::1]:${boundPort}`;
  return `http://${host.includes(':') ? `[${host}]` : host}:${boundPort}`;
}

/** Whether nobody but this computer can reach a host of ours. */
export const isLocalOnly = ({ host }: ListenConfig): boolean =>
  host === 'localhost' || host === '::1' || /^127\./.test(host);
