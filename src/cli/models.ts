import { OperationError } from '../accounts/operation.ts';
import { fetchModelFile } from '../inference/model-files/fetch-model-file.ts';
import { progressDisplay } from '../inference/model-files/progress.ts';
import { pinHubFile } from '../inference/model-files/pin.ts';
import { parseSource } from '../config/model-source.ts';
import type { ModelFileSource } from '../config/model-source.ts';
import type { Context } from './context.ts';
import { table } from './output.ts';

export async function listModels(context: Context): Promise<number> {
  const { models } = context.config;
  context.print.result(
    models.map((model) => ({
      id: model.id,
      display_name: model.displayName,
      context_length: model.contextLength,
      max_output_tokens: model.maxOutputTokens,
      backends: model.backends.map((backend) => ({ engine: backend.engine, name: backend.name })),
    })),
    table(
      ['id', 'context', 'output', 'backends'],
      models.map((model) => [
        model.id,
        model.contextLength,
        model.maxOutputTokens ?? 'window',
        model.backends.map((backend) => backend.name).join(', '),
      ]),
    ),
  );
  return 0;
}

interface Wanted {
  readonly name: string;
  readonly sources: readonly ModelFileSource[];
  readonly sha256: string;
  readonly bytes: number | undefined;
}

/** Fetches what is missing; several files one after the other. */
export async function pullModel(
  context: Context,
  options: { readonly sha256?: string },
  input?: string,
): Promise<number> {
  const wanted = await wantedFiles(context, input, options.sha256);
  const pulled: { name: string; path: string; source: string; already_there: boolean }[] = [];
  for (const file of wanted) {
    const display = progressDisplay(context.around.stderr);
    try {
      const { path, source, alreadyThere } = await fetchModelFile({
        sources: file.sources,
        sha256: file.sha256,
        bytes: file.bytes,
        directory: context.environment.modelDirectory,
        environment: context.environment,
        onProgress: display.show,
      });
      pulled.push({ name: file.name, path, source, already_there: alreadyThere });
    } finally {
      display.end();
    }
  }
  context.print.result(
    pulled,
    pulled.map(
      ({ name, path, source, already_there }) =>
        `${name}: ${path} (${already_there ? 'already there' : `from ${source}`})`,
    ),
  );
  return 0;
}

async function wantedFiles(
  { around, config, environment, print }: Context,
  input: string | undefined,
  sha256: string | undefined,
): Promise<readonly Wanted[]> {
  const configured = config.models.flatMap((model) =>
    model.backends.flatMap((backend) =>
      backend.engine === 'llama'
        ? [{ name: model.id, sources: backend.sources, sha256: backend.sha256, bytes: backend.bytes }]
        : [],
    ),
  );
  if (input === undefined) return configured;
  const named = configured.filter((file) => file.name.toLowerCase() === input.toLowerCase());
  if (named.length > 0) return named;
  const source = parseSource(input, around.directory);
  if ('problem' in source) {
    throw new OperationError(`'${input}' is neither a configured model with a file nor a source: ${source.problem}`);
  }
  if (sha256 !== undefined) {
    if (!/^[0-9a-f]{64}$/i.test(sha256)) throw new OperationError('--sha256 must be 64 hex digits.');
    return [{ name: input, sources: [source], sha256: sha256.toLowerCase(), bytes: undefined }];
  }
  if (source.type !== 'hub-file' && source.type !== 'hub-quantization') {
    throw new OperationError('This source publishes no hash: give --sha256 with the 64 hex digits of the file.');
  }
  const pinned = await pinHubFile(source, environment, AbortSignal.timeout(pinTimeoutMs));
  print.say(`${pinned.name} · sha256 ${pinned.sha256}, as published by the hub; put it into tokenhouse.yaml`);
  return [{ name: input, sources: [source], sha256: pinned.sha256, bytes: pinned.bytes }];
}

const pinTimeoutMs = 60_000;
