import { Pool } from 'undici';
import type { FlavorName } from '../../../generation/flavor-names.ts';
import { combineSignals } from '../../../platform/combine-signals.ts';
import { flavors } from './flavors/flavors.ts';
import { causeCode } from './incidents.ts';
import {
  adapterPage,
  adaptersAmong,
  hasAdapter,
  loraFiles,
  type ListedAdapter,
  type WantedAdapter,
} from './listed-adapters.ts';
import { entriesOf, isObject, isPrintable, modelsOf, parsed } from './listing.ts';
import { hostOf } from './server-name.ts';

export interface ProbeOptions {
  /** Up to and including the version, as in the configuration. */
  readonly url: string;
  /** The server's name, if the URL has its address. */
  readonly serverName?: string | undefined;
  readonly apiKey: string | undefined;
  /** The expected kind; absent: it is detected, not compared. */
  readonly flavor?: FlavorName | undefined;
  /** The model's name on the backend; absent: not compared. */
  readonly model?: string | undefined;
  /** The adapter that is used there; absent: not compared. */
  readonly adapter?: WantedAdapter | undefined;
  /** The window that the card promises; absent: not compared. */
  readonly contextLength?: number;
  readonly signal: AbortSignal;
  /** Time limit for each of the few requests. */
  readonly timeoutMs?: number;
}

export interface ProbeResult {
  /** Whether any HTTP server answered. */
  readonly reachable: boolean;
  /** Time until the first answer's head, connecting included; `undefined` without an answer. */
  readonly latencyMs: number | undefined;
  /** Ids of the models that it serves, as far as it reports them. */
  readonly models: readonly string[];
  /** Those of them that are adapters of others, and the `--lora` files of llama-server. */
  readonly adapters: readonly ListedAdapter[];
  /** Windows in tokens of the models that report theirs. */
  readonly windows: ReadonlyMap<string, number>;
  /** The apparent kind of server; `undefined` if there is no sign. */
  readonly looksLike: FlavorName | undefined;
  /** Whether it answers and accepts the key; any remaining problem is about the model or the flavor. */
  readonly isUsable: boolean;
  /** Whether it lists its models, and the requested one is missing. */
  readonly lacksModel: boolean;
  /** The first thing that an operator should fix, with what to do about it. */
  readonly problem?: string;
}

export const probeUserAgent = 'tokenhouse-probe';

const bodyBytesMax = 4 * 1024 * 1024;

/**
 * Probes a backend without generating anything: whether it is up, which models it has, and what kind of server it is. Throws only when the
 * signal aborts; shows nothing from the backend except the ids of its models.
 */
