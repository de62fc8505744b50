import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { rm } from 'node:fs/promises';
import path from 'node:path';
import { engineVersion, installableKinds, type InstallableKind } from './builds.ts';

/** A build that lies whole in its folder. */
export interface InstalledBuild {
  readonly kind: InstallableKind;
  /** Release of node-llama-cpp. */
  readonly version: string;
  /** It is of the release that this program needs. */
  readonly isUsable: boolean;
  /** All of it. */
  readonly folder: string;
  readonly binaries: string;
  readonly furtherBinaries: string | undefined;
  readonly bytes: number;
}

/** Beside the model files, which are on a disk with room and outlive a container. */
export const engineFolderIn = (modelDirectory: string): string => path.join(modelDirectory, '.engine');

/** What is noted in the folder of a build, when it is whole. */
export const noteName = 'build.json';

export interface BuildNote {
  readonly binaries: string;
  readonly furtherBinaries: string | null;
  readonly bytes: number;
}

/** Of all releases, the usable ones first; one build of a kind and release at most. */
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
    return undefined; // Not there, or not whole.
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

/** Removes a kind in all releases; resolves with what there was. A process that has it loaded goes on. */
export async function removeBuild(engineFolder: string, kind: InstallableKind): Promise<readonly InstalledBuild[]> {
  const found = installedBuilds(engineFolder).filter((build) => build.kind === kind);
  for (const { folder } of found) {
    // Without its note it is no build any more, however far the rest gets.
    await rm(path.join(folder, noteName));
    await rm(folder, { recursive: true, force: true });
  }
  return found;
}
