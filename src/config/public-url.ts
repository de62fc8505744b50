import type { ListenConfig } from './config.ts';

/** How clients reach a host of ours, without a slash at the end: what the file says, else this computer at the bound port. */
export function publicUrl(listen: ListenConfig, boundPort: number = listen.port): string {
  return listen.publicUrl ?? `http://localhost:${boundPort}`;
}
