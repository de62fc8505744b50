import { execFile } from 'node:child_process';
import { tmpdir } from 'node:os';
import { fileURLToPath } from 'node:url';
import { entryUrl } from '../../../platform/entries.ts';
import {
  chooseCompute,
  type Compute,
  type FoundGpu,
  type GpuBuild,
  type GpuDevices,
  type GpuSetting,
  type LayerNeeds,
} from './compute.ts';

export interface GpuSearchOptions {
  /** Returns the builds on this computer. */
  readonly builds: () => readonly GpuBuild[];
  /** Environment for the probe processes (`gpuVariablesIn`). */
  readonly variables: Readonly<Record<string, string>>;
}

/** What a model is computed on, and its share of the devices' memory until it is released. */
export interface ReservedCompute {
  readonly compute: Compute;
  release(): void;
}

/**
 * The GPUs for a service's embedded models: searched for once, when the first model asks. Models share their memory on a first-come,
 * first-served basis.
 */
export class GpuSearch {
  readonly #options: GpuSearchOptions;
  #found: Promise<readonly FoundGpu[]> | undefined;
  #takenBytes = 0;

  constructor(options: GpuSearchOptions) {
    this.#options = options;
  }

  found(): Promise<readonly FoundGpu[]> {
    this.#found ??= this.#look();
    return this.#found;
  }

  async reserve(setting: GpuSetting, needs: LayerNeeds): Promise<ReservedCompute> {
    const found = setting === 'off' ? [] : await this.found();
    const compute = chooseCompute(setting, found, needs, this.#takenBytes);
    let bytes = compute.on === 'gpu' ? compute.bytes : 0;
    this.#takenBytes += bytes;
    const release = (): void => {
      this.#takenBytes -= bytes;
      bytes = 0;
    };
    return { compute, release };
  }

  async #look(): Promise<readonly FoundGpu[]> {
    const { builds, variables } = this.#options;
    return await Promise.all(builds().map((build) => lookFor(build, variables)));
  }
}

const timeoutMs = 60_000;
const outputBytesMax = 64 * 1024;

/** Asks a build for its devices, in a separate process, because a driver may crash it. */
export async function lookFor(build: GpuBuild, variables: Readonly<Record<string, string>>): Promise<FoundGpu> {
  const { error, output } = await engineOutput(['devices', JSON.stringify(build)], variables);
  if (error !== undefined) return { build, problem: error };
  const devices = devicesIn(output);
  return devices === undefined ? { build, problem: 'it did not say which devices there are' } : { build, devices };
}

/** Runs the engine's program and returns its output; `error`: why it did not run to its end, in words for a person. */
export function engineOutput(
  words: readonly string[],
  variables: Readonly<Record<string, string>>,
): Promise<{ readonly error: string | undefined; readonly output: string }> {
  const options = { timeout: timeoutMs, maxBuffer: outputBytesMax, env: engineEnvironment(variables) };
  return new Promise((resolve) => {
    execFile(process.execPath, [fileURLToPath(entryUrl('llama-child')), ...words], options, (error, stdout, stderr) => {
      const reason = /^reason: (.*)$/m.exec(stderr)?.[1] ?? error?.message.split('\n')[0] ?? '';
      resolve({ error: error === null ? undefined : endedInWords(error, reason.slice(0, 200)), output: stdout });
    });
  });
}

const endedInWords = ({ signal }: { readonly signal?: NodeJS.Signals | null | undefined }, reason: string): string =>
  typeof signal !== 'string' ? reason : `its process ended by ${signal}`;

/**
 * Returns the environment of an engine's process, without secrets. The package needs a home directory when it is loaded, and containers
 * often run as a UID without a passwd entry, which has no home directory.
 */
export const engineEnvironment = (variables: Readonly<Record<string, string>>): Record<string, string> => ({
  ...variables,
  HOME: tmpdir(),
});

/** Finds the line that `llama-child devices` prints; drivers may print others. */
export function devicesIn(output: string): GpuDevices | undefined {
  const line = output.split('\n').findLast((each) => each.startsWith(devicesMark));
  if (line === undefined) return undefined;
  try {
    const { names, totalBytes, freeBytes, isUnified } = JSON.parse(
      line.slice(devicesMark.length),
    ) as Partial<GpuDevices>;
    if (!Array.isArray(names) || typeof totalBytes !== 'number' || typeof freeBytes !== 'number') return undefined;
    return { names: names.slice(0, devicesMax).map(shortName), totalBytes, freeBytes, isUnified: isUnified === true };
  } catch {
    return undefined;
  }
}

export const devicesMark = 'devices: ';
/** What `llama-child probe` prints if llama.cpp keeps its threads. */
export const keptThreadsMark = 'keeps its threads';
const devicesMax = 64;

/** Sanitizes a device name: drivers can report anything, and it goes into logs and onto terminals. */
const shortName = (name: unknown): string =>
  String(name)
    .replaceAll(/[^\x20-\x7e]/g, '?')
    .slice(0, 100);
