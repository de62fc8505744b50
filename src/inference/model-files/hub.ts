import { get, statusInWords, textOf, type HttpAccess } from './http.ts';
import { SourceProblem } from './problem.ts';
import { safeName, type ModelFileSource } from '../../config/model-source.ts';

export interface HubAccess {
  readonly http: HttpAccess;
  /** Base URL of a hub: one of `hubEndpoints`. */
  readonly endpoint: string;
  readonly token: string | undefined;
  readonly signal: AbortSignal;
}

/** One file of a hub, ready to be fetched. */
export interface HubFile {
  readonly url: string;
  readonly name: string;
  /** For a quantization the hub itself reports size and hash; for a plain file name nothing is asked beforehand. */
  readonly bytes: number | undefined;
  readonly sha256: string | undefined;
}

export type HubSource = Extract<ModelFileSource, { type: 'hub-file' | 'hub-quantization' }>;

const publicHub = 'https://huggingface.co';

/** The URL of the file that a source means. Throws `SourceProblem` when the hub has no such file, or several. */
export async function hubFile(source: HubSource, access: HubAccess): Promise<HubFile> {
  if (source.type === 'hub-file')
    return { ...fileAt(source, access.endpoint, source.file), bytes: undefined, sha256: undefined };
  const chosen = choose(await listing(source, access), source.quantization);
  return { ...fileAt(source, access.endpoint, chosen.path), bytes: chosen.bytes, sha256: chosen.sha256 };
}

/** The same, with size and hash as the hub states them, also for a plain file name. Throws `SourceProblem`. */
export async function statedHubFile(source: HubSource, access: HubAccess): Promise<HubFile> {
  if (source.type === 'hub-quantization') return hubFile(source, access);
  const stated = (await listing(source, access)).find((file) => file.path === source.file);
  if (stated === undefined)
    throw new SourceProblem(`${new URL(access.endpoint).host} does not have ${source.file} in ${source.repository}`);
  return { ...fileAt(source, access.endpoint, stated.path), bytes: stated.bytes, sha256: stated.sha256 };
}

/** Where hubs are asked, in order. */
export function hubEndpoints(configured: string | undefined): readonly string[] {
  return [...new Set([configured ?? publicHub, publicHub])];
}

function fileAt({ repository, revision }: HubSource, endpoint: string, file: string): { url: string; name: string } {
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
  { repository, revision }: HubSource,
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

/** `Q8_0` is `model-Q8_0.gguf` or `model.Q8_0.gguf`; a projector for images (`mmproj…`) is never meant. */
function choose(files: readonly ListedFile[], quantization: string): ListedFile {
  const models = files.filter(({ path }) => /\.gguf$/i.test(path) && !/(^|\/)mmproj/i.test(path));
  const ending = new RegExp(
    `[-._]${quantization.replace(/[.*+?^${}()|[\]\\]/g, '\\$&')}(-\\d{5}-of-\\d{5})?\\.gguf$`,
    'i',
  );
  const fitting = models.filter(({ path }) => ending.test(path));
  if (fitting.some(({ path }) => /-\d{5}-of-\d{5}\.gguf$/i.test(path))) {
    throw new SourceProblem(
      `${quantization} is split into ${fitting.length} files there, which this version does not fetch; choose a smaller quantization`,
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
