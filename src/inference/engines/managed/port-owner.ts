import { readdir, readFile, readlink } from 'node:fs/promises';
import { statFields } from '../../../platform/process-stat.ts';

/**
 * Whether another program listens at a port: one that began before the server and is not in its process group. Between the search for a free
 * port and the start of the server any program can take the port, and would then be sent prompts.
 *
 * Returns false where this system does not say: elsewhere than on Linux, and for processes of other users. A process that began later may
 * belong to the server although it is outside of its group, such as the proxy of a container.
 */
export async function isForeign(port: number, groupId: number | undefined): Promise<boolean> {
  const sockets = await listening(port);
  const server = groupId === undefined ? undefined : await statOf(groupId);
  if (sockets.size === 0 || server === undefined) return false;
  const ids = (await names('/proc')).filter((name) => /^\d+$/.test(name)).map(Number);
  const stats = await Promise.all(ids.map(async (id) => ({ id, stat: await statOf(id) })));
  const own = stats.filter(({ stat }) => stat?.groupId === groupId);
  for (const { id } of own) if (await holds(id, sockets)) return false;
  const earlier = stats.filter(({ stat }) => stat !== undefined && stat.began < server.began);
  for (const { id } of earlier) if (await holds(id, sockets)) return true;
  return false;
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
  for (const descriptor of await names(`/proc/${id}/fd`)) {
    const target = await readlink(`/proc/${id}/fd/${descriptor}`).catch(() => '');
    if (sockets.has(target)) return true;
  }
  return false;
}

/** `began`: in ticks since the computer was started. `undefined`: it is gone. */
async function statOf(id: number): Promise<{ readonly groupId: number; readonly began: number } | undefined> {
  // State, parent and group are the first fields, the time of the start the twentieth.
  const fields = statFields(await textOf(`/proc/${id}/stat`));
  return fields.length < 20 ? undefined : { groupId: Number(fields[2]), began: Number(fields[19]) };
}

const textOf = (file: string): Promise<string> => readFile(file, 'utf8').catch(() => '');
const names = (folder: string): Promise<readonly string[]> => readdir(folder).catch(() => []);
