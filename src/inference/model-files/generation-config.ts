import { open } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { samplingDefaultsIn, type SamplingDefaults } from '../../generation/sampling-defaults.ts';

const bytesMax = 65_536;

/**
 * Returns the sampling defaults in the `generation_config.json` beside a model file; empty if there is no such file, or if it is not a JSON
 * object. The field names are those of Hugging Face transformers (`GenerationConfig`).
 */
export async function generationConfigBeside(modelFile: string): Promise<SamplingDefaults> {
  const text = await beginningOf(join(dirname(modelFile), 'generation_config.json'));
  return text === undefined ? {} : generationConfig(text);
}

/** Returns the sampling defaults in the text of such a file. */
export function generationConfig(text: string): SamplingDefaults {
  try {
    const config: unknown = JSON.parse(text);
    if (typeof config !== 'object' || config === null) return {};
    return samplingDefaultsIn((name) => (config as Readonly<Record<string, unknown>>)[name]);
  } catch {
    return {};
  }
}

async function beginningOf(path: string): Promise<string | undefined> {
  const file = await open(path, 'r').catch(() => undefined);
  if (file === undefined) return undefined;
  try {
    const { bytesRead, buffer } = await file.read(Buffer.alloc(bytesMax), 0, bytesMax, 0);
    return buffer.toString('utf8', 0, bytesRead);
  } catch {
    return undefined;
  } finally {
    await file.close();
  }
}