export async function probeBackend(options: ProbeOptions): Promise<ProbeResult> {
  const { url, apiKey, serverName, signal, timeoutMs = 5_000 } = options;
  signal.throwIfAborted();
  const { origin, pathname } = new URL(url);
  const base = pathname.replace(/\/+$/, '');
  const root = base.replace(/\/v1$/, '');
  const headers = {
    accept: 'application/json',
    // For the server's log: who is asking, and that it is not a client.
    'user-agent': probeUserAgent,
    'accept-encoding': 'identity',
    ...(serverName === undefined ? {} : { host: hostOf(url, serverName) }),
    ...(apiKey === undefined ? {} : { authorization: `Bearer ${apiKey}` }),
  };
  const pool = new Pool(origin, {
    connections: 1,
    pipelining: 1,
    connect: { timeout: timeoutMs, ...(serverName === undefined ? {} : { servername: serverName }) },
    maxHeaderSize: 16_384,
  });
  /** Pages that identify the kind of server may state its windows too. */
  const answers = new Map<string, Promise<Answer>>();
  const get = (path: string): Promise<Answer> => {
    const asked =
      answers.get(path) ?? ask(pool, path, headers, combineSignals([signal, AbortSignal.timeout(timeoutMs)]));
    answers.set(path, asked);
    return asked;
  };
  try {
    const startMs = performance.now();
    const listing = await get(`${base}/models`);
    signal.throwIfAborted();
    const latencyMs = listing.status === undefined ? undefined : listing.headMs! - startMs;
    if (listing.status === undefined) {
      const problem = unreachable(origin, listing.code);
      return { ...nothing, problem };
    }
    const looksLike = await kindOf(get, root, listing);
    signal.throwIfAborted();
    const served = looksLike === 'tei' ? teiModel((await get(`${root}/info`)).body) : undefined;
    const models = listing.status === 200 ? modelsOf(listing.body) : served === undefined ? [] : [served.id];
    const windows = windowsOf(listing.body, models);
    // Not compared: its slots may share the window.
    if (options.flavor === undefined && looksLike === 'llama-server') {
      const slot = slotWindowOf((await get(`${root}/props`)).body);
      for (const id of slot === undefined ? [] : models) windows.set(id, slot!);
    }
    // It reports the windows of loaded models only, and silently truncates longer prompts.
    if (looksLike === 'ollama')
      for (const [id, window] of loadedWindowsOf((await get(`${root}/api/ps`)).body))
        for (const name of [id, id.replace(untagged, '')]) windows.set(name, window);
    if (looksLike === 'tgi')
      for (const [id, window] of servedWindow((await get(`${root}/info`)).body, models)) windows.set(id, window);
    if (served !== undefined) for (const id of [served.id, options.model ?? served.id]) windows.set(id, served.window);
    if (looksLike === 'lm-studio')
      for (const path of ['/api/v0/models', '/api/v1/models'])
        for (const [id, window] of studioWindows((await get(root + path)).body)) windows.set(id, window);
    const page = looksLike === 'llama-server' ? await get(`${root}/lora-adapters`) : listing;
    const adapters = (looksLike === 'llama-server' ? loraFiles(page.body) : adaptersAmong(page.body)) ?? [];
    const lacksAdapter = isWithoutAdapter(options, page);
    const problem =
      problemOf(options, base, listing, models, windows, looksLike) ??
      (lacksAdapter ? adapterProblem(options.adapter!, adapters) : undefined);
    const isUsable = listing.status === 200 || listing.status === 404;
    return {
      ...{ reachable: true, latencyMs, models, adapters, windows, looksLike, isUsable },
      lacksModel: lacksAdapter || lacksModel(options, models),
      ...(problem === undefined ? {} : { problem }),
    };
  } finally {
    await pool.destroy();
  }
}

const nothing: ProbeResult = {
  reachable: false,
  latencyMs: undefined,
  models: [],
  adapters: [],
  windows: new Map(),
  looksLike: undefined,
  isUsable: false,
  lacksModel: false,
};

interface Answer {
  /** `undefined`: there was no answer; `code` is the reason, if known. */
  readonly status: number | undefined;
  readonly headMs?: number;
  readonly server: string;
  readonly body: unknown;
  readonly code: string | null;
}

async function ask(pool: Pool, path: string, headers: Record<string, string>, signal: AbortSignal): Promise<Answer> {
  try {
    const answer = await pool.request({ method: 'GET', path, headers, signal });
    const headMs = performance.now();
    const chunks: Buffer[] = [];
    let bytes = 0;
    for await (const chunk of answer.body as AsyncIterable<Buffer>) {
      bytes += chunk.length;
      if (bytes > bodyBytesMax) break;
      chunks.push(chunk);
    }
    const server = answer.headers['server'];
    return {
      status: answer.statusCode,
      headMs,
      server: typeof server === 'string' ? server : '',
      body: parsed(Buffer.concat(chunks).toString()),
      code: null,
    };
  } catch (error) {
    const isTimeout = signal.aborted || causeCode(error) === 'UND_ERR_CONNECT_TIMEOUT';
    return { status: undefined, server: '', body: undefined, code: isTimeout ? 'TIMEOUT' : causeCode(error) };
  }
}

/** Detects the kind of server by the routes that only one kind has. */
async function kindOf(
  get: (path: string) => Promise<Answer>,
  root: string,
  listing: Answer,
): Promise<FlavorName | undefined> {
  if (/llama\.cpp/i.test(listing.server)) return 'llama-server';
  const owner = entriesOf(listing.body)[0]?.['owned_by'];
  if (owner === 'vllm' || owner === 'sglang') return owner;
  if (owner === 'llamacpp') return 'llama-server';
  const props = await get(`${root}/props`);
  if (props.status === 200 && isObject(props.body) && 'default_generation_settings' in props.body)
    return 'llama-server';
  for (const path of ['/model_info', '/get_model_info']) {
    const info = await get(root + path);
    if (info.status === 200 && isObject(info.body) && 'is_generation' in info.body) return 'sglang';
  }
  // LM Studio answers 200 to any path, so the expected content has to be there.
  for (const path of ['/api/v1/models', '/api/v0/models'])
    if (isStudio((await get(root + path)).body)) return 'lm-studio';
  const info = await get(`${root}/info`);
  if (info.status === 200 && isObject(info.body) && isWindow(info.body['max_total_tokens'])) return 'tgi';
  if (info.status === 200 && teiModel(info.body) !== undefined) return 'tei';
  const loaded = await get(`${root}/api/ps`);
  if (loaded.status === 200 && isObject(loaded.body) && Array.isArray(loaded.body['models'])) return 'ollama';
  const version = await get(`${root}/version`);
  if (version.status === 200 && isObject(version.body) && typeof version.body['version'] === 'string') return 'vllm';
  return undefined;
}

