import { mkdir, rename, rm, stat } from 'node:fs/promises';
import path from 'node:path';
import { combineSignals } from '../../platform/combine-signals.ts';
import type { SamplingDefaults } from '../../generation/sampling-defaults.ts';
import { fileNameOf, parseSource, type ModelFileSource } from '../../config/model-source.ts';
import { download } from './download.ts';
import { defaultFetchLimits, type FetchLimits } from './download-limits.ts';
import type { FetchEnvironment } from './fetch-model-file.ts';
import { generationConfig } from './generation-config.ts';
import { openHttp, type HttpAccess } from './http.ts';
import { hubEndpoints, hubModel, type WantedOfHub } from './hub.ts';
import { acquireLock } from './lock.ts';
import { Meter, type FetchProgress } from './meter.ts';
import { inWords, NoGgufProblem, SourceProblem } from './problem.ts';
import { rememberedSha256 } from './verified.ts';

/** A file identified by its content, and the source to write into the configuration. */
export interface PinnedFile {
  readonly source: string;
  readonly sha256: string;
  readonly bytes: number;
}

export interface PinnedModel {
  /** A name that a person would give it. */
  readonly name: string;
  /** The first file is the one to load; the others are the rest of a split model. */
  readonly files: readonly PinnedFile[];
  /** What the `generation_config.json` of the repository says. */
  readonly defaults: SamplingDefaults;
}

export interface PinOptions {
  /** Base of relative paths. */
  readonly directory: string;
  readonly modelDirectory: string;
  readonly environment: FetchEnvironment;
  readonly signal: AbortSignal;
  readonly onProgress: (progress: FetchProgress) => void;
  readonly limits?: Partial<FetchLimits>;
}

/**
 * Resolves `text` to files with hashes that count from now on: `hf:owner/repository[:QUANT | /file.gguf][@revision]` as the hub states it
 * at today's commit, a local file as it is, and a URL, whose host states no hash, by fetching it here. Throws `SourceProblem`.
 */
export async function pinModel(text: string, options: PinOptions): Promise<PinnedModel> {
  const limits = { ...defaultFetchLimits, ...options.limits };
  const whole = /^hf:([\w-][\w.-]*\/[\w-][\w.-]*)(?:@([\w./-]+))?$/.exec(text);
  const source = whole === null ? parseSource(text, options.directory) : undefined;
  if (source !== undefined && 'problem' in source) throw new SourceProblem(source.problem);
  if (source?.type === 'path') return ofPath(source.path, options);
  if (source?.type === 'package') throw new SourceProblem('a package has no hash that could be pinned; name its file');
  const http = openHttp(options.environment.proxy, limits);
  try {
    if (source?.type === 'url') return await ofUrl(source, http, options);
    const wanted: WantedOfHub = source ?? { repository: whole![1]!, revision: whole![2] ?? 'main' };
    return await ofHub(wanted, http, options);
  } finally {
    await http.close();
  }
}

async function ofHub(wanted: WantedOfHub, http: HttpAccess, { environment, signal }: PinOptions): Promise<PinnedModel> {
  const problems: string[] = [];
  for (const endpoint of hubEndpoints(environment.hub.endpoint)) {
    try {
      const token = environment.hub.token?.reveal();
      const { revision, files, generationConfig: config } = await hubModel(wanted, { http, endpoint, token, signal });
      return {
        name: stemOf(files[0]!.path),
        files: files.map(({ path: file, bytes, sha256 }) => ({
          source: `hf:${wanted.repository}/${file}@${revision}`,
          bytes,
          sha256,
        })),
        defaults: config === undefined ? {} : generationConfig(config),
      };
    } catch (error) {
      signal.throwIfAborted();
      if (error instanceof NoGgufProblem) throw error;
      problems.push(`${new URL(endpoint).host}: ${inWords(error)}`);
    }
  }
  throw new SourceProblem(problems.join('; then '));
}

async function ofUrl(
  source: Extract<ModelFileSource, { type: 'url' }>,
  http: HttpAccess,
  { modelDirectory, signal, onProgress }: PinOptions,
): Promise<PinnedModel> {
  const name = fileNameOf(source);
  if (name === undefined || !/\.gguf$/i.test(name) || splitName.test(name))
    throw new SourceProblem('the URL must end with the name of one whole .gguf file');
  await mkdir(modelDirectory, { recursive: true });
  const part = path.join(modelDirectory, `${name}.unpinned.part`);
  const lock = await acquireLock(`${part}.lock`, signal);
  let found: { readonly sha256: string; readonly bytes: number };
  try {
    found = await download({
      http,
      url: source.url,
      part,
      sha256: undefined,
      bytes: undefined,
      signal: combineSignals([signal, lock.signal]),
      meter: new Meter(source.label, onProgress),
    });
    // Where the model's regular fetch finds it.
    await rename(part, path.join(modelDirectory, `${found.sha256}.gguf`));
    await rm(`${part}.json`, { force: true });
  } finally {
    await lock.release();
  }
  const { sha256, bytes } = found;
  return { name: stemOf(name), files: [{ source: source.url, sha256, bytes }], defaults: {} };
}

/** Pins local files. All parts of a split model lie beside the first. */
async function ofPath(first: string, { modelDirectory, signal, onProgress }: PinOptions): Promise<PinnedModel> {
  const files: PinnedFile[] = [];
  for (const file of pathsOf(first)) {
    const found = await stat(file).catch(() => undefined);
    if (found?.isFile() !== true) throw new SourceProblem(`${file} does not exist`);
    const meter = new Meter(path.basename(file), onProgress);
    meter.begin('checking', found.size);
    const sha256 = await rememberedSha256(file, modelDirectory, { signal, onBytes: (bytes) => meter.report(bytes) });
    files.push({ source: `file:${file}`, sha256, bytes: found.size });
  }
  return { name: stemOf(first), files, defaults: {} };
}

const splitName = /^(.*)-(\d{5})-of-(\d{5})\.gguf$/i;

function pathsOf(first: string): readonly string[] {
  const [, stem, number, count] = splitName.exec(first) ?? [];
  if (stem === undefined) return [first];
  if (Number(number) !== 1) throw new SourceProblem(`name the first part, ${stem}-00001-of-${count}.gguf`);
  return Array.from(
    { length: Math.min(Number(count), 256) },
    (_, index) => `${stem}-${String(index + 1).padStart(5, '0')}-of-${count}.gguf`,
  );
}

const stemOf = (file: string): string =>
  path
    .basename(file)
    .replace(/\.gguf$/i, '')
    .replace(/-\d{5}-of-\d{5}$/, '');
