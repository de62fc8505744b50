import { OperationError } from '../accounts/operation.ts';
import { withBackend, withModel } from '../config/edit.ts';
import type { FlavorName } from '../generation/flavor-names.ts';
import type { Engine } from '../inference/engines/engine.ts';
import { flavors } from '../inference/engines/openai/flavors/flavors.ts';
import { createOpenAiEngine } from '../inference/engines/openai/openai-engine.ts';
import { probeBackend, type ProbeResult } from '../inference/engines/openai/probe.ts';
import { ApiError } from '../platform/errors.ts';
import { CommandFailure } from './command-failure.ts';
import type { Context } from './context.ts';
import { exitCodes } from './failure.ts';
import { madeLine, measureTexts, sayHello, takesTools } from './model-probe.ts';
import { termsLine, termsOf, type TermsOptions } from './terms.ts';
import { freeModelId, modelNamed, takenOverLine, writeConfig } from './write-config.ts';

interface BackendOptions extends TermsOptions {
  readonly model?: string;
  readonly id?: string;
  readonly name?: string;
  readonly flavor?: FlavorName;
  readonly contextLength?: number;
  readonly apiKeyEnv?: string;
  readonly config?: string;
}

/**
 * `tokenhouse backends add`: finds out what a server is and serves, tests it with a request, and writes it into the configuration:
 * as a model, or as another backend of an existing one. Nothing is written before all of that has worked.
 */
export async function addBackend(context: Context, options: BackendOptions, input = ''): Promise<number> {
  const { environment, print } = context;
  const { apiKeyEnv } = options;
  const apiKey = apiKeyEnv === undefined ? undefined : environment.variable(apiKeyEnv);
  if (apiKeyEnv !== undefined && apiKey === undefined)
    throw new OperationError(`The environment variable ${apiKeyEnv} is not set.`);
  const { url, result } = await serverAt(input, apiKey);
  const model = modelMeant(result, options.model);
  const flavor = options.flavor ?? result.looksLike ?? 'openai';
  const wantedId = options.id ?? nameOf(model);
  const existing = context.config.file === undefined ? undefined : modelNamed(context.config, wantedId);
  const id = existing?.id ?? freeModelId(context, wantedId);
  const contextLength = existing?.contextLength ?? options.contextLength ?? result.windows.get(model);
  if (contextLength === undefined)
    throw new OperationError(
      `The server does not say how long the window of ${model} is. Name it in tokens with --context-length.`,
    );
  const shown = await askServer({ id, url, flavor, model, apiKey });
  if (existing !== undefined && kindOf(existing.capabilities) !== kindOf(shown.capabilities))
    throw new OperationError(`The server has ${kindOf(shown.capabilities)}, which is not what ${id} has.`);
  const backend = {
    engine: 'openai',
    ...(options.name === undefined ? {} : { name: options.name }),
    flavor,
    url,
    ...(model === id ? {} : { model }),
    ...(apiKeyEnv === undefined ? {} : { api_key_env: apiKeyEnv }),
  };
  const terms = await termsOf(context, options);
  const { written, reloaded } = await writeConfig(context, options.config, (text) =>
    existing === undefined
      ? withModel(text, {
          id,
          context_length: contextLength,
          ...terms,
          ...(Object.keys(shown.capabilities).length === 0 ? {} : { capabilities: shown.capabilities }),
          backends: [backend],
        })
      : (withBackend(text, id, backend) ?? notAList(id)),
  );
  print.result(
    {
      ...{ id, flavor, url, model, context_length: contextLength },
      ...shown.facts,
      ...(existing === undefined ? terms : {}),
      ...{ config: written, is_in_force: reloaded },
    },
    [
      `${id} · ${flavor} · ${url}${model === id ? '' : ` · ${model} there`}`,
      `window   ${contextLength} tokens`,
      ...shown.lines,
      existing === undefined
        ? `config   ${written}`
        : `config   ${written}, beside ${existing.backends.map(({ name }) => name).join(', ')}`,
      ...(existing === undefined ? [`terms    ${termsLine(id, terms)}`] : []),
      takenOverLine(reloaded),
    ],
  );
  return 0;
}

/** Adds the scheme and the version path that people leave out, if the server has its models there. */
async function serverAt(
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
  throw refused(first?.problem ?? '', `curl -i ${candidates.at(-1)}/models`);
}

