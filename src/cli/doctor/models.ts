import { statSync } from 'node:fs';
import os from 'node:os';

import type { LlamaBackendConfig, ModelConfig } from '../../config/config.ts';
import type { ServiceStatus } from '../../app/control/status.ts';
import { searchForGpus } from '../../app/gpus.ts';
import { engineFolderIn, installedBuilds } from '../../inference/engine-builds/installed.ts';
import { gpuRoom, isSoftwareDevice, kindInWords, type FoundGpu } from '../../inference/engines/llama/compute.ts';
import { engineOutput, keptThreadsMark } from '../../inference/engines/llama/gpu-search.ts';
import { gpuVariablesIn } from '../../inference/engines/llama/gpu-variables.ts';
import { findModelFile } from '../../inference/model-files/fetch-model-file.ts';
import { folderOf } from '../../inference/model-files/fetch-model.ts';
import { memoryLimitBytes } from '../../platform/memory.ts';
import { bytesInWords } from '../amount.ts';
import type { Finding, Patient } from './finding.ts';
import { freeBytesOf, quoted } from '../folder.ts';

/** Checks the embedded engine, and the files of its models. */
export async function lookAtModels(patient: Patient): Promise<readonly Finding[]> {
  const wanted = patient.config.models.flatMap((model) =>
    model.backends.flatMap((backend) => (backend.engine === 'llama' ? [{ model, backend }] : [])),
  );
  if (wanted.length === 0) return [];
  const gpus = await searchForGpus(patient.environment).found();
  const findings = [
    await lookAtEngine(gpuVariablesIn(patient.environment.childVariables)),
    ...lookAtGpus(patient, wanted, gpus),
  ];
  const sizes: number[] = [];
  for (const { model, backend } of wanted) {
    const { finding, size } = await lookAtFile(model, backend, patient);
    findings.push(finding);
    sizes.push(size);
  }
  const isRunning = patient.status !== undefined;
  return [...findings, lookAtMemory(sizes, memoryLimitBytes(), os.freemem(), isRunning, gpuRoom(gpus))];
}

async function lookAtFile(
  model: ModelConfig,
  backend: LlamaBackendConfig,
  { environment, status }: Patient,
): Promise<{ readonly finding: Finding; readonly size: number }> {
  const check = 'model';
  const { sources, sha256, bytes } = backend;
  // The running service knows best: it may have been started with another model folder, or have a file open that has since been deleted.
  const running = status === undefined || status === 'other' ? undefined : inService(model, backend, status);
  if (running !== undefined) return { finding: { check, ...running }, size: running.size };
  const { modelDirectory } = environment;
  const found = await findModelFile({ sources, sha256, bytes, directory: folderOf(backend, modelDirectory) });
  if ('path' in found) {
    const { size } = statSync(found.path);
    const text = `${model.id} · ${found.path} · ${bytesInWords(size)}, sha256 verified`;
    return { finding: { check, state: 'ok', found: text }, size };
  }
  const repair = `tokenhouse models pull ${quoted(model.id)}`;
  const missing = `${model.id} · not on this computer`;
  const size = bytes ?? 0;
  const [wrong] = found.attempts;
  if (wrong !== undefined) {
    const why = `${wrong.source}: ${wrong.problem}`;
    // Another source may still have it.
    const state = sources.every(({ type }) => type === 'path') ? 'problem' : 'warning';
    return { finding: { check, state, found: missing, why, repair }, size };
  }
  if (size > freeBytesOf(modelDirectory)) {
    const why = `the file has ${bytesInWords(size)}, and ${bytesInWords(freeBytesOf(modelDirectory))} are free in ${modelDirectory}`;
    return {
      finding: { check, state: 'problem', found: missing, why, repair: `df -h ${quoted(modelDirectory)}` },
      size,
    };
  }
  const why = `the first start downloads ${size === 0 ? 'it' : bytesInWords(size)}, and requests to the model wait for it`;
  return { finding: { check, state: 'warning', found: missing, why, repair }, size };
}

/** The state of a model's file in the running service; undefined if it does not have this one. */
function inService(
  { id }: ModelConfig,
  { name, sha256, bytes = 0 }: LlamaBackendConfig,
  status: ServiceStatus,
): (Pick<Finding, 'state' | 'found' | 'why' | 'repair'> & { readonly size: number }) | undefined {
  const served = status.backends.find(({ modelId, label }) => modelId === id && label === name);
  if (served?.file?.sha256 === sha256) {
    const { path } = served.file;
    const size = statSync(path, { throwIfNoEntry: false })?.size;
    if (size !== undefined)
      return { state: 'ok', found: `${id} · ${path} · ${bytesInWords(size)}, in use by the running service`, size };
    return {
      state: 'warning',
      found: `${id} · ${path} · in use by the running service, and gone from its folder`,
      why: 'the next start will download it again',
      repair: `tokenhouse models pull ${quoted(id)}`,
      size: bytes,
    };
  }
  if (served?.state !== 'starting' || served.file !== undefined) return undefined;
  return {
    state: 'warning',
    found: `${id} · the running service is downloading its file`,
    why: 'requests to it get 503 no_healthy_backends until then',
    repair: 'tokenhouse doctor (in a moment)',
    size: bytes,
  };
}

