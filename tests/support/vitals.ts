/** What the kernel says of a running process (Linux), and what a row of figures says of the future. */
import { readFileSync, readdirSync, readlinkSync } from 'node:fs';

export interface Vitals {
  readonly rssBytes: number;
  readonly fds: number;
  readonly sockets: number;
  readonly children: number;
}

export function vitalsOf(pid: number): Vitals {
  const links = readdirSync(`/proc/${pid}/fd`).map((fd) => linkOf(`/proc/${pid}/fd/${fd}`));
  const kilobytes = Number(/^VmRSS:\s*(\d+)/m.exec(readFileSync(`/proc/${pid}/status`, 'utf8'))?.[1]);
  return {
    rssBytes: kilobytes * 1024,
    fds: links.length,
    sockets: links.filter((link) => link.startsWith('socket:')).length,
    children: childrenOf(pid).length,
  };
}

/** Processes whose parent this is. */
export function childrenOf(pid: number): readonly number[] {
  return readdirSync(`/proc/${pid}/task`).flatMap((thread) =>
    textOf(`/proc/${pid}/task/${thread}/children`)
      .split(' ')
      .filter((id) => id !== '')
      .map(Number),
  );
}

/** Slope of the line through points that has the least squares: units of y for one of x. */
export function slopeOf(points: readonly { readonly x: number; readonly y: number }[]): number {
  const mean = (values: readonly number[]): number => values.reduce((sum, value) => sum + value, 0) / values.length;
  const x = mean(points.map((point) => point.x));
  const y = mean(points.map((point) => point.y));
  const spread = points.reduce((sum, point) => sum + (point.x - x) ** 2, 0);
  return spread === 0 ? 0 : points.reduce((sum, point) => sum + (point.x - x) * (point.y - y), 0) / spread;
}

/** The value below which the given share of the values lies; 0 of none. */
export function quantileOf(values: readonly number[], share: number): number {
  const sorted = values.toSorted((a, b) => a - b);
  return sorted[Math.min(sorted.length - 1, Math.floor(share * sorted.length))] ?? 0;
}

function linkOf(path: string): string {
  try {
    return readlinkSync(path);
  } catch {
    return ''; // It was closed in the meantime.
  }
}

function textOf(path: string): string {
  try {
    return readFileSync(path, 'utf8').trim();
  } catch {
    return '';
  }
}
