import { OperationError } from '../accounts/operation.ts';
import { askServer, capabilitiesFound, serverAt, ServerRefused, type ServerFindings } from '../app/server-probe.ts';
import { withEntry, withModel } from '../config/edit.ts';
import type { ModelConfig } from '../config/config.ts';
import type { FlavorName } from '../generation/flavor-names.ts';
import type { ProbeResult } from '../inference/engines/openai/probe.ts';
import { CommandFailure } from './command-failure.ts';
import type { Context } from './context.ts';
import { exitCodes } from './failure.ts';
import { madeLine } from './model-probe.ts';
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
  const { url, result } = await askedFor(serverAt(input, apiKey));
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
  const found = await askedFor(askServer({ id, url, flavor, model, apiKey }));
  const capabilities = capabilitiesFound(found);
  if (existing !== undefined && kindOf(existing.capabilities) !== found.kind)
    throw new OperationError(`The server has ${kindWords(found.kind)}, which is not what ${id} has.`);
  const backend = {
    engine: 'openai',
    ...(options.name === undefined ? {} : { name: options.name }),
    flavor,
    url,
    ...(model === id ? {} : { model }),
    ...(apiKeyEnv === undefined ? {} : { api_key_env: apiKeyEnv }),
  };
  const adapters = adaptersOf(result, model);
  const terms = await termsOf(context, options);
  const { written, reloaded } = await writeConfig(context, options.config, (text) =>
    existing === undefined
      ? withModel(text, {
          id,
          context_length: contextLength,
          ...terms,
          ...(Object.keys(capabilities).length === 0 ? {} : { capabilities }),
          backends: [backend],
        })
      : (withEntry(text, id, 'backends', backend) ?? notAList(id)),
  );
  print.result(
    {
      ...{ id, flavor, url, model, context_length: contextLength },
      ...(adapters.length === 0 ? {} : { adapters }),
      ...factsOf(found),
      ...(existing === undefined ? terms : {}),
      ...{ config: written, is_in_force: reloaded },
    },
    [
      `${id} · ${flavor} · ${url}${model === id ? '' : ` · ${model} there`}`,
      `window   ${contextLength} tokens`,
      ...linesOf(found),
      ...(adapters.length === 0
        ? []
        : [`adapters ${adapters.map(inFileWords).join(', ')}: each can be sold, under adapters of ${id} in the file`]),
      existing === undefined
        ? `config   ${written}`
        : `config   ${written}, beside ${existing.backends.map(({ name }) => name).join(', ')}`,
      ...(existing === undefined ? [`terms    ${termsLine(id, terms)}`] : []),
      takenOverLine(reloaded),
    ],
  );
  return 0;
}

function modelMeant({ models, adapters }: ProbeResult, named: string | undefined): string {
  const of = adapters.find(({ name, parent }) => name === named && parent !== undefined)?.parent;
  if (of !== undefined)
    throw new OperationError(
      `${named} is an adapter of ${of}: add that model, and write the adapter under its adapters.`,
    );
  const [first, ...others] = models.filter((id) => !adapters.some(({ name, parent }) => name === id && parent));
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

/** In the names of the file. */
const adaptersOf = ({ adapters }: ProbeResult, model: string) =>
  adapters
    .filter(({ parent }) => parent === undefined || parent === model)
    .map(({ name, loraId }) => (loraId === undefined ? { adapter: name } : { adapter: name, lora_id: loraId }));

const inFileWords = ({ adapter, lora_id: loraId }: ReturnType<typeof adaptersOf>[number]): string =>
  loraId === undefined ? adapter : `${adapter} (lora_id ${loraId})`;

/** Some servers call a model by the path of its file. */
const nameOf = (model: string): string =>
  /^[./]|\.gguf$/.test(model)
    ? model
        .replace(/^.*\//, '')
        .replace(/\.gguf$/, '')
        .toLowerCase()
    : model;

/** A model either writes, embeds, or ranks. */
const kindOf = ({ embeddings, rerank }: ModelConfig['capabilities']): string =>
  embeddings.supported ? 'embeddings' : rerank.supported ? 'rerank' : 'chat';

const kindWords = (kind: string): string => (kind === 'chat' ? 'a chat' : kind);

const rounded = (speed: number): number => Math.round(speed * 10) / 10;

/** For programs. */
function factsOf(found: ServerFindings): Readonly<Record<string, unknown>> {
  const speed = { tokens_per_second: rounded(found.tokensPerSecond) };
  if (found.kind === 'chat') return { tools: found.tools, reasoning: found.reasons, answer: found.text, ...speed };
  return { [found.kind]: true, ...(found.kind === 'embeddings' ? { dimensions: found.dimensions } : {}), ...speed };
}

/** For people. */
function linesOf(found: ServerFindings): readonly string[] {
  if (found.kind !== 'chat')
    return [
      `can      ${found.kind}: /v1/${found.kind}`,
      madeLine(found.kind === 'embeddings' ? 'embed' : 'rank', found),
    ];
  const { tools, reasons, text, tokensPerSecond } = found;
  return [
    `can      chat, ${tools ? 'tools' : 'no tools: the server refuses them, which for vLLM and SGLang is a matter of their flags'}, ${reasons ? 'reasoning' : 'no reasoning'}`,
    `says     ${JSON.stringify(text.slice(0, 100))}, ${tokensPerSecond.toFixed(1)} tokens a second`,
  ];
}

/** Runs what asks a server, whose refusal is told with the command that shows it. */
async function askedFor<Answer>(asking: Promise<Answer>): Promise<Answer> {
  try {
    return await asking;
  } catch (error) {
    if (!(error instanceof ServerRefused)) throw error;
    if (error.repair === undefined) throw new OperationError(`${error.message} A key is named with --api-key-env.`);
    throw refused(error.message, error.repair);
  }
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
