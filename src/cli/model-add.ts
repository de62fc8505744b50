import { freemem } from 'node:os';

import { OperationError } from '../accounts/operation.ts';
import { withModel, withoutModel, type ModelEntry } from '../config/edit.ts';
import { defaultableFields, defaultableNames } from '../generation/sampling-defaults.ts';
import { readGgufHeader, type GgufHeader } from '../inference/engines/llama/gguf-header.ts';
import { MemoryBudget } from '../inference/engines/llama/memory-budget.ts';
import { ModelRefused } from '../inference/engines/llama/model-refused.ts';
import { fetchModel } from '../inference/model-files/fetch-model.ts';
import { pinModel, type PinnedModel } from '../inference/model-files/pin-model.ts';
import { progressDisplay } from '../inference/model-files/progress.ts';
import { parseSource } from '../config/model-source.ts';
import { outputShape } from '../inference/output-parsers/shape.ts';
import { CommandFailure } from './command-failure.ts';
import type { Context } from './context.ts';
import { exitCodes } from './failure.ts';
import { bytesInWords } from './amount.ts';
import { freeModelId, modelNamed, takenOverLine, writeConfig } from './write-config.ts';
import { probeModel } from './model-probe.ts';

interface AddOptions {
  readonly id?: string;
  readonly config?: string;
}

/**
 * `tokenhouse models add`: pins what is named, fetches and checks it, lets it say something, and writes it into the configuration, which
 * a running service takes over. Nothing is written before all of that has worked.
 */
export async function addModel(context: Context, options: AddOptions, input = ''): Promise<number> {
  const { around, environment, print } = context;
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
    refuseWithoutMemory(pinned.files.reduce((sum, { bytes }) => sum + bytes, 0));
    const files = filesOf(pinned, around.directory);
    const { path: file } = await fetchModel(files, { environment, onProgress: display.show, signal });
    display.end();
    const header = await readGgufHeader(file);
    const contextLength = windowOf(header, context);
    const probe = await probeModel(file, Math.min(contextLength, probeWindow), header.hasChatTemplate);
    const entry = entryOf(id, pinned, header, contextLength);
    const { written, reloaded } = await writeConfig(context, options.config, (text) => withModel(text, entry));
    const can = promisesOf(header);
    print.result(
      {
        id,
        file,
        bytes: header.fileBytes,
        context_length: contextLength,
        ...can,
        answer: probe.text,
        tokens_per_second: Math.round(probe.tokensPerSecond * 10) / 10,
        config: written,
        is_in_force: reloaded,
      },
      [
        `${id} · ${bytesInWords(header.fileBytes)} · ${header.architecture} · sha256 ${pinned.files[0]!.sha256}`,
        `window   ${contextLength} tokens${contextLength < (header.contextLength ?? 0) ? `, of ${header.contextLength} that it was trained for: memory has no room for more` : ''}`,
        `can      ${wordsOf(can)}`,
        `says     ${JSON.stringify(probe.text.slice(0, 100))}, ${probe.tokensPerSecond.toFixed(1)} tokens a second`,
        `config   ${written}, price 0`,
        takenOverLine(reloaded),
      ],
    );
    return 0;
  } catch (error) {
    if (error instanceof ModelRefused) throw refused(`The model cannot be used: ${error.message}.`);
    throw error;
  } finally {
    display.end();
  }
}

/** `tokenhouse models remove`. The file stays: other models and clones share it. */
export async function removeModel(context: Context, options: Pick<AddOptions, 'config'>, named = ''): Promise<number> {
  const { config, print } = context;
  const found = modelNamed(config, named);
  if (found === undefined || config.file === undefined)
    throw new OperationError(
      `No configuration file names the model ${named}. List models with: tokenhouse models list`,
    );
  if (config.models.length === 1)
    throw new OperationError(`${found.id} is the only model, and a service needs one: add another one first.`);
  const { written, reloaded } = await writeConfig(context, options.config, (text) => withoutModel(text, found.id)!);
  print.result({ id: found.id, config: written, is_in_force: reloaded }, [
    `${found.id} is removed from ${written}${reloaded ? ', and from the running service' : ''}. Its file stays.`,
  ]);
  return 0;
}

const addTimeoutMs = 24 * 3_600_000;
const probeWindow = 1024;

/** Before gigabytes are fetched for nothing. The file is in memory once at least. */
function refuseWithoutMemory(bytes: number): void {
  const free = Math.min(freemem(), process.constrainedMemory() || Infinity);
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

/** As the configuration would have them. */
function filesOf({ files }: PinnedModel, directory: string) {
  const [first, ...parts] = files.map(({ source, sha256, bytes }) => {
    const parsed = parseSource(source, directory);
    if ('problem' in parsed) throw new Error(parsed.problem);
    return { sources: [parsed], sha256, bytes };
  });
  return { ...first!, parts };
}

/** The longest window of which two slots fit into memory; throws `ModelRefused` when not even a short one does. */
function windowOf({ contextLength = windowMin, ...needs }: GgufHeader, { config }: Context): number {
  const { cacheBytesMax } = config.server.limits;
  for (let window = contextLength; ; window = Math.floor(window / 2 / 256) * 256) {
    try {
      const budget = new MemoryBudget({ cacheBytesMax, models: 1 });
      budget.claim({ ...needs, contextLength: window, slots: window > windowMin * 2 ? 2 : 1 }).release();
      return window;
    } catch (error) {
      if (!(error instanceof ModelRefused) || window / 2 < windowMin) throw error;
    }
  }
}

const windowMin = 1024;

function promisesOf({ chatTemplate }: GgufHeader) {
  if (chatTemplate === undefined) return { chat: false, tools: false, reasoning: false };
  const { thinking, rendersTools } = outputShape(chatTemplate);
  return { chat: true, tools: rendersTools, reasoning: thinking.type !== 'none' };
}

const wordsOf = ({ chat, tools, reasoning }: ReturnType<typeof promisesOf>): string =>
  chat
    ? `chat, tools ${tools ? 'in its own format' : 'in a format that is described to it'}, schemas, ${reasoning ? 'reasoning' : 'no reasoning'}`
    : 'text completions only: the file has no chat template';

function entryOf(
  id: string,
  { name, files, defaults }: PinnedModel,
  header: GgufHeader,
  contextLength: number,
): ModelEntry {
  const { chat, reasoning } = promisesOf(header);
  const [first, ...parts] = files.map(({ source, sha256, bytes }) => ({ sources: [source], sha256, bytes }));
  const stated = defaultableNames.flatMap((field) => {
    const value = defaults[defaultableFields[field].field];
    return value === undefined ? [] : [[field, value]];
  });
  const unavailable = { supported: false };
  return {
    id,
    ...(name === id ? {} : { display_name: name }),
    context_length: contextLength,
    pricing: { input_dollars_per_million: 0, output_dollars_per_million: 0 },
    ...(stated.length === 0 ? {} : { defaults: Object.fromEntries(stated) as Record<string, number> }),
    ...(reasoning ? { capabilities: { reasoning: true } } : {}),
    ...(chat ? {} : { capabilities: { chat_completions: unavailable, responses: unavailable, messages: unavailable } }),
    backends: [{ engine: 'llama', ...first!, ...(parts.length === 0 ? {} : { parts }) }],
  };
}
