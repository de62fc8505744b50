import type { Environment } from '../config/environment.ts';
import { engineFolderIn, installedBuilds } from '../inference/engine-builds/installed.ts';
import type { GpuBuild } from '../inference/engines/llama/compute.ts';
import { GpuSearch } from '../inference/engines/llama/gpu-search.ts';
import { gpuVariablesIn } from '../inference/engines/llama/gpu-variables.ts';

type Surroundings = Pick<Environment, 'modelDirectory' | 'childVariables'>;

/** The GPUs that the embedded models of a service share. */
export const searchForGpus = (surroundings: Surroundings): GpuSearch =>
  new GpuSearch({
    builds: () => gpuBuilds(surroundings),
    variables: gpuVariablesIn(surroundings.childVariables),
  });

/** The GPU builds that this program can load: those installed, and the one for a Mac. */
export function gpuBuilds({ modelDirectory }: Pick<Surroundings, 'modelDirectory'>): readonly GpuBuild[] {
  const installed = installedBuilds(engineFolderIn(modelDirectory)).filter(({ isUsable }) => isUsable);
  return [
    ...(process.platform === 'darwin' && process.arch === 'arm64'
      ? [{ kind: 'metal', folder: undefined, furtherFolder: undefined } as const]
      : []),
    ...installed.map(({ kind, binaries, furtherBinaries }) => ({
      ...{ kind, folder: binaries, furtherFolder: furtherBinaries },
    })),
  ];
}
