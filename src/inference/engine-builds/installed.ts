import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { rm } from 'node:fs/promises';
import path from 'node:path';
import { engineVersion, installableKinds, type InstallableKind } from './builds.ts';

/** A build that is complete in its folder. */
export interface InstalledBuild {
  readonly kind: InstallableKind;
  /** Release of node-llama-cpp. */
  readonly version: string;
  /** Whether it is of the release that this program needs. */
  readonly isUsable: boolean;
  /** The folder of the whole build. */
  readonly folder: string;
  readonly binaries: string;
  readonly furtherBinaries: string | undefined;
  readonly bytes: number;
}

/** Returns the folder for builds, beside the model files: that disk has room and outlives a container. */
export const engineFolderIn = (modelDirectory: string): string => path.join(modelDirectory, '.engine');

/** The file in a build's folder that marks it as complete. */
export const noteName = 'build.json';

export interface BuildNote {
  readonly binaries: string;
  readonly furtherBinaries: string | null;
  readonly bytes: number;
}

/** Returns the builds of all releases, the usable ones first; at most one build per kind and release. */
export function installedBuilds(engineFolder: string): readonly InstalledBuild[] {
  return foldersIn(engineFolder)
    .filter((version) => /^\d+\.\d+\.\d+/.test(version))
    .flatMap((version) => installableKinds.flatMap((kind) => readBuild(engineFolder, version, kind) ?? []))
    .toSorted((a, b) => Number(b.isUsable) - Number(a.isUsable));
}

export const buildFolder = (engineFolder: string, version: string, kind: InstallableKind): string =>
  path.join(engineFolder, version, kind);

function readBuild(engineFolder: string, version: string, kind: InstallableKind): InstalledBuild | undefined {
  const folder = buildFolder(engineFolder, version, kind);
  try {
    const note = JSON.parse(readFileSync(path.join(folder, noteName), 'utf8')) as BuildNote;
    const binaries = path.join(folder, note.binaries);
    if (!existsSync(path.join(binaries, addonName))) return undefined;
    return {
      ...{ kind, version, isUsable: version === engineVersion, folder, binaries, bytes: note.bytes },
      furtherBinaries: note.furtherBinaries === null ? undefined : path.join(folder, note.furtherBinaries),
    };
  } catch {
    return undefined; // Missing or incomplete.
  }
}

export const addonName = 'llama-addon.node';

function foldersIn(folder: string): readonly string[] {
  try {
    return readdirSync(folder);
  } catch {
    return [];
  }
}

/** Removes a kind in all releases; resolves with the removed builds. A process that has one loaded keeps running. */
export async function removeBuild(engineFolder: string, kind: InstallableKind): Promise<readonly InstalledBuild[]> {
  const found = installedBuilds(engineFolder).filter((build) => build.kind === kind);
  for (const { folder } of found) {
    // Without its note it no longer counts as a build, even if the removal stops halfway.
    await rm(path.join(folder, noteName));
    await rm(folder, { recursive: true, force: true });
  }
  return found;
}
