import { readFileSync } from 'node:fs';

/** Enough for a service with customers: a request takes a socket, and another if its backend is a server. */
export const openFilesWanted = 4096;
/** Below this, a service runs out of files before it has many customers. */
export const openFilesMin = 1024;
/** Loading the program takes 65 to 80 at the same time, and a start some more; fewer than this end in a stack trace. */
const openFilesToStart = 256;

/** The number of files and connections this process may open; Node has raised its own limit to the hard one. Undefined if unknown. */
export function openFilesLimit(): number | undefined {
  if (process.platform !== 'linux') return undefined;
  try {
    const [, limit] = /^Max open files +(\d+) /m.exec(readFileSync('/proc/self/limits', 'latin1')) ?? [];
    return limit === undefined ? undefined : Number(limit);
  } catch {
    return undefined;
  }
}

/** The message if a service cannot start with this few. Checked before its code is loaded, which already takes too many. */
export function tooFewToStart(): readonly string[] | undefined {
  const limit = openFilesLimit();
  if (limit === undefined || limit >= openFilesToStart) return undefined;
  return [
    `This process may open ${limit} files and connections at once (ulimit -Hn), and the service needs ${openFilesToStart} to start.`,
    '  why     its program, its database and each request take one or two',
    `  repair  ulimit -Hn ${openFilesWanted}, or LimitNOFILE= of its unit, then start again`,
  ];
}
