import { readFileSync } from 'node:fs';

/** For a service with customers: a request takes a socket, and one more where a backend is a server. */
export const openFilesWanted = 4096;
/** Below this, a service runs short of them before it has many customers. */
export const openFilesMin = 1024;
/** Loading the program takes 65 to 80 at once, and a start some more; less than this ends in a stack somewhere. */
const openFilesToStart = 256;

/**
 * The number of files and connections this process may open; Node has raised its own limit to the hard one. Undefined: unknown.
 */
export function openFilesLimit(): number | undefined {
  if (process.platform !== 'linux') return undefined;
  try {
    const [, limit] = /^Max open files +(\d+) /m.exec(readFileSync('/proc/self/limits', 'latin1')) ?? [];
    return limit === undefined ? undefined : Number(limit);
  } catch {
    return undefined;
  }
}

/** The message when a service cannot start with so few. Checked before its code is loaded, which already takes too many. */
export function tooFewToStart(): readonly string[] | undefined {
  const limit = openFilesLimit();
  if (limit === undefined || limit >= openFilesToStart) return undefined;
  return [
    `This process may open ${limit} files and connections at once (ulimit -Hn), and the service needs ${openFilesToStart} to start.`,
    '  why     its program, its database and each request take one or two',
    `  repair  ulimit -Hn ${openFilesWanted}, or LimitNOFILE= of its unit, then start again`,
  ];
}
