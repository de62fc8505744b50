import { readFileSync, statSync } from 'node:fs';
import { readFile } from 'node:fs/promises';
import type { IncomingHttpHeaders } from 'node:http';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { gunzip } from 'node:zlib';

const unzipped = promisify(gunzip);

/** One file, as `manifest.json` lists it. */
interface BuiltFile {
  readonly type: string;
  readonly bytes: number;
  /** Bytes of the compressed variants, which are beside it; absent without one. */
  readonly br?: number;
  readonly gz?: number;
  /** Hash of its content; absent if the name changes with the content. */
  readonly etag?: string;
}

export interface BuiltManifest {
  readonly files: Readonly<Record<string, BuiltFile>>;
}

export interface BuiltAnswer {
  readonly status: number;
  readonly headers: Readonly<Record<string, string>>;
  readonly body: Uint8Array | string;
}

/** One year, for files whose names change with their content. */
export const immutable = 'public, max-age=31536000, immutable';

/**
 * The files of a folder that a script has written, with `manifest.json`, which is written last and lists them: what is not in it
 * does not exist, so a request's path never reaches the file system. They may be rebuilt while the service runs.
 */
export class BuiltFiles<Manifest extends BuiltManifest> {
  readonly #folder: string;
  #read: { readonly changedAt: number; readonly manifest: Manifest } | undefined;

  constructor(folder: string) {
    this.#folder = folder;
  }

  /** Returns the manifest, read again after each build; undefined if there is no build. */
  manifest(): Manifest | undefined {
    const file = join(this.#folder, 'manifest.json');
    const changedAt = statSync(file, { throwIfNoEntry: false })?.mtimeMs;
    if (changedAt === undefined) return undefined;
    if (this.#read?.changedAt !== changedAt)
      this.#read = { changedAt, manifest: JSON.parse(readFileSync(file, 'utf8')) as Manifest };
    return this.#read.manifest;
  }

  /**
   * A file in the form that the request accepts: compressed, or 304 if the client has it; `headers` are added. Undefined if there
   * is none.
   */
  async answer(
    name: string,
    request: IncomingHttpHeaders,
    headers: Readonly<Record<string, string>>,
  ): Promise<BuiltAnswer | undefined> {
    const { files = {} } = this.manifest() ?? {};
    if (!Object.hasOwn(files, name)) return undefined;
    const { type, etag, ...sizes } = files[name]!;
    const encoding = encodingOf(request['accept-encoding'], sizes);
    const common = {
      'content-type': type,
      vary: 'accept-encoding',
      ...(etag === undefined ? {} : { etag }),
      ...(encoding.name === undefined ? {} : { 'content-encoding': encoding.name }),
      ...headers,
    };
    if (etag !== undefined && isKnown(request['if-none-match'], etag))
      return { status: 304, headers: common, body: '' };
    const body = await (encoding.ending === '' ? this.#plain(name) : this.#bytes(name + encoding.ending));
    // A build has just replaced it: the browser asks again.
    return body === undefined ? undefined : { status: 200, headers: common, body };
  }

  /** The text of a file that is not an answer itself, such as an index. Undefined if there is none. */
  async text(name: string): Promise<string | undefined> {
    return (await this.#plain(name))?.toString();
  }

  /** What gains by it may be there compressed alone, since nearly every client accepts that. */
  async #plain(name: string): Promise<Buffer | undefined> {
    const plain = await this.#bytes(name);
    if (plain !== undefined) return plain;
    const compressed = await this.#bytes(`${name}.gz`);
    return compressed && (await unzipped(compressed).catch(() => undefined));
  }

  #bytes(file: string): Promise<Buffer | undefined> {
    return readFile(join(this.#folder, file)).catch(() => undefined);
  }
}

function encodingOf(
  accepted: string | string[] | undefined,
  { bytes, br = Infinity, gz = Infinity }: Pick<BuiltFile, 'bytes' | 'br' | 'gz'>,
): { readonly ending: '' | '.br' | '.gz'; readonly name?: 'br' | 'gzip' } {
  const names = String(accepted ?? '')
    .split(',')
    .filter((one) => !/;\s*q=0(\.0*)?\s*$/.test(one))
    .map((one) => one.split(';')[0]!.trim().toLowerCase());
  if (names.includes('br') && br < bytes) return { ending: '.br', name: 'br' };
  if (names.includes('gzip') && gz < bytes) return { ending: '.gz', name: 'gzip' };
  return { ending: '' };
}

/** RFC 9110 §13.1.2: a weak comparison. */
const isKnown = (sent: string | undefined, etag: string): boolean =>
  sent?.split(',').some((one) => one.trim() === etag || one.trim() === '*') === true;