function problemOf(
  { url, apiKey, flavor, model, contextLength = 0 }: ProbeOptions,
  base: string,
  listing: Answer,
  models: readonly string[],
  windows: ReadonlyMap<string, number>,
  looksLike: FlavorName | undefined,
): string | undefined {
  const { status } = listing;
  if (status === 401 || status === 403) {
    return apiKey === undefined
      ? `The server requires a key (status ${status}). Set api_key_env, or api_key.`
      : `The server does not accept the key (status ${status}). Check the variable that api_key_env names.`;
  }
  if (status === 503) return 'The server is running but not ready (status 503): it may still be loading its model.';
  if (status === 404) {
    // It has no list of models (1.9.3), but its API is at the same path as the others'.
    if (flavor === 'tei' || (looksLike === 'tei' && base.endsWith('/v1'))) {
      return windowProblem(model, contextLength, windows);
    }
    const hint = base.endsWith('/v1')
      ? 'Check the path of the url.'
      : `Is the version path missing in the url, as in ${url.replace(/\/+$/, '')}/v1?`;
    return `The server is running, but has no ${base}/models (status 404). ${hint}`;
  }
  if (status !== undefined && status >= 300 && status < 400) {
    return `The server redirects (status ${status}), and redirects are not followed. Write the address that it redirects to.`;
  }
  if (status !== 200) return `The server answers ${base}/models with status ${status}. See the server's log.`;
  if (!Array.isArray((listing.body as { data?: unknown } | undefined)?.data)) {
    return `The server at ${base}/models does not speak the OpenAI API. Check the address and the path of the url.`;
  }
  if (lacksModel({ model, flavor }, models)) {
    const shown = models.slice(0, 10).join(', ');
    return `The server has no model '${model}'. It has: ${shown}. Set the backend's model to one of them.`;
  }
  if (looksLike !== undefined && flavor !== undefined && flavors[looksLike] !== flavors[flavor]) {
    return `The server looks like ${looksLike}, but the backend's flavor is ${flavor}. Set flavor: ${looksLike}.`;
  }
  return windowProblem(model, contextLength, windows);
}

const isWithoutAdapter = ({ flavor, adapter }: ProbeOptions, { status, body }: Answer): boolean =>
  flavor !== undefined &&
  adapter?.name !== undefined &&
  status === 200 &&
  adapterPage[flavor] !== undefined &&
  hasAdapter(flavor, adapter, body) === false;

function adapterProblem({ name, fields }: WantedAdapter, adapters: readonly ListedAdapter[]): string {
  const has = adapters.map((each) => (each.loraId === undefined ? each.name : `${each.loraId}: ${each.name}`));
  const shown = has.length === 0 ? 'It has none.' : `It has: ${has.slice(0, 10).join(', ')}.`;
  return 'lora' in fields
    ? `The server has no adapter with the lora_id of '${name}'. ${shown} Start it with that --lora file, or correct lora_id.`
    : `The server has no adapter '${name}'. ${shown} Load it there, or correct the name of the adapter.`;
}

function windowProblem(
  model: string | undefined,
  contextLength: number,
  windows: ReadonlyMap<string, number>,
): string | undefined {
  const windowTokens = windows.get(model ?? '');
  if (windowTokens !== undefined && contextLength > windowTokens) {
    return `The server's window is ${windowTokens} tokens, but context_length is ${contextLength}, so the card promises more than requests get. Set context_length: ${windowTokens}, or start the server with a larger window.`;
  }
  return undefined;
}

/** Servers that serve their one model under every name. */
const takesAnyName: ReadonlySet<FlavorName | undefined> = new Set(['llama-server', 'tei'] as const);

/** Ollama lists a model with its tag, and accepts its name without this tag. */
const untagged = /:latest$/;