function urlOf(input: string): string {
  const given = /^[a-z][a-z0-9+.-]*:\/\//i.test(input) ? input : `http://${input}`;
  const url = URL.canParse(given) ? new URL(given) : undefined;
  if (url === undefined || !/^https?:$/.test(url.protocol) || url.username !== '' || url.search !== '')
    throw new OperationError(
      `'${input}' is not the address of a server: write it as http://10.0.0.5:8000/v1, a key for it with --api-key-env.`,
    );
  return `${url.origin}${url.pathname.replace(/\/+$/, '')}`;
}

function modelMeant({ models }: ProbeResult, named: string | undefined): string {
  const [first, ...others] = models;
  if (named !== undefined) {
    if (models.length === 0 || models.includes(named)) return named;
    throw new OperationError(`The server has no model ${named}. It has: ${models.slice(0, 20).join(', ')}.`);
  }
  if (first === undefined) throw new OperationError('The server does not list its models: name one with --model.');
  if (others.length > 0)
    throw new OperationError(
      `The server has several models: name one with --model. It has: ${models.slice(0, 20).join(', ')}.`,
    );
  return first;
}

/** Some servers call a model by the path of its file. */
const nameOf = (model: string): string =>
  /^[./]|\.gguf$/.test(model)
    ? model
        .replace(/^.*\//, '')
        .replace(/\.gguf$/, '')
        .toLowerCase()
    : model;

/** What was found out about a server: for programs, for people, and for the card. */
interface Shown {
  readonly facts: Readonly<Record<string, unknown>>;
  readonly lines: readonly string[];
  /** Only what differs from the defaults. */
  readonly capabilities: Measuring & { readonly tools?: false; readonly reasoning?: true };
}

interface Measuring {
  readonly embeddings?: { readonly supported: boolean };
  readonly rerank?: { readonly supported: boolean };
}

/** A model either writes, embeds, or ranks. */
const kindOf = ({ embeddings, rerank }: Measuring): string =>
  embeddings?.supported === true ? 'embeddings' : rerank?.supported === true ? 'rerank' : 'a chat';

/** Tests it with a request of the kind it will get: a chat, or if it has none, embeddings or a ranking. */
async function askServer(server: {
  readonly id: string;
  readonly url: string;
  readonly flavor: FlavorName;
  readonly model: string;
  readonly apiKey: string | undefined;
}): Promise<Shown> {
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
    throw refused(
      `The server lists ${model}, but does not answer a chat: ${error.message}`,
      `curl -i ${url}/chat/completions -H 'content-type: application/json' -d '{"model":"${model}","messages":[{"role":"user","content":"hi"}]}'`,
    );
  } finally {
    await engine.close();
  }
}

const rounded = (speed: number): number => Math.round(speed * 10) / 10;

async function chatOf(engine: Engine): Promise<Shown> {
  const { text, reasons, tokensPerSecond } = await sayHello(engine);
  const tools = await takesTools(engine);
  return {
    facts: { tools, reasoning: reasons, answer: text, tokens_per_second: rounded(tokensPerSecond) },
    lines: [
      `can      chat, ${tools ? 'tools' : 'no tools: the server refuses them, which for vLLM and SGLang is a matter of their flags'}, ${reasons ? 'reasoning' : 'no reasoning'}`,
      `says     ${JSON.stringify(text.slice(0, 100))}, ${tokensPerSecond.toFixed(1)} tokens a second`,
    ],
    capabilities: { ...(tools ? {} : { tools: false }), ...(reasons ? { reasoning: true } : {}) },
  };
}

const flags = { embed: 'embeddings', rank: 'rerank' } as const;

/** Measures the first of these that the server supports. */
async function measuresOf(engine: Engine, purposes: readonly (keyof typeof flags)[]): Promise<Shown | undefined> {
  for (const purpose of purposes) {
    const flag = flags[purpose];
    try {
      const made = await measureTexts(engine, purpose);
      return {
        facts: {
          [flag]: true,
          ...(purpose === 'embed' ? { dimensions: made.dimensions } : {}),
          tokens_per_second: rounded(made.tokensPerSecond),
        },
        lines: [`can      ${flag}: /v1/${flag}`, madeLine(purpose, made)],
        capabilities: { [flag]: { supported: true } },
      };
    } catch (error) {
      if (!(error instanceof ApiError)) throw error;
    }
  }
  return undefined;
}

/** A YAML alias, for example, whose target may also be used elsewhere. */
function notAList(id: string): never {
  throw new OperationError(`The backends of ${id} are not written as a list of their own: add the server by hand.`);
}

const refused = (what: string, repair: string): CommandFailure =>
  new CommandFailure({
    what: [what],
    why: 'requests to it would fail; nothing was written',
    repair: [repair],
    exitCode: exitCodes.refused,
  });
