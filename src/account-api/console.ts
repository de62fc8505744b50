import { existsSync, readFileSync, statSync } from 'node:fs';
import { readFile } from 'node:fs/promises';
import type { IncomingHttpHeaders } from 'node:http';
import { join } from 'node:path';

import { page, pageHeaders } from '../platform/html.ts';

/** One file of the console, as `manifest.json` lists it. */
interface ConsoleFile {
  readonly type: string;
  readonly bytes: number;
  /** Bytes of the compressed variants, which lie beside it. */
  readonly br: number;
  readonly gz: number;
}

/** What `scripts/console.mjs` has built. */
interface Manifest {
  /** Paths with a page; a segment may be a parameter: `/keys/$id`. */
  readonly pages: readonly string[];
  readonly files: Readonly<Record<string, ConsoleFile>>;
}

export interface ConsoleAnswer {
  readonly status: number;
  readonly headers: Readonly<Record<string, string>>;
  readonly body: Uint8Array | string;
}

/** One year; the names of assets change with their content. */
const immutable = 'public, max-age=31536000, immutable';

/**
 * The web console (web/): files that `scripts/console.mjs` has written, read from their folder. It may be built while the service
 * runs, and until it is there a page says so. Where none is to come, it answers nothing: there are plain pages.
 */
export class Console {
  readonly #folder: string;
  readonly #connectTo: () => string | undefined;
  #read: { readonly changedAt: number; readonly manifest: Manifest } | undefined;

  /** `connectTo` is the origin of the inference host, which the playground asks. */
  constructor(folder: string, connectTo: () => string | undefined) {
    this.#folder = folder;
    this.#connectTo = connectTo;
  }

  /**
   * What is at a path; undefined: nothing of the console. A page is what a browser navigates to: a program that asks for `/keys`
   * without saying that it takes HTML gets the hint that it has the address wrong.
   */
  async answer(path: string, headers: IncomingHttpHeaders): Promise<ConsoleAnswer | undefined> {
    const encodings = headers['accept-encoding'];
    if (path.startsWith('/assets/')) return await this.#file(path.slice(1), encodings, { 'cache-control': immutable });
    if (headers.accept?.includes('text/html') !== true) return undefined;
    const manifest = this.#manifest();
    if (manifest === undefined) return path === '/' && this.#isBeingBuilt() ? notBuilt : undefined;
    if (!manifest.pages.some((page) => isAt(path, page))) return undefined;
    const policy = { 'content-security-policy': consolePolicy(this.#connectTo()), 'cache-control': 'no-cache' };
    return await this.#file('index.html', encodings, { ...policy, vary: 'accept, accept-encoding' });
  }

  async #file(
    name: string,
    encodings: string | string[] | undefined,
    headers: Readonly<Record<string, string>>,
  ): Promise<ConsoleAnswer | undefined> {
    const { files = {} } = this.#manifest() ?? {};
    if (!Object.hasOwn(files, name)) return undefined;
    const { type, bytes, br, gz } = files[name]!;
    const encoding = encodingOf(encodings, bytes, br, gz);
    const body = await readFile(join(this.#folder, name + encoding.ending)).catch(() => undefined);
    // A build has taken its place in this moment: the browser asks again.
    if (body === undefined) return undefined;
    const encoded = encoding.name === undefined ? {} : { 'content-encoding': encoding.name };
    return {
      status: 200,
      headers: { 'content-type': type, vary: 'accept-encoding', ...encoded, ...headers },
      body,
    };
  }

  /** Read again when a build has written it anew; undefined: there is no build. */
  #manifest(): Manifest | undefined {
    const file = join(this.#folder, 'manifest.json');
    const changedAt = statSync(file, { throwIfNoEntry: false })?.mtimeMs;
    if (changedAt === undefined) return undefined;
    if (this.#read?.changedAt !== changedAt)
      this.#read = { changedAt, manifest: JSON.parse(readFileSync(file, 'utf8')) as Manifest };
    return this.#read.manifest;
  }

  /** Its folder is there from the beginning of a build; one that has failed leaves a note in it. */
  #isBeingBuilt(): boolean {
    return existsSync(this.#folder) && !existsSync(join(this.#folder, 'problem.txt'));
  }
}

const notBuilt: ConsoleAnswer = {
  status: 503,
  headers: { ...pageHeaders, 'cache-control': 'no-store', refresh: '2', 'retry-after': '2' },
  body: page(
    'Console',
    `<p role="status">The console is being built. This page shows it as soon as it is there, usually within a minute. If that never happens, <code>npm run build:console</code> builds it, or says why it cannot.</p>
<p><a href="/openapi.json">The API's document</a> · <a href="/docs/errors">Error codes</a></p>`,
  ),
};

function isAt(path: string, page: string): boolean {
  const segments = path.split('/');
  const wanted = page.split('/');
  return (
    segments.length === wanted.length &&
    wanted.every((segment, at) => (segment.startsWith('$') ? segments[at] !== '' : segment === segments[at]))
  );
}

function encodingOf(
  accepted: string | string[] | undefined,
  bytes: number,
  br: number,
  gz: number,
): { readonly ending: '' | '.br' | '.gz'; readonly name?: 'br' | 'gzip' } {
  const names = String(accepted ?? '')
    .split(',')
    .filter((one) => !/;\s*q=0(\.0*)?\s*$/.test(one))
    .map((one) => one.split(';')[0]!.trim().toLowerCase());
  if (names.includes('br') && br < bytes) return { ending: '.br', name: 'br' };
  if (names.includes('gzip') && gz < bytes) return { ending: '.gz', name: 'gzip' };
  return { ending: '' };
}

/** Scripts and styles of this host alone, and no other host but the one that serves models. */
const consolePolicy = (inferenceUrl: string | undefined): string =>
  [
    "default-src 'none'",
    "script-src 'self'",
    "style-src 'self'",
    "img-src 'self' data: blob:",
    `connect-src 'self'${inferenceUrl === undefined ? '' : ` ${new URL(inferenceUrl).origin}`}`,
    "form-action 'self'",
    "frame-ancestors 'none'",
    "base-uri 'none'",
  ].join('; ');
