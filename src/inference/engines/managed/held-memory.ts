import { execFile } from 'node:child_process';
import { existsSync } from 'node:fs';
import { totalmem } from 'node:os';
import type { ServerMemory } from '../engine.ts';
import { processes, textOf } from './process-table.ts';

/** What a server holds of the memory that it shares with others, and how much of that there is. */
export type HeldMemory = NonNullable<ServerMemory['learned']>;

/**
 * What the process group holds: of the GPU of which it has the largest part, or of the computer's memory where there is no GPU.
 * `undefined`: this system does not say it, or there is a GPU, and nothing says that the group has memory of it (another kind of GPU, or a
 * container whose processes have other numbers there): what it really takes is then not known.
 */
export async function heldMemory(groupId: number): Promise<HeldMemory | undefined> {
  const ids = (await processes()).filter((each) => each.groupId === groupId).map(({ id }) => id);
  if (ids.length === 0) return undefined;
  const [gpus, used] = await Promise.all([nvidia('--query-gpu=uuid,memory.total'), nvidia(usedByProcesses)]);
  if (gpus !== undefined && used !== undefined) return onGpus(gpus, used, ids);
  return otherGpus.some((device) => existsSync(device)) ? undefined : await inMemory(ids);
}

/** `gpus`, `used`: what nvidia-smi says, in MiB. */
export function onGpus(gpus: string, used: string, ids: readonly number[]): HeldMemory | undefined {
  const held = new Map<string, number>();
  for (const [pid, gpu = '', mebibytes] of rowsOf(used))
    if (ids.includes(Number(pid))) held.set(gpu, (held.get(gpu) ?? 0) + Number(mebibytes));
  const found = rowsOf(gpus).flatMap(([gpu = '', total]): HeldMemory[] => {
    const [bytes, ofBytes] = [(held.get(gpu) ?? 0) * mebibyte, Number(total) * mebibyte];
    return bytes > 0 && ofBytes > 0 ? [{ on: 'gpu', bytes, ofBytes }] : [];
  });
  return found.toSorted((a, b) => b.bytes / b.ofBytes - a.bytes / a.ofBytes)[0];
}

const rowsOf = (csv: string): readonly (readonly string[])[] => csv.split('\n').map((line) => line.split(/\s*,\s*/));
const mebibyte = 1024 ** 2;
const usedByProcesses = '--query-compute-apps=pid,gpu_uuid,used_memory';

/** Devices of GPUs, and of those that nvidia-smi does not reach. */
const otherGpus = ['/dev/nvidiactl', '/dev/kfd', '/dev/dxg', '/dev/dri/renderD128'];

/** What its processes share counts once: files that several of them map, such as libraries, and memory that they write together. */
async function inMemory(ids: readonly number[]): Promise<HeldMemory | undefined> {
  const pages = await Promise.all(ids.map(async (id) => (await textOf(`/proc/${id}/statm`)).split(' ').map(Number)));
  const shared = Math.max(0, ...pages.map(([, , own = 0]) => own));
  const apart = pages.reduce((sum, [, resident = 0, own = 0]) => sum + resident - own, 0);
  const ofBytes = Math.min(totalmem(), process.constrainedMemory() || Infinity);
  const bytes = (shared + apart) * pageBytes;
  // Of processes that have just ended.
  return bytes > 0 ? { on: 'memory', bytes, ofBytes } : undefined;
}

/** On nearly all processors; where pages are larger, less is learned than is held. */
const pageBytes = 4096;

function nvidia(query: string): Promise<string | undefined> {
  return new Promise((resolve) => {
    execFile('nvidia-smi', [query, '--format=csv,noheader,nounits'], { timeout: 10_000 }, (error, output) =>
      resolve(error === null ? output : undefined),
    );
  });
}
