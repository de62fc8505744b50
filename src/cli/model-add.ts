import { freemem } from 'node:os';
import path from 'node:path';

import { OperationError } from '../accounts/operation.ts';
import { searchForGpus } from '../app/gpus.ts';
import { withModel, withoutModel, type ModelEntry } from '../config/edit.ts';
import { defaultableFields, defaultableNames } from '../generation/sampling-defaults.ts';
import { chooseCompute, gpuRoom, type FoundGpu } from '../inference/engines/llama/compute.ts';
import { gpuVariablesIn } from '../inference/engines/llama/gpu-variables.ts';
import { readGgufHeader, type GgufHeader } from '../inference/engines/llama/gguf-header.ts';
import { MemoryBudget } from '../inference/engines/llama/memory-budget.ts';
import { layerNeedsOf, memoryNeedsOf, needsBeside } from '../inference/engines/llama/memory-needs.ts';
import { ModelRefused } from '../inference/engines/llama/model-refused.ts';
import { purposeOf, refuseOtherPurpose, type Purpose } from '../inference/engines/llama/purpose.ts';
import { fetchModel } from '../inference/model-files/fetch-model.ts';
import { pinModel, type PinnedModel } from '../inference/model-files/pin-model.ts';
import { NoGgufProblem } from '../inference/model-files/problem.ts';
import { progressDisplay } from '../inference/model-files/progress.ts';
import { ChatTemplate } from '../inference/engines/llama/chat-template.ts';
import { CommandFailure } from './command-failure.ts';
import type { Context } from './context.ts';
import { exitCodes } from './failure.ts';
import { bytesInWords } from './amount.ts';
import { addTimeoutMs, filesOf, probeWindow } from './pinned-files.ts';
import { termsLine, termsOf, type TermsOptions } from './terms.ts';
import { freeModelId, modelInFile, takenOverLine, writeConfig } from './write-config.ts';
import { addServed, folderWithModel, inRepository } from './model-served.ts';
import { madeLine, probeModel, probeTask, type ProbeMeans } from './model-probe.ts';

interface AddOptions extends TermsOptions {
  readonly adapterOf?: string;
  readonly id?: string;
  readonly config?: string;
}

/**
 * `tokenhouse models add`: pins a model, fetches and checks it, lets it answer a question, and writes it into the configuration,
 * which a running service takes over. Nothing is written before all of that has worked.
 */
export async function addModel(context: Context, options: AddOptions, input = ''): Promise<number> {
  const { around, environment, print } = context;
  if (options.adapterOf !== undefined) {
    const { addAdapter } = await import('./adapter-add.ts');
    return await addAdapter(context, { ...options, base: options.adapterOf }, input);
  }
  const folder = await folderWithModel(path.resolve(around.directory, input));
  if (folder !== undefined) return addServed(context, options, folder);
  const display = progressDisplay(around.stderr);
  try {
    const signal = AbortSignal.timeout(addTimeoutMs);
    const pinned = await pinModel(input, {
      directory: around.directory,
      modelDirectory: environment.modelDirectory,
      environment,
      signal,
      onProgress: display.show,
    });
    const id = freeModelId(context, options.id ?? pinned.name.toLowerCase());
    const search = searchForGpus(environment);
    const gpus = await search.found();
    refuseWithoutMemory(
      pinned.files.reduce((sum, { bytes }) => sum + bytes, 0),
      gpuRoom(gpus),
    );
    const files = filesOf(pinned, around.directory);
    const { path: file } = await fetchModel(files, { environment, onProgress: display.show, signal });
    display.end();
    const header = await readGgufHeader(file);
    const purpose = purposeOf(header);
    refuseOtherPurpose(header, purpose);
    const contextLength = windowOf(header, purpose, context, gpus);
    const { facts, line } = await probed(file, Math.min(contextLength, probeWindow), purpose, header, {
      gpu: { setting: 'auto', search },
      variables: gpuVariablesIn(environment.childVariables),
    });
    const terms = await termsOf(context, options);
    const entry = { ...entryOf(id, pinned, header, contextLength), ...terms };
    const { written, reloaded } = await writeConfig(context, options.config, (text) => withModel(text, entry));
    const can = promisesOf(header);
    print.result(
      {
        ...{ id, file, bytes: header.fileBytes, context_length: contextLength },
        ...can,
        ...facts,
        ...terms,
        config: written,
        is_in_force: reloaded,
      },
      [
        `${id} · ${bytesInWords(header.fileBytes)} · ${header.architecture} · sha256 ${pinned.files[0]!.sha256}`,
        `window   ${contextLength} tokens${contextLength < (header.contextLength ?? 0) ? `, of ${header.contextLength} that it was trained for: memory has no room for more` : ''}`,
        `can      ${wordsOf(can)}`,
        line,
        `config   ${written}`,
        `terms    ${termsLine(id, terms)}`,
        takenOverLine(reloaded),
      ],
    );
    return 0;
  } catch (error) {
    if (error instanceof NoGgufProblem) return await addServed(context, options, inRepository(error));
    if (error instanceof ModelRefused) throw refused(`The model cannot be used: ${error.message}.`);
    throw error;
  } finally {
    display.end();
  }
}

/** The results of trying the model, for programs and for people. */
async function probed(
  file: string,
  contextLength: number,
  purpose: Purpose,
  { hasChatTemplate }: GgufHeader,
  means: ProbeMeans,
) {
  const rounded = (speed: number): number => Math.round(speed * 10) / 10;
  if (purpose === 'write') {
    const { text, tokensPerSecond } = await probeModel(file, contextLength, hasChatTemplate, means);
    const speed = `${tokensPerSecond.toFixed(1)} tokens a second`;
    return {
      facts: { answer: text, tokens_per_second: rounded(tokensPerSecond) },
      line: `says     ${JSON.stringify(text.slice(0, 100))}, ${speed}`,
    };
  }
  const made = await probeTask(file, contextLength, purpose, means);
  return {
    facts: {
      ...(purpose === 'embed' ? { dimensions: made.dimensions } : {}),
      tokens_per_second: rounded(made.tokensPerSecond),
    },
    line: madeLine(purpose, made),
  };
}

