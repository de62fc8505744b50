import { readlink } from 'node:fs/promises';
import { namesIn, processes, textOf } from './process-table.ts';

/**
 * Who listens at a port: the server's process group, or another program, one that began before the server. Between the search for a free
 * port and the start of the server any program can take the port, and would then be sent prompts.
 *
 * `unknown` where this system does not say: elsewhere than on Linux, and for processes of other users. A process that began later may
 * belong to the server although it is outside of its group, such as the proxy of a container.
 */
export async function ownerOf(port: number, groupId: number | undefined): Promise<'server' | 'another' | 'unknown'> {
  const sockets = await listening(port);
  const all = sockets.size === 0 ? [] : await processes();
  const server = all.find(({ id }) => id === groupId);
  if (server === undefined) return 'unknown';
  for (const { id } of all.filter((each) => each.groupId === groupId)) if (await holds(id, sockets)) return 'server';
  for (const { id } of all.filter(({ began }) => began < server.began)) if (await holds(id, sockets)) return 'another';
  return 'unknown';
}

/** `socket:[inode]` of what listens at the port, as descriptors name it. */
async function listening(port: number): Promise<ReadonlySet<string>> {
  const found = new Set<string>();
  const suffix = `:${port.toString(16).toUpperCase().padStart(4, '0')}`;
  for (const table of ['/proc/net/tcp', '/proc/net/tcp6'])
    for (const line of (await textOf(table)).split('\n').slice(1)) {
      const [, local, , state, , , , , , inode] = line.trim().split(/\s+/);
      if (local?.endsWith(suffix) === true && state === listenState) found.add(`socket:[${inode}]`);
    }
  return found;
}

const listenState = '0A';

async function holds(id: number, sockets: ReadonlySet<string>): Promise<boolean> {
  for (const descriptor of await namesIn(`/proc/${id}/fd`)) {
    const target = await readlink(`/proc/${id}/fd/${descriptor}`).catch(() => '');
    if (sockets.has(target)) return true;
  }
  return false;
}
