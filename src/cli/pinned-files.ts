/** What the commands that add a model or an adapter do with its files. */
import { parseSource } from '../config/model-source.ts';
import type { PinnedModel } from '../inference/model-files/pin-model.ts';

export const addTimeoutMs = 24 * 3_600_000;
/** The longest window, in tokens, that a model is tried with. */
export const probeWindow = 1024;

/** The files as the configuration would list them. */
export function filesOf({ files }: PinnedModel, directory: string) {
  const [first, ...parts] = files.map(({ source, sha256, bytes }) => {
    const parsed = parseSource(source, directory);
    if ('problem' in parsed) throw new Error(parsed.problem);
    return { sources: [parsed], sha256, bytes };
  });
  return { ...first!, parts };
}