/** `tokenhouse models remove`. The file stays: other models and clones share it. */
export async function removeModel(context: Context, options: Pick<AddOptions, 'config'>, named = ''): Promise<number> {
  const { config, print } = context;
  const found = modelInFile(config, named);
  if (config.models.length === 1)
    throw new OperationError(`${found.id} is the only model, and a service needs one: add another one first.`);
  const { written, reloaded } = await writeConfig(context, options.config, (text) => withoutModel(text, found.id)!);
  print.result({ id: found.id, config: written, is_in_force: reloaded }, [
    `${found.id} is removed from ${written}${reloaded ? ', and from the running service' : ''}. Its file stays.`,
  ]);
  return 0;
}

/** Refuses before gigabytes are fetched for nothing. The file is in memory at least once, or on a GPU. */
function refuseWithoutMemory(bytes: number, onGpus: number): void {
  const free = Math.min(freemem(), process.constrainedMemory() || Infinity) + onGpus;
  if (bytes > free)
    throw refused(
      `The model needs ${bytesInWords(bytes)} of memory for its file alone, and ${bytesInWords(free)} is free.`,
    );
}

const refused = (what: string): CommandFailure =>
  new CommandFailure({
    what: [what],
    why: 'a model that does not fit would end the service, or the machine; nothing was written',
    repair: ['tokenhouse models list', 'choose a smaller model, or a smaller quantization of it'],
    exitCode: exitCodes.refused,
  });

/**
 * The longest window for which two slots fit into memory, the computer's and that of a GPU; throws `ModelRefused` if not even a
 * short one fits.
 */
function windowOf(header: GgufHeader, purpose: Purpose, { config }: Context, gpus: readonly FoundGpu[]): number {
  const { cacheBytesMax } = config.server.limits;
  for (let window = header.contextLength ?? windowMin; ; window = Math.floor(window / 2 / 256) * 256) {
    try {
      const budget = new MemoryBudget({ cacheBytesMax, models: 1 });
      const slots = window > windowMin * 2 ? 2 : 1;
      const needs = memoryNeedsOf(header, { purpose, contextLength: window, slots });
      budget.refuseTooLarge(needsBeside(needs, chooseCompute('auto', gpus, layerNeedsOf(header, needs))));
      return window;
    } catch (error) {
      if (!(error instanceof ModelRefused) || window / 2 < windowMin) throw error;
    }
  }
}

const windowMin = 1024;

function promisesOf(header: GgufHeader) {
  const { chatTemplate } = header;
  const nothing = { chat: false, tools: false, calls: 'unknown', reasoning: false } as const;
  const purpose = purposeOf(header);
  if (purpose === 'embed') return { ...nothing, embeddings: true };
  if (purpose === 'rank') return { ...nothing, rerank: true };
  if (chatTemplate === undefined) return nothing;
  const { thinking, tools } = new ChatTemplate(chatTemplate, { bos: '', eos: '' }).shape;
  return { chat: true, tools: tools === 'own', calls: tools, reasoning: thinking.type !== 'none' };
}

function wordsOf({ chat, calls, reasoning, ...measures }: ReturnType<typeof promisesOf>): string {
  if ('embeddings' in measures) return 'embeddings: /v1/embeddings';
  if ('rerank' in measures) return 'rerank: /v1/rerank';
  return chat
    ? `chat, ${toolWords[calls]}, schemas, ${reasoning ? 'reasoning' : 'no reasoning'}`
    : 'text completions only: the file has no chat template';
}

const toolWords = {
  own: 'tools in its own format',
  described: 'tools in a format that is described to it',
  unknown: 'no tools: how it writes calls is not known',
};

function entryOf(
  id: string,
  { name, files, defaults }: PinnedModel,
  header: GgufHeader,
  contextLength: number,
): ModelEntry {
  const [first, ...parts] = files.map(({ source, sha256, bytes }) => ({ sources: [source], sha256, bytes }));
  const stated = defaultableNames.flatMap((field) => {
    const value = defaults[defaultableFields[field].field];
    return value === undefined ? [] : [[field, value]];
  });
  const capabilities = capabilitiesOf(header);
  return {
    id,
    ...(name === id ? {} : { display_name: name }),
    context_length: contextLength,
    ...(stated.length === 0 || purposeOf(header) !== 'write'
      ? {}
      : { defaults: Object.fromEntries(stated) as Record<string, number> }),
    ...(capabilities === undefined ? {} : { capabilities }),
    backends: [{ engine: 'llama', ...first!, ...(parts.length === 0 ? {} : { parts }) }],
  };
}

/** The capabilities that the configuration has to state because they differ from the defaults. */
function capabilitiesOf(header: GgufHeader): object | undefined {
  const available = { supported: true };
  const unavailable = { supported: false };
  const purpose = purposeOf(header);
  if (purpose !== 'write') return purpose === 'embed' ? { embeddings: available } : { rerank: available };
  const { chat, reasoning, calls } = promisesOf(header);
  if (!chat) return { chat_completions: unavailable, responses: unavailable, messages: unavailable };
  const differing = { ...(reasoning ? { reasoning: true } : {}), ...(calls === 'unknown' ? { tools: false } : {}) };
  return Object.keys(differing).length === 0 ? undefined : differing;
}
