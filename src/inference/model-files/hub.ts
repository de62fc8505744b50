import { get, statusInWords, textOf, type HttpAccess } from './http.ts';
import { NoGgufProblem, SourceProblem } from './problem.ts';
import { safeName, type ModelFileSource } from '../../config/model-source.ts';

export interface HubAccess {
  readonly http: HttpAccess;
  /** Base URL of a hub: one of `hubEndpoints`. */
  readonly endpoint: string;
  readonly token: string | undefined;
  readonly signal: AbortSignal;
}

/** One file on a hub, ready to be fetched. */
export interface HubFile {
  readonly url: string;
  readonly name: string;
  /** For a quantization the hub reports size and hash; for a plain file name the hub is not asked beforehand. */
  readonly bytes: number | undefined;
  readonly sha256: string | undefined;
}

export type HubSource = Extract<ModelFileSource, { type: 'hub-file' | 'hub-quantization' }>;

const publicHub = 'https://huggingface.co';

/** Returns the URL of the file that a source names. Throws `SourceProblem` when the hub has no such file, or several. */
export async function hubFile(source: HubSource, access: HubAccess): Promise<HubFile> {
  if (source.type === 'hub-file')
    return { ...fileAt(source, access.endpoint, source.file), bytes: undefined, sha256: undefined };
  const chosen = choose(await listing(source, access), source.quantization);
  return { ...fileAt(source, access.endpoint, chosen.path), bytes: chosen.bytes, sha256: chosen.sha256 };
}

/** Returns the same, with size and hash as the hub states them, even for a plain file name. Throws `SourceProblem`. */
export async function statedHubFile(source: HubSource, access: HubAccess): Promise<HubFile> {
  if (source.type === 'hub-quantization') return hubFile(source, access);
  const stated = (await listing(source, access)).find((file) => file.path === source.file);
  if (stated === undefined)
    throw new SourceProblem(`${new URL(access.endpoint).host} does not have ${source.file} in ${source.repository}`);
  return { ...fileAt(source, access.endpoint, stated.path), bytes: stated.bytes, sha256: stated.sha256 };
}

/** What a user wants from a repository: a file, a quantization, or by default what is best for most users. */
export interface WantedOfHub {
  readonly repository: string;
  readonly revision: string;
  readonly file?: string;
  readonly quantization?: string;
}

/** The files of a model at one commit, the first part first, with the size and hash that the hub states. */
export interface HubModel {
  /** The commit, 40 hex digits. */
  readonly revision: string;
  readonly files: readonly { readonly path: string; readonly bytes: number; readonly sha256: string }[];
  /** Text of the repository's `generation_config.json`. */
  readonly generationConfig: string | undefined;
}

/** Resolves a branch to its commit and a quantization to its files. Throws `SourceProblem`. */
export async function hubModel(wanted: WantedOfHub, access: HubAccess): Promise<HubModel> {
  const revision = await commitOf(wanted, access);
  const at = { repository: wanted.repository, revision };
  const files = await listing(at, access);
  const weights = files.filter(({ path }) => /^[^/]*\.safetensors$/.test(path));
  const isAny = wanted.file === undefined && wanted.quantization === undefined;
  if (isAny && modelsAmong(files).length === 0 && weights.length > 0) {
    const hasConfig = files.some(({ path }) => path === 'config.json');
    throw new NoGgufProblem({
      ...at,
      config: hasConfig
        ? await textAt(`${access.endpoint}/${at.repository}/resolve/${revision}/config.json`, access, configBytesMax)
        : undefined,
      bytes: weights.reduce((sum, { bytes = 0 }) => sum + bytes, 0),
    });
  }
  const chosen = partsOf(files, choosePath(files, wanted));
  const host = new URL(access.endpoint).host;
  const stated = chosen.map(({ path, bytes, sha256 }) => {
    if (bytes === undefined || sha256 === undefined)
      throw new SourceProblem(`${host} states no size or sha256 of ${path}, so it cannot be pinned`);
    return { path, bytes, sha256 };
  });
  const config = files.some(({ path }) => path === 'generation_config.json')
    ? await textAt(`${access.endpoint}/${at.repository}/resolve/${revision}/generation_config.json`, access, 65_536)
    : undefined;
  return { revision, files: stated, generationConfig: config };
}

const configBytesMax = 1024 * 1024;

async function commitOf({ repository, revision }: WantedOfHub, access: HubAccess): Promise<string> {
  const url = `${access.endpoint}/api/models/${repository}/revision/${encodeURIComponent(revision)}`;
  let sha: unknown;
  try {
    sha = (JSON.parse(await textAt(url, access, listingBytesMax)) as { readonly sha?: unknown }).sha;
  } catch (error) {
    if (!(error instanceof SyntaxError)) throw error;
  }
  if (typeof sha !== 'string' || !/^[0-9a-f]{40}$/.test(sha))
    throw new SourceProblem(`${new URL(url).host} does not say which commit ${revision} of ${repository} is`);
  return sha;
}

async function textAt(url: string, { http, token, signal }: HubAccess, bytesMax: number): Promise<string> {
  const answer = await get(http, url, { authorization: token === undefined ? undefined : `Bearer ${token}`, signal });
  const text = await textOf(answer, bytesMax);
  if (answer.status !== 200) throw new SourceProblem(statusInWords(answer.status, new URL(url).host));
  return text;
}

/** In order of preference: good answers for their size on most computers come first. */
const preferredQuantizations = ['Q4_K_M', 'Q4_K_S', 'Q5_K_M', 'Q4_0', 'Q4_1', 'Q6_K', 'Q8_0', 'F16', 'BF16'];