/** Loads the native part in a separate process, because it may crash. */
async function lookAtEngine(variables: Readonly<Record<string, string>>): Promise<Finding> {
  const check = 'engine';
  const { error, output } = await engineOutput(['probe'], variables);
  if (error === undefined) {
    const threads = output.includes(keptThreadsMark) ? 'keeps its threads' : 'starts its threads at each step';
    return { check, state: 'ok', found: `llama.cpp loads, and ${threads}` };
  }
  return {
    check,
    state: 'problem',
    found: 'llama.cpp does not load',
    why: error,
    repair: 'npm ci --ignore-scripts && npm run build',
  };
}

/** Checks the GPU builds, the devices that they see, and what the running service runs its models on. */
function lookAtGpus(
  { environment, status }: Patient,
  wanted: readonly { readonly model: ModelConfig; readonly backend: LlamaBackendConfig }[],
  found: readonly FoundGpu[],
): readonly Finding[] {
  const check = 'gpu';
  const outdated = installedBuilds(engineFolderIn(environment.modelDirectory)).filter(({ isUsable }) => !isUsable);
  const demanding = wanted.find(({ backend }) => typeof backend.gpu === 'number');
  if (found.length === 0 && outdated.length === 0 && demanding !== undefined) {
    const why = `${demanding.model.id} asks for ${demanding.backend.gpu} layers on a GPU, and is computed by the processor`;
    const repair = 'tokenhouse engine install vulkan (or cuda)';
    return [{ check, state: 'warning', found: 'no build of llama.cpp for a GPU is installed', why, repair }];
  }
  const running = status === undefined || status === 'other' ? [] : status.backends;
  return [
    ...outdated.map(({ kind, version }): Finding => ({
      check,
      state: 'warning',
      found: `${kindInWords(kind)} · a build of another version (${version}), which is not used`,
      why: 'it has to be of the release that this program is made with',
      repair: `tokenhouse engine install ${kind}`,
    })),
    ...found.map(findingOfGpu),
    ...running.flatMap(({ modelId, residence }): readonly Finding[] => {
      const compute = residence?.compute;
      if (compute === undefined || !compute.isOfNote) return [];
      const said = `${modelId} · computed by ${compute.with}`;
      return [{ check, state: 'ok', found: compute.note === undefined ? said : `${said}: ${compute.note}` }];
    }),
  ];
}

function findingOfGpu(seen: FoundGpu): Finding {
  const check = 'gpu';
  const { kind } = seen.build;
  const name = kindInWords(kind);
  const repair = `tokenhouse engine list (or, to do without it: tokenhouse engine remove ${kind})`;
  if ('problem' in seen)
    return { check, state: 'warning', found: `${name} · its build cannot be used`, why: seen.problem, repair };
  const { names, freeBytes, totalBytes } = seen.devices;
  if (names.length === 0) {
    const why = 'models are computed by the processor; the driver of the GPU may be missing';
    return { check, state: 'warning', found: `${name} · finds no device`, why, repair };
  }
  const found = `${name} · ${names.join(', ')} · ${bytesInWords(freeBytes)} of ${bytesInWords(totalBytes)} free`;
  if (!names.every(isSoftwareDevice)) return { check, state: 'ok', found };
  return { check, state: 'ok', found: `${found} · computes with the processor: only used where gpu is a number` };
}

/** The weights are mapped; the caches of running requests and the process itself need memory in addition. */
const roomFactor = 1.3;

/** Models take turns in memory, so the largest one decides. */
export function lookAtMemory(
  modelBytes: readonly number[],
  totalBytes: number,
  freeBytes: number,
  isLoaded: boolean,
  gpuBytes = 0,
): Finding {
  const check = 'memory';
  const largest = Math.max(...modelBytes);
  const all = modelBytes.reduce((sum, bytes) => sum + bytes, 0);
  const needed = Math.max(0, Math.ceil(largest * roomFactor) - gpuBytes);
  const turns = all * roomFactor > totalBytes ? ', which take turns in memory' : '';
  const models =
    modelBytes.length === 1
      ? `the model has ${bytesInWords(all)}`
      : `the models have ${bytesInWords(all)}${turns}, the largest ${bytesInWords(largest)}`;
  const beside = gpuBytes === 0 ? '' : ` and ${bytesInWords(gpuBytes)} on GPUs`;
  const found = `${bytesInWords(totalBytes)}, ${bytesInWords(freeBytes)} of it free${beside}; ${models}`;
  const repair = 'tokenhouse config show (choose a smaller quantization, or fewer slots)';
  if (needed > totalBytes) {
    return { check, state: 'problem', found, why: `with its cache it needs about ${bytesInWords(needed)}`, repair };
  }
  if (!isLoaded && needed > freeBytes) {
    const why = `it needs about ${bytesInWords(needed)} with its cache, which is more than the free memory`;
    return { check, state: 'warning', found, why, repair };
  }
  return { check, state: 'ok', found };
}
