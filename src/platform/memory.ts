import { readFileSync } from 'node:fs';
import { freemem, totalmem } from 'node:os';
import { join } from 'node:path';
import { performance } from 'node:perf_hooks';
import { getHeapStatistics } from 'node:v8';

/** The container's limit, where there is an effective one; else the machine's memory. */
export const memoryLimitBytes = (): number => (isContained() ? constrainedBytes() : totalmem());

/** Whether a container, or another bound on the memory of this process and its children, allows less than the machine has. */
export function isContained(): boolean {
  const limit = constrainedBytes();
  return limit > 0 && limit < totalmem();
}

const readAgainMs = 10_000;
let constrained = { bytes: 0, readAtMs: -Infinity };

/**
 * A limit may be set anew while the container runs. Node reads six files of the kernel to find it: at every look at the load, that was half
 * of all that an idle process did.
 */
function constrainedBytes(): number {
  const now = performance.now();
  if (now - constrained.readAtMs >= readAgainMs) constrained = { bytes: process.constrainedMemory(), readAtMs: now };
  return constrained.bytes;
}

/** Reading it takes a file descriptor; when none is left (reliability S4), only the heap shows how full the memory is. */
export function residentBytes(): number {
  try {
    return process.memoryUsage.rss();
  } catch {
    return 0;
  }
}

/**
 * The part of `memoryLimitBytes` that others use: children of this process, and other programs. Excludes the page cache, which the
 * kernel reclaims when needed. 0 if unknown.
 */
export function othersBytes(): number {
  const used = isContained() ? containerUsedBytes() : machineUsedBytes();
  return used === undefined ? 0 : Math.max(0, used - residentBytes());
}

/** The size of this thread's heap at which V8 ends the process. */
export const heapLimitBytes = (): number => getHeapStatistics().heap_size_limit;

/** How much the heap can grow before that. */
export function heapRoomBytes(): number {
  const { heap_size_limit: limit, used_heap_size: used } = getHeapStatistics();
  return limit - used;
}

/** Unknown on macOS, which counts only memory never used as free. */
const machineUsedBytes = (): number | undefined => (process.platform === 'darwin' ? undefined : totalmem() - freemem());

/** The files of cgroup versions 2 and 1, and the names of the same values in them. */
const versions = [
  { path: /^0::(.*)$/m, root: '/sys/fs/cgroup', usage: 'memory.current', total: '' },
  {
    path: /^\d+:[^:]*\bmemory\b[^:]*:(.*)$/m,
    root: '/sys/fs/cgroup/memory',
    usage: 'memory.usage_in_bytes',
    total: 'total_',
  },
] as const;

function containerUsedBytes(): number | undefined {
  const groups = read('/proc/self/cgroup') ?? '';
  for (const { path, root, usage, total } of versions) {
    const own = path.exec(groups)?.[1];
    if (own === undefined) continue;
    // Inside a container the path is often that of the host, and the files are at the root.
    const folder = [join(root, own), root].find((one) => read(join(one, usage)) !== undefined);
    if (folder === undefined) continue;
    const stat = read(join(folder, 'memory.stat')) ?? '';
    const cached = ['active_file', 'inactive_file'].reduce(
      (sum, name) => sum + Number(new RegExp(`^${total}${name} (\\d+)$`, 'm').exec(stat)?.[1] ?? 0),
      0,
    );
    return Math.max(0, Number(read(join(folder, usage))) - cached);
  }
  return undefined;
}

function read(file: string): string | undefined {
  try {
    return readFileSync(file, 'utf8');
  } catch {
    return undefined;
  }
}
