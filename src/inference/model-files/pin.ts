import type { FetchEnvironment } from './fetch-model-file.ts';
import { openHttp } from './http.ts';
import { hubEndpoints, statedHubFile, type HubSource } from './hub.ts';
import { defaultFetchLimits, type FetchLimits } from './download-limits.ts';
import { inWords, SourceProblem } from './problem.ts';

export interface PinnedFile {
  readonly name: string;
  readonly sha256: string;
  readonly bytes: number | undefined;
}

/**
 * Asks a hub for the hash of a file, for users who name a model by its repository and do not know its hash. From then on the hash is what
 * counts, wherever the bytes come from. Throws `SourceProblem`.
 */
export async function pinHubFile(
  source: HubSource,
  environment: FetchEnvironment,
  signal: AbortSignal,
  limits: FetchLimits = defaultFetchLimits,
): Promise<PinnedFile> {
  const http = openHttp(environment.proxy, limits);
  const problems: string[] = [];
  try {
    for (const endpoint of hubEndpoints(environment.hub.endpoint)) {
      try {
        const { name, sha256, bytes } = await statedHubFile(source, {
          http,
          endpoint,
          token: environment.hub.token?.reveal(),
          signal,
        });
        if (sha256 === undefined) throw new SourceProblem(`${new URL(endpoint).host} publishes no sha256 of ${name}`);
        return { name, sha256, bytes };
      } catch (error) {
        signal.throwIfAborted();
        problems.push(inWords(error));
      }
    }
    throw new SourceProblem(problems.join('; then: '));
  } finally {
    await http.close();
  }
}
