import { readdirSync, readFileSync, readlinkSync } from 'node:fs';
import { createServer } from 'node:net';

/** Whether a service could listen there now; otherwise the system's code, such as `EADDRINUSE`. */
export function tryPort(port: number, host: string): Promise<string | undefined> {
  return new Promise((resolve) => {
    const server = createServer();
    server.once('error', (error: NodeJS.ErrnoException) => resolve(error.code ?? error.message));
    server.listen({ port, host }, () => server.close(() => resolve(undefined)));
  });
}

const triesMax = 20;

/** A port that is currently free, for a printed command that can be run as printed. */
export async function freePortNear(port: number, host: string): Promise<number> {
  for (let distance = 10; distance < 10 + triesMax; distance++) {
    if (port + distance > 65_535) break;
    if ((await tryPort(port + distance, host)) === undefined) return port + distance;
  }
  return 0;
}

/** `process 4711 (nginx)`, if the system reveals who listens on a port (Linux, and only processes visible to us). */
export function portHolder(port: number): string | undefined {
  try {
    const inodes = new Set(['/proc/net/tcp', '/proc/net/tcp6'].flatMap((file) => listeners(file, port)));
    if (inodes.size === 0) return undefined;
    for (const pid of readdirSync('/proc').filter((name) => /^\d+$/.test(name))) {
      if (holds(pid, inodes)) return `process ${pid} (${readFileSync(`/proc/${pid}/comm`, 'utf8').trim()})`;
    }
  } catch {
    return undefined; // Another system, or a process that has just ended.
  }
  return undefined;
}

const listening = '0A';

/** Inodes of the sockets that listen on a port; addresses in these tables are hexadecimal. */
function listeners(file: string, port: number): readonly string[] {
  return readFileSync(file, 'utf8')
    .split('\n')
    .slice(1)
    .map((line) => line.trim().split(/\s+/))
    .filter(
      ([, local = '', , state]) => state === listening && Number.parseInt(local.split(':').at(-1) ?? '', 16) === port,
    )
    .map((fields) => `socket:[${fields[9]}]`);
}

function holds(pid: string, inodes: ReadonlySet<string>): boolean {
  try {
    return readdirSync(`/proc/${pid}/fd`).some((fd) => inodes.has(readlinkSync(`/proc/${pid}/fd/${fd}`)));
  } catch {
    return false; // Another user's process.
  }
}