function choosePath(files: readonly ListedFile[], { file, quantization }: WantedOfHub): string {
  if (file !== undefined) return file;
  const firsts = files.filter(({ path }) => !/-\d{5}-of-\d{5}\.gguf$/i.test(path) || /-00001-of-/i.test(path));
  if (quantization !== undefined) return choose(firsts, quantization).path;
  const models = modelsAmong(firsts);
  if (models.length === 1) return models[0]!.path;
  for (const preferred of preferredQuantizations) {
    const fitting = models.filter(({ path }) => endingOf(preferred).test(path));
    if (fitting.length === 1) return fitting[0]!.path;
  }
  // Throws, naming the available files.
  return choose(firsts, preferredQuantizations[0]!).path;
}

/** Returns all parts of the model that begins with this file; only the file itself if it is not split. */
function partsOf(files: readonly ListedFile[], first: string): readonly ListedFile[] {
  const [, stem, , count] = /^(.*)-(\d{5})-of-(\d{5})\.gguf$/i.exec(first) ?? [];
  if (Number(count ?? 1) > partsMax) throw new SourceProblem(`it is split into more than ${partsMax} files`);
  const names =
    stem === undefined
      ? [first]
      : Array.from(
          { length: Number(count) },
          (_, index) => `${stem}-${String(index + 1).padStart(5, '0')}-of-${count}.gguf`,
        );
  return names.map((name) => {
    const found = files.find(({ path }) => path === name);
    if (found === undefined) throw new SourceProblem(`the repository does not have ${name}`);
    return found;
  });
}

/** Maximum number of files of a split model; the largest published ones have some dozens. */
const partsMax = 256;

/** Returns the hubs to ask, in order. */
export function hubEndpoints(configured: string | undefined): readonly string[] {
  return [...new Set([configured ?? publicHub, publicHub])];
}

function fileAt(
  { repository, revision }: Pick<HubSource, 'repository' | 'revision'>,
  endpoint: string,
  file: string,
): { url: string; name: string } {
  const encoded = file.split('/').map(encodeURIComponent).join('/');
  const name = safeName(file.split('/').at(-1)!);
  if (name === undefined)
    throw new SourceProblem(`the file name ${JSON.stringify(file.slice(0, 100))} cannot be used on every computer`);
  return { url: `${endpoint}/${repository}/resolve/${encodeURIComponent(revision)}/${encoded}`, name };
}

interface ListedFile {
  readonly path: string;
  readonly bytes: number | undefined;
  readonly sha256: string | undefined;
}

const listingBytesMax = 8 * 1024 * 1024;

async function listing(
  { repository, revision }: Pick<HubSource, 'repository' | 'revision'>,
  { http, endpoint, token, signal }: HubAccess,
): Promise<ListedFile[]> {
  const url = `${endpoint}/api/models/${repository}/tree/${encodeURIComponent(revision)}?recursive=true`;
  const answer = await get(http, url, { authorization: token === undefined ? undefined : `Bearer ${token}`, signal });
  const text = await textOf(answer, listingBytesMax);
  if (answer.status !== 200) throw new SourceProblem(statusInWords(answer.status, new URL(url).host));
  try {
    return (JSON.parse(text) as unknown[]).flatMap(listed);
  } catch (error) {
    throw new SourceProblem(`${new URL(url).host} does not list the files of ${repository} as a hub does`, {
      cause: error,
    });
  }
}

function listed(entry: unknown): ListedFile[] {
  const { type, path, size, lfs } = entry as {
    type?: unknown;
    path?: unknown;
    size?: unknown;
    lfs?: { oid?: unknown };
  };
  if (type !== 'file' || typeof path !== 'string' || path.split('/').includes('..')) return [];
  const oid = lfs?.oid;
  return [
    {
      path,
      bytes: typeof size === 'number' && Number.isSafeInteger(size) ? size : undefined,
      sha256: typeof oid === 'string' && /^[0-9a-f]{64}$/.test(oid) ? oid : undefined,
    },
  ];
}

const modelsAmong = (files: readonly ListedFile[]): readonly ListedFile[] =>
  files.filter(({ path }) => /\.gguf$/i.test(path) && !/(^|\/)mmproj/i.test(path));

const endingOf = (quantization: string): RegExp =>
  new RegExp(`[-._]${quantization.replace(/[.*+?^${}()|[\]\\]/g, '\\$&')}(-\\d{5}-of-\\d{5})?\\.gguf$`, 'i');

/** Chooses the file of a quantization: `Q8_0` is `model-Q8_0.gguf` or `model.Q8_0.gguf`, never a projector for images (`mmproj…`). */
function choose(files: readonly ListedFile[], quantization: string): ListedFile {
  const models = modelsAmong(files);
  const ending = endingOf(quantization);
  const fitting = models.filter(({ path }) => ending.test(path));
  if (fitting.length > 1 && fitting.every(({ path }) => /-\d{5}-of-\d{5}\.gguf$/i.test(path))) {
    throw new SourceProblem(
      `${quantization} is split into ${fitting.length} files there; \`tokenhouse models add\` writes them all into tokenhouse.yaml`,
    );
  }
  if (fitting.length === 1) return fitting[0]!;
  const names = models
    .slice(0, 20)
    .map(({ path }) => path)
    .join(', ');
  if (fitting.length > 1)
    throw new SourceProblem(
      `several files are ${quantization}: ${fitting
        .map(({ path }) => path)
        .join(', ')
        .slice(0, 400)}; name one of them`,
    );
  throw new SourceProblem(
    names === '' ? 'there is no .gguf file in this repository' : `no file is ${quantization}; there are ${names}`,
  );
}