const lacksModel = ({ model, flavor }: Pick<ProbeOptions, 'model' | 'flavor'>, models: readonly string[]): boolean =>
  model !== undefined &&
  !takesAnyName.has(flavor) &&
  models.length > 0 &&
  !models.includes(model) &&
  !(flavor === 'ollama' && models.some((id) => id.replace(untagged, '') === model));

/** Returns the windows that vLLM and SGLang report with the models. */
function windowsOf(body: unknown, models: readonly string[]): Map<string, number> {
  return new Map(
    entriesOf(body).flatMap(({ id, max_model_len: window }) =>
      typeof id === 'string' && models.includes(id) && isWindow(window) ? [[id, window]] : [],
    ),
  );
}

function slotWindowOf(props: unknown): number | undefined {
  const settings = isObject(props) ? props['default_generation_settings'] : undefined;
  const window = isObject(settings) ? settings['n_ctx'] : undefined;
  return isWindow(window) ? window : undefined;
}

function loadedWindowsOf(body: unknown): readonly (readonly [string, number])[] {
  const loaded = isObject(body) && Array.isArray(body['models']) ? body['models'].filter(isObject) : [];
  return loaded.flatMap(({ model, context_length: window }) =>
    typeof model === 'string' && isWindow(window) ? [[model, window] as const] : [],
  );
}

/**
 * Recognizes LM Studio's own lists: that of its first API, where a model has a state, and that of its second, with the loaded instances.
 */
const isStudio = (body: unknown): boolean =>
  entriesOf(body).some((entry) => 'max_context_length' in entry && 'state' in entry) ||
  studioModels(body).some((entry) => Array.isArray(entry['loaded_instances']));

const studioModels = (body: unknown): readonly Readonly<Record<string, unknown>>[] =>
  isObject(body) && Array.isArray(body['models']) ? body['models'].filter(isObject) : [];

/** Returns the windows of loaded models: the window of a model that is loaded later is only known then. */
function studioWindows(body: unknown): readonly (readonly [string, number])[] {
  const first = entriesOf(body).map(({ id, loaded_context_length: window }) => [id, window] as const);
  const second = studioModels(body).flatMap(({ loaded_instances: instances }) =>
    (Array.isArray(instances) ? instances.filter(isObject) : []).map(
      ({ id, config }) => [id, isObject(config) ? config['context_length'] : undefined] as const,
    ),
  );
  return [...first, ...second].flatMap(([id, window]) =>
    typeof id === 'string' && isWindow(window) ? [[id, window] as const] : [],
  );
}

/** Returns the window of TGI, which serves one model under any name. */
function servedWindow(info: unknown, models: readonly string[]): readonly (readonly [string, number])[] {
  const window = isObject(info) ? info['max_total_tokens'] : undefined;
  return isWindow(window) ? models.map((id) => [id, window] as const) : [];
}

/** Reads which model text-embeddings-inference serves from its `/info`. */
function teiModel(info: unknown): { readonly id: string; readonly window: number } | undefined {
  if (!isObject(info) || !isObject(info['model_type'])) return undefined;
  const { max_input_length: window, model_id: id } = info;
  return isWindow(window) && isPrintable(id) ? { id, window } : undefined;
}

const isWindow = (value: unknown): value is number => Number.isSafeInteger(value) && (value as number) > 0;

function unreachable(origin: string, code: string | null): string {
  switch (code) {
    case 'ECONNREFUSED':
      return `Nothing listens at ${origin} (connection refused). Check that the server is running and that the port is right.`;
    case 'ENOTFOUND':
    case 'EAI_AGAIN':
      return `The name in ${origin} cannot be resolved (${code}). Check the spelling and the DNS of this machine.`;
    case 'TIMEOUT':
      return `${origin} does not answer in time. Check the address and any firewall in between.`;
    case 'EHOSTUNREACH':
    case 'ENETUNREACH':
      return `${origin} cannot be reached from this machine (${code}). Check the network.`;
    case null:
      return `${origin} closed the connection. Check that it speaks HTTP there.`;
    default:
      if (/CERT|TLS|SSL|SELF_SIGNED|UNABLE_TO/.test(code) || code === 'EPROTO') {
        return `No TLS connection to ${origin} (${code}). Check that the server speaks https and that its certificate is trusted here (NODE_EXTRA_CA_CERTS).`;
      }
      return `${origin} closed the connection (${code}). Check that it speaks HTTP there.`;
  }
}
