import { readdir, readFile, stat } from 'node:fs/promises';
import path from 'node:path';

import { withModel, type ModelEntry } from '../config/edit.ts';
import { portMark } from '../config/sections/managed.ts';
import type { NoGgufProblem } from '../inference/model-files/problem.ts';
import { bytesInWords } from './amount.ts';
import { CommandFailure } from './command-failure.ts';
import type { Context } from './context.ts';
import { exitCodes } from './failure.ts';
import { termsLine, termsOf, type TermsOptions } from './terms.ts';
import { foldersOf, programIn } from './program-in-path.ts';
import { freeModelId, takenOverLine, writeConfig } from './write-config.ts';

/** A model that a program of its own serves: a folder, or a repository that the program fetches. */
interface ServedModel {
  /** As the program is told. */
  readonly source: string;
  readonly revision?: string;
  /** A name that a person would give it. */
  readonly name: string;
  /** Text of its `config.json`. */
  readonly config: string | undefined;
  /** The size of its weights. */
  readonly bytes: number;
}

export const inRepository = ({ repository, revision, config, bytes }: NoGgufProblem): ServedModel => ({
  source: repository,
  revision,
  name: repository.split('/').at(-1)!,
  config,
  bytes,
});

/** `undefined`: it is no folder with a `config.json` and weights. */
export async function folderWithModel(folder: string): Promise<ServedModel | undefined> {
  const names = await readdir(folder).catch((): readonly string[] => []);
  const weights = names.filter((name) => name.endsWith('.safetensors'));
  if (!names.includes('config.json') || weights.length === 0) return undefined;
  const sizes = await Promise.all(weights.map((name) => stat(path.join(folder, name))));
  return {
    source: folder,
    name: path.basename(folder),
    config: await readFile(path.join(folder, 'config.json'), 'utf8'),
    bytes: sizes.reduce((sum, { size }) => sum + size, 0),
  };
}

interface Program {
  readonly flavor: 'vllm' | 'sglang';
  /** The words behind the program, with the longest window. */
  words(model: ServedModel, id: string, windowTokens: number): readonly string[];
}

const at = ['--host', '127.0.0.1', '--port', portMark];
const revisionOf = ({ revision }: ServedModel): readonly string[] =>
  revision === undefined ? [] : ['--revision', revision];

/** In order of preference. */
const programs: readonly Program[] = [
  {
    flavor: 'vllm',
    words: (model, id, window) => [
      ...['serve', model.source, ...revisionOf(model), '--served-model-name', id, ...at],
      ...['--max-model-len', String(window), '--enable-prompt-tokens-details'],
    ],
  },
  {
    flavor: 'sglang',
    words: (model, id, window) => [
      ...['serve', '--model-path', model.source, ...revisionOf(model), '--served-model-name', id, ...at],
      ...['--context-length', String(window)],
    ],
  },
];

/**
 * `tokenhouse models add` of a model that the embedded engine cannot load: writes an entry whose server the service starts when it is asked for,
 * by a program that is installed here.
 */
export async function addServed(
  context: Context,
  options: TermsOptions & { readonly id?: string; readonly config?: string },
  model: ServedModel,
): Promise<number> {
  const { environment, print } = context;
  const id = freeModelId(context, options.id ?? model.name.toLowerCase());
  const folders = foldersOf(environment).filter((folder) => path.isAbsolute(folder));
  const found = programs.flatMap((program) => {
    // Written whole: a service may have another PATH.
    const file = programIn(program.flavor, folders);
    return file === undefined ? [] : [{ ...program, file }];
  })[0];
  if (found === undefined) throw nothingInstalled(model);
  const trained = windowIn(model.config);
  const window = Math.min(trained ?? windowUnknown, windowMost);
  const terms = await termsOf(context, options);
  const command = [found.file, ...found.words(model, id, window)];
  const entry: ModelEntry = {
    id,
    ...(model.name === id ? {} : { display_name: model.name }),
    context_length: window,
    backends: [
      {
        engine: 'openai',
        flavor: found.flavor,
        managed: {
          command,
          ...(environment.variable('HF_TOKEN') === undefined ? {} : { env: ['HF_TOKEN'] }),
          start_timeout_seconds: 1_800,
          idle_stop_minutes: 30,
          // Each takes most of the memory that it finds.
          group: 'gpu-0',
        },
      },
    ],
    ...terms,
  };
  const { written, reloaded } = await writeConfig(context, options.config, (text) => withModel(text, entry));
  print.result(
    {
      ...{ id, command, flavor: found.flavor, bytes: model.bytes, context_length: window, ...terms },
      ...{ config: written, is_in_force: reloaded },
    },
    [
      `${id} · ${bytesInWords(model.bytes)} of weights · served by ${found.file}`,
      `window   ${window} tokens${trained !== undefined && window < trained ? `, of ${trained} that it was trained for: raise context_length and the command where its memory has room` : ''}`,
      'memory   it takes turns with the other servers of the group gpu-0',
      'starts   with its first request, and stops after half an hour without one',
      `config   ${written}`,
      `terms    ${termsLine(id, terms)}`,
      takenOverLine(reloaded),
    ],
  );
  return 0;
}

/** What a cache has room for on most GPUs. */
const windowMost = 32_768;
const windowUnknown = 4_096;

/** The window that a model was trained for; models for text and images have it a level deeper. */
function windowIn(config: string | undefined): number | undefined {
  try {
    const read = JSON.parse(config ?? '{}') as { readonly text_config?: Windowed } & Windowed;
    const window = read.max_position_embeddings ?? read.text_config?.max_position_embeddings;
    return typeof window === 'number' && Number.isSafeInteger(window) && window >= 16 ? window : undefined;
  } catch {
    return undefined;
  }
}

interface Windowed {
  readonly max_position_embeddings?: unknown;
}

const nothingInstalled = ({ source }: ServedModel): CommandFailure =>
  new CommandFailure({
    what: [`${source} has no .gguf file, and no program here could serve it: neither vllm nor sglang is in the PATH.`],
    why: 'the embedded engine loads .gguf files only; nothing was written',
    repair: [
      'install vLLM (pip install vllm) or SGLang, with its folder in the PATH, and repeat the command',
      'or name a repository with .gguf files: tokenhouse models add hf:owner/repository-GGUF',
      'or add a server that runs elsewhere: tokenhouse backends add http://10.0.0.5:8000/v1',
    ],
    exitCode: exitCodes.refused,
  });
