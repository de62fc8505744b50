import { accessSync, constants, existsSync, statfsSync } from 'node:fs';
import path from 'node:path';

/** Why a folder that may not exist yet is not writable. */
export type FolderFault =
  | { readonly kind: 'not-writable'; readonly at: string }
  | { readonly kind: 'read-only'; readonly at: string }
  | { readonly kind: 'full'; readonly at: string; readonly freeBytes: number };

/** Less than this cannot hold a write-ahead log of a few batches. */
export const freeBytesMin = 4 * 1024 * 1024;

/** Checks a folder, or the nearest existing one above it; `undefined` if it is writable. */
export function folderFault(folder: string): FolderFault | undefined {
  const at = nearestFolder(folder);
  try {
    accessSync(at, constants.R_OK | constants.W_OK | constants.X_OK);
  } catch (error) {
    const kind = (error as NodeJS.ErrnoException).code === 'EROFS' ? 'read-only' : 'not-writable';
    return { kind, at };
  }
  const freeBytes = freeBytesOf(at);
  return freeBytes < freeBytesMin ? { kind: 'full', at, freeBytes } : undefined;
}

/** Bytes that this user may still write there. */
export function freeBytesOf(folder: string): number {
  const { bavail, bsize } = statfsSync(nearestFolder(folder));
  return bavail * bsize;
}

function nearestFolder(folder: string): string {
  let at = path.resolve(folder);
  while (!existsSync(at) && path.dirname(at) !== at) at = path.dirname(at);
  return at;
}

/** Relative if that is shorter: `./data`, but not `../../elsewhere/data`, nor `./etc` of a service that systemd starts in `/`. */
export function shownPath(absolute: string, directory = process.cwd()): string {
  const relative = path.relative(directory, absolute);
  if (relative === '') return '.';
  const isBelow = !relative.startsWith('..') && !path.isAbsolute(relative);
  return isBelow && directory !== path.parse(directory).root ? `./${relative}` : absolute;
}

/** Quotes a text for pasting into a shell. */
export function quoted(text: string): string {
  return /^[\w@%+=:,./-]+$/.test(text) ? text : `'${text.replaceAll("'", `'\\''`)}'`;
}
