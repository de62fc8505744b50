import { OperationError } from '../accounts/operation.ts';
import type { LlamaBackendConfig } from '../config/config.ts';
import { withEntry } from '../config/edit.ts';
import { checkGgufAdapter, readGgufHeader } from '../inference/engines/llama/gguf-header.ts';
import { ModelRefused } from '../inference/engines/llama/model-refused.ts';
import { fetchModel, type FetchedModel } from '../inference/model-files/fetch-model.ts';
import { pinModel } from '../inference/model-files/pin-model.ts';
import { progressDisplay } from '../inference/model-files/progress.ts';
import { bytesInWords } from './amount.ts';
import type { Context } from './context.ts';
import { probeModel } from './model-probe.ts';
import type { WrittenPrices } from './option.ts';
import { addTimeoutMs, filesOf, probeWindow } from './pinned-files.ts';
import { nothing } from './terms.ts';
import { changedInFile, freeModelId, modelInFile, takenOverLine, writeConfig } from './write-config.ts';

interface AdapterOptions {
  readonly base: string;
  readonly id?: string;
  readonly price?: WrittenPrices;
  readonly free?: boolean;
  readonly config?: string;
}

/**
 * `tokenhouse models add --adapter-of`: pins a LoRA for an embedded model, fetches and checks it, lets the model answer with it, and
 * writes it at its base. Without a price it costs what the base costs, for the same accounts.
 */
export async function addAdapter(context: Context, { base, ...options }: AdapterOptions, input: string) {
  const { around, environment, print } = context;
  const price = options.free === true ? nothing : options.price;
  const model = modelInFile(context.config, base);
  const backend = model.backends.find((each): each is LlamaBackendConfig => each.engine === 'llama');
  if (backend === undefined || model.adapterOf !== undefined)
    throw new OperationError(`${model.id} is not an embedded model; adapters on servers are written in the file.`);
  const display = progressDisplay(around.stderr);
  try {
    const signal = AbortSignal.timeout(addTimeoutMs);
    const fetching = { environment, onProgress: display.show, signal };
    const { directory } = around;
    const pinned = await pinModel(input, { ...fetching, directory, modelDirectory: environment.modelDirectory });
    const [file, ...further] = pinned.files;
    if (file === undefined || further.length > 0) throw new OperationError('An adapter is one file.');
    const id = freeModelId(context, options.id ?? pinned.name.toLowerCase());
    const { parts: _, ...wanted } = filesOf(pinned, directory);
    const fetched = await fetchModel({ ...backend, adapter: { ...wanted, scale: 1 } }, fetching);
    display.end();
    const { text, tokensPerSecond } = await answerOf(fetched, model.contextLength);
    const entry = {
      id,
      file: { sources: [file.source], sha256: file.sha256, bytes: file.bytes },
      ...(price === undefined ? {} : { pricing: price }),
    };
    const { written, reloaded } = await writeConfig(context, options.config, (before) =>
      changedInFile(withEntry(before, model.id, 'adapters', entry), model.id),
    );
    print.result({ ...entry, adapter_of: model.id, answer: text, config: written, is_in_force: reloaded }, [
      `${id} · adapter of ${model.id} · ${bytesInWords(file.bytes)} · sha256 ${file.sha256}`,
      `says     ${JSON.stringify(text.slice(0, 100))}, ${tokensPerSecond.toFixed(1)} tokens a second`,
      `config   ${written}`,
      `terms    ${price === undefined ? `those of ${model.id}` : `$${price.input_dollars_per_million} / $${price.output_dollars_per_million} per million tokens`}`,
      takenOverLine(reloaded),
    ]);
    return 0;
  } catch (error) {
    if (error instanceof ModelRefused) throw new OperationError(`The adapter cannot be used: ${error.message}.`);
    throw error;
  } finally {
    display.end();
  }
}

async function answerOf({ path, adapterPath }: FetchedModel, contextLength: number) {
  const header = await readGgufHeader(path);
  await checkGgufAdapter(adapterPath!, header);
  const adapter = Promise.resolve({ file: adapterPath!, scale: 1 });
  return await probeModel(path, Math.min(contextLength, probeWindow), header.hasChatTemplate, { adapter });
}
