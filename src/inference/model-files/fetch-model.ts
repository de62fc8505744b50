import path from 'node:path';
import type { LlamaBackendConfig } from '../../config/config.ts';
import { fetchModelFile, type FetchedModelFile, type FetchOptions } from './fetch-model-file.ts';
import { SourceProblem } from './problem.ts';

/** The files of a model, as configured. */
export type ModelFiles = Pick<LlamaBackendConfig, 'sources' | 'sha256' | 'bytes' | 'parts'> &
  Partial<Pick<LlamaBackendConfig, 'adapter'>>;

/**
 * Returns the folder of a model's files. The parts of a split model find each other by their names, which other models may have too, so
 * each such model has a separate folder, named by the first file's hash.
 */
export const folderOf = ({ sha256, parts }: Pick<ModelFiles, 'sha256' | 'parts'>, modelDirectory: string): string =>
  parts.length === 0 ? modelDirectory : path.join(modelDirectory, sha256.slice(0, 16));

export type FetchedModel = FetchedModelFile & { readonly adapterPath: string | undefined };

/**
 * Fetches all files of a model, one after the other; resolves with the first, and where that of its adapter is. Throws like
 * `fetchModelFile`.
 */
export async function fetchModel(
  files: ModelFiles,
  options: Pick<FetchOptions, 'environment' | 'onProgress' | 'signal' | 'limits'> & {
    readonly environment: { readonly modelDirectory: string };
  },
): Promise<FetchedModel> {
  const directory = folderOf(files, options.environment.modelDirectory);
  const first = await fetchModelFile({ ...options, ...files, directory });
  const count = files.parts.length + 1;
  for (const [index, part] of files.parts.entries()) {
    const { path: found } = await fetchModelFile({ ...options, ...part, directory });
    const expected = partPath(first.path, index + 2, count);
    if (found !== expected)
      throw new SourceProblem(`part ${index + 2} of ${count} is ${found}, and llama.cpp looks for it at ${expected}`);
  }
  const { modelDirectory } = options.environment;
  const adapter =
    files.adapter === undefined
      ? undefined
      : await fetchModelFile({ ...options, ...files.adapter, directory: modelDirectory });
  return { ...first, adapterPath: adapter?.path };
}

/** Returns where llama.cpp looks for a part. */
function partPath(first: string, part: number, count: number): string {
  const number = (of: number): string => String(of).padStart(5, '0');
  return first.replace(/-\d{5}-of-\d{5}\.gguf$/i, `-${number(part)}-of-${number(count)}.gguf`);
}
