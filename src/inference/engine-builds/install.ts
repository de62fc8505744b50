import { existsSync } from 'node:fs';
import { mkdir, rename, rm, statfs, writeFile } from 'node:fs/promises';
import path from 'node:path';
import { combineSignals } from '../../platform/combine-signals.ts';
import { defaultFetchLimits, type FetchLimits } from '../model-files/download-limits.ts';
import { acquireLock } from '../model-files/lock.ts';
import { Meter, type FetchProgress } from '../model-files/meter.ts';
import { buildFor, engineVersion, type BuildForPlatform, type BuildPackage, type InstallableKind } from './builds.ts';
import {
  addonName,
  buildFolder,
  installedBuilds,
  noteName,
  removeBuild,
  type BuildNote,
  type InstalledBuild,
} from './installed.ts';
import { npmInstall } from './npm.ts';
import { BuildProblem } from './build-problem.ts';

export interface InstallOptions {
  readonly engineFolder: string;
  /** Environment for npm, without the service's secrets. */
  readonly variables: Readonly<Record<string, string>>;
  readonly onProgress?: (progress: FetchProgress) => void;
  readonly signal?: AbortSignal;
  readonly limits?: Partial<FetchLimits>;
  /** The Node whose npm is used; the current one by default. */
  readonly node?: string;
  readonly platform?: { readonly os: NodeJS.Platform; readonly cpu: NodeJS.Architecture };
}

/**
 * Has npm fetch the packages of a build and verify them against the hashes known here, in a separate folder that is renamed once it is
 * complete: a build is either there or not, whenever the process ends. Concurrent processes take turns. Throws `BuildProblem`.
 */
export async function installBuild(
  kind: InstallableKind,
  options: InstallOptions,
): Promise<{ readonly build: InstalledBuild; readonly alreadyThere: boolean }> {
  const { engineFolder, platform: { os, cpu } = { os: process.platform, cpu: process.arch } } = options;
  const wanted = buildFor(kind, os, cpu);
  if (wanted === undefined)
    throw new BuildProblem(
      'platform',
      `there is no build for ${kind} on ${os} ${cpu}`,
      os === 'darwin' ? 'on a Mac with an Apple processor Metal is used without any installation' : undefined,
    );
  const limits = { ...defaultFetchLimits, ...options.limits };
  const deadline = AbortSignal.timeout(limits.totalTimeoutMs);
  const signal = options.signal === undefined ? deadline : combineSignals([options.signal, deadline]);
  const meter = new Meter(wanted.packages.map(({ name }) => name).join(', '), options.onProgress ?? (() => {}));
  await mkdir(engineFolder, { recursive: true });
  const lock = await acquireLock(path.join(engineFolder, '.lock'), signal, () => meter.begin('waiting', undefined));
  try {
    const present = usableOf(kind, engineFolder);
    if (present !== undefined) return { build: present, alreadyThere: true };
    await refuseFullDisk(wanted.packages, engineFolder);
    const making = path.join(engineFolder, `.making-${kind}`);
    await rm(making, { recursive: true, force: true }); // Left by a process that died.
    try {
      await mkdir(making);
      await npmInstall(wanted.packages, {
        ...options,
        limits,
        meter,
        signal: combineSignals([signal, lock.signal]),
        folder: making,
      });
      await putInPlace(wanted, making, engineFolder);
    } finally {
      await rm(making, { recursive: true, force: true });
    }
    const build = usableOf(kind, engineFolder);
    if (build === undefined) throw new BuildProblem('package', `the package has no ${addonName}`, undefined);
    return { build, alreadyThere: false };
  } finally {
    await lock.release();
  }
}

const usableOf = (kind: InstallableKind, engineFolder: string): InstalledBuild | undefined =>
  installedBuilds(engineFolder).find((build) => build.isUsable && build.kind === kind);

async function putInPlace(wanted: BuildForPlatform, making: string, engineFolder: string): Promise<void> {
  const { kind, packages } = wanted;
  const [binaries, further] = packages.map(({ name }) => path.join('node_modules', name, 'bins', wanted.binaries));
  if (binaries === undefined || !existsSync(path.join(making, binaries, addonName)))
    throw new BuildProblem('package', `the package has no ${addonName}`, undefined);
  const bytes = packages.reduce((sum, each) => sum + each.bytes, 0);
  const note: BuildNote = { binaries, furtherBinaries: further ?? null, bytes };
  await writeFile(path.join(making, noteName), JSON.stringify(note));
  // Builds of earlier releases are useless now.
  await removeBuild(engineFolder, kind);
  const target = buildFolder(engineFolder, engineVersion, kind);
  await mkdir(path.dirname(target), { recursive: true });
  await rm(target, { recursive: true, force: true }); // Whatever is there is incomplete.
  await rename(making, target);
}

/** Throws if the disk lacks room for the archives and their content, which exist at the same time. */
async function refuseFullDisk(packages: readonly BuildPackage[], folder: string): Promise<void> {
  const needed = packages.reduce((sum, { packedBytes, bytes }) => sum + packedBytes + bytes, 0) * 1.05;
  const { bavail, bsize } = await statfs(folder);
  if (bavail * bsize >= needed) return;
  throw new BuildProblem(
    'space',
    `${inWords(needed)} are needed in ${folder}, and ${inWords(bavail * bsize)} are free there`,
    'free some space, or name another folder with TOKENHOUSE_MODEL_DIR',
  );
}

const inWords = (bytes: number): string => `${Math.ceil(bytes / 1e6)} MB`;
