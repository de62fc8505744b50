import { gpuBuilds } from '../app/gpus.ts';
import { installableKinds, buildFor, engineVersion, type InstallableKind } from '../inference/engine-builds/builds.ts';
import { installBuild } from '../inference/engine-builds/install.ts';
import { engineFolderIn, installedBuilds, removeBuild } from '../inference/engine-builds/installed.ts';
import { BuildProblem } from '../inference/engine-builds/build-problem.ts';
import { kindInWords, type FoundGpu } from '../inference/engines/llama/compute.ts';
import { lookFor } from '../inference/engines/llama/gpu-search.ts';
import { gpuVariablesIn } from '../inference/engines/llama/gpu-variables.ts';
import { progressDisplay } from '../inference/model-files/progress.ts';
import { bytesInWords } from './amount.ts';
import { CommandFailure } from './command-failure.ts';
import type { Context } from './context.ts';
import { exitCodes } from './failure.ts';
import { table } from './output.ts';

interface ListedEngine {
  readonly kind: InstallableKind | 'metal' | 'processor';
  readonly state: string;
  /** Release of node-llama-cpp; null if it is not here. */
  readonly version: string | null;
  readonly bytes: number | null;
  /** The GPUs that it sees, or why it cannot say. */
  readonly devices: string | null;
  readonly folder: string | null;
}

/** Which builds of the embedded engine are here, and which GPUs they see. */
export async function listEngines({ environment, print }: Context): Promise<number> {
  const { modelDirectory, childVariables } = environment;
  const found = await Promise.all(
    gpuBuilds(environment).map((build) => lookFor(build, gpuVariablesIn(childVariables))),
  );
  const own = { state: 'comes with the program', version: engineVersion, bytes: null, folder: null };
  const installed = installedBuilds(engineFolderIn(modelDirectory));
  const seenBy = (kind: ListedEngine['kind']): string | null =>
    devicesInWords(found.find(({ build }) => build.kind === kind));
  const listed: readonly ListedEngine[] = [
    { kind: 'processor', ...own, devices: null },
    ...(seenBy('metal') === null ? [] : [{ kind: 'metal', ...own, devices: seenBy('metal') } as const]),
    ...installableKinds.flatMap((kind): readonly ListedEngine[] => {
      const build = installed.find((each) => each.kind === kind);
      if (build === undefined) return isOffered(kind) ? [{ kind, ...notInstalled }] : [];
      const { version, bytes, folder, isUsable } = build;
      return isUsable
        ? [{ kind, state: 'installed', version, bytes, folder, devices: seenBy(kind) }]
        : [{ kind, state: 'of another version: install it again', version, bytes, folder, devices: null }];
    }),
  ];
  print.result(
    listed,
    table(
      ['engine', 'state', 'version', 'size', 'devices'],
      listed.map(({ kind, state, version, bytes, devices }) => [
        ...[kind, state, version],
        ...[bytes === null ? null : bytesInWords(bytes), devices],
      ]),
    ),
  );
  return 0;
}

const notInstalled = { state: 'not installed', version: null, bytes: null, devices: null, folder: null };

const isOffered = (kind: InstallableKind): boolean => buildFor(kind, process.platform, process.arch) !== undefined;

function devicesInWords(found: FoundGpu | undefined): string | null {
  if (found === undefined) return null;
  if ('problem' in found) return `cannot be used: ${found.problem}`;
  return found.devices.names.length === 0 ? 'none' : found.devices.names.join(', ');
}

export async function installEngine(context: Context, _options: object, named = ''): Promise<number> {
  const { environment, print, around } = context;
  const kind = named as InstallableKind;
  const engineFolder = engineFolderIn(environment.modelDirectory);
  const display = progressDisplay(around.stderr, undefined, 'engine');
  try {
    const { build, alreadyThere } = await installBuild(kind, {
      engineFolder,
      variables: environment.childVariables,
      onProgress: display.show,
    });
    display.end();
    const own = gpuBuilds(environment).find((each) => each.kind === kind)!;
    const found = await lookFor(own, gpuVariablesIn(environment.childVariables));
    const { version, bytes, folder } = build;
    const devices = devicesInWords(found);
    print.result({ kind, version, bytes, folder, already_there: alreadyThere, devices }, [
      `${kindInWords(kind)}: ${alreadyThere ? 'already installed' : 'installed'} in ${folder} (${bytesInWords(bytes)}); devices: ${devices}`,
    ]);
    print.say(
      'devices' in found && found.devices.names.length > 0
        ? 'A running service uses it after a restart.'
        : 'Models are computed by the processor until it finds a device: is the driver of the GPU here, and for CUDA its runtime?',
    );
    return 0;
  } catch (error) {
    if (!(error instanceof BuildProblem)) throw error;
    throw new CommandFailure({
      what: [`The build for ${kindInWords(kind)} was not installed, and nothing was changed.`],
      why: error.message,
      repair: [...(error.remedy === undefined ? [] : [error.remedy]), 'tokenhouse engine list'],
      exitCode: error.kind === 'platform' ? exitCodes.refused : exitCodes.unavailable,
    });
  } finally {
    display.end();
  }
}

export async function removeEngine({ environment, print }: Context, _options: object, named = ''): Promise<number> {
  const kind = named as InstallableKind;
  const removed = await removeBuild(engineFolderIn(environment.modelDirectory), kind);
  print.result(
    removed.map(({ version, bytes, folder }) => ({ kind, version, bytes, folder })),
    removed.length === 0
      ? [`${kindInWords(kind)}: was not installed`]
      : removed.map(({ folder, bytes }) => `${kindInWords(kind)}: removed from ${folder} (${bytesInWords(bytes)})`),
  );
  return 0;
}
