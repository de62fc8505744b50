import type { FlavorName } from '../generation/flavor-names.ts';
import type { Engine } from '../inference/engines/engine.ts';
import { flavors } from '../inference/engines/openai/flavors/flavors.ts';
import { createOpenAiEngine } from '../inference/engines/openai/openai-engine.ts';
import { probeBackend, type ProbeResult } from '../inference/engines/openai/probe.ts';
import { ApiError } from '../platform/errors.ts';
import { measureTexts, sayHello, takesTools, type Probe, type TaskProbe } from './ask-engine.ts';

/** A server that cannot be a backend; nothing was written. */
export class ServerRefused extends Error {
  override readonly name = 'ServerRefused';
  /** The command with which somebody sees for himself; undefined: the address itself is wrong. */
  readonly repair: string | undefined;

  constructor(message: string, repair?: string) {
    super(message);
    this.repair = repair;
  }
}

/** Adds the scheme and the version path that people leave out, if the server has its models there. */
export async function serverAt(
  input: string,
  apiKey: string | undefined,
): Promise<{ readonly url: string; readonly result: ProbeResult }> {
  const given = urlOf(input);
  const signal = AbortSignal.timeout(60_000);
  const candidates = /\/v\d+$/.test(given) ? [given] : [given, `${given}/v1`];
  let first: ProbeResult | undefined;
  for (const url of candidates) {
    const result = await probeBackend({ url, apiKey, signal });
    if (result.problem === undefined) return { url, result };
    first ??= result;
    // A server that cannot be reached is not reachable under another path either.
    if (!result.isUsable) break;
  }
  throw new ServerRefused(first?.problem ?? '', `curl -i ${candidates.at(-1)}/models`);
}

function urlOf(input: string): string {
  const given = /^[a-z][a-z0-9+.-]*:\/\//i.test(input) ? input : `http://${input}`;
  const url = URL.canParse(given) ? new URL(given) : undefined;
  if (url === undefined || !/^https?:$/.test(url.protocol) || url.username !== '' || url.search !== '')
    throw new ServerRefused(
      `'${input.slice(0, 200)}' is not the address of a server: write it as http://10.0.0.5:8000/v1, without a key.`,
    );
  return `${url.origin}${url.pathname.replace(/\/+$/, '')}`;
}

/** What a server does with requests, found by sending it some. */
export type ServerFindings =
  | ({ readonly kind: 'chat'; readonly tools: boolean } & Probe)
  | ({ readonly kind: 'embeddings' | 'rerank' } & TaskProbe);

/** Tests it with a request of the kind it will get: a chat, or if it has none, embeddings or a ranking. */
export async function askServer(server: {
  readonly id: string;
  readonly url: string;
  readonly flavor: FlavorName;
  readonly model: string;
  readonly apiKey: string | undefined;
}): Promise<ServerFindings> {
  const { id, url, flavor, model, apiKey } = server;
  const engine = createOpenAiEngine({ name: id, url, flavor, model, ...(apiKey === undefined ? {} : { apiKey }) });
  const { byFlag = false } = flavors[flavor].tasks;
  try {
    return (byFlag ? await measuresOf(engine, ['rank', 'embed']) : undefined) ?? (await chatOf(engine));
  } catch (error) {
    if (!(error instanceof ApiError)) throw error;
    // A 404: it has the model, so the route is missing. Embeddings first: a server that has them may also rank by them, which is
    // not what its model is for.
    const measures = error.code === 'no_healthy_backends' ? await measuresOf(engine, ['embed', 'rank']) : undefined;
    if (measures !== undefined) return measures;
    throw new ServerRefused(
      `The server lists ${model}, but does not answer a chat: ${error.message}`,
      `curl -i ${url}/chat/completions -H 'content-type: application/json' -d '{"model":"${model}","messages":[{"role":"user","content":"hi"}]}'`,
    );
  } finally {
    await engine.close();
  }
}

const chatOf = async (engine: Engine): Promise<ServerFindings> => ({
  kind: 'chat',
  ...(await sayHello(engine)),
  tools: await takesTools(engine),
});

const kinds = { embed: 'embeddings', rank: 'rerank' } as const;

/** Measures the first of these that the server supports. */
async function measuresOf(
  engine: Engine,
  purposes: readonly (keyof typeof kinds)[],
): Promise<ServerFindings | undefined> {
  for (const purpose of purposes) {
    try {
      return { kind: kinds[purpose], ...(await measureTexts(engine, purpose)) };
    } catch (error) {
      if (!(error instanceof ApiError)) throw error;
    }
  }
  return undefined;
}

/** What the card of a new model has to say: only what differs from the defaults. */
export function capabilitiesFound(found: ServerFindings): FoundCapabilities {
  if (found.kind !== 'chat') return { [found.kind]: { supported: true } };
  return { ...(found.tools ? {} : { tools: false }), ...(found.reasons ? { reasoning: true } : {}) };
}

export interface FoundCapabilities {
  readonly tools?: false;
  readonly reasoning?: true;
  readonly embeddings?: { readonly supported: boolean };
  readonly rerank?: { readonly supported: boolean };
}
