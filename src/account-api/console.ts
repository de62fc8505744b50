import { existsSync } from 'node:fs';
import type { IncomingHttpHeaders } from 'node:http';
import { join } from 'node:path';

import { page, pageHeaders } from '../platform/html.ts';
import { BuiltFiles, immutable } from './built-files.ts';
import type { BuiltAnswer, BuiltManifest } from './built-files.ts';

/** What `scripts/console.mjs` has built. */
interface Manifest extends BuiltManifest {
  /** Paths with a page; a segment may be a parameter: `/keys/$id`. */
  readonly pages: readonly string[];
}

/**
 * The web console (web/): files that `scripts/console.mjs` has written, read from their folder. It may be built while the service
 * runs; until then there is `standIn`.
 */
export class Console {
  readonly #folder: string;
  readonly #connectTo: (host: string | undefined) => string | undefined;
  readonly #files: BuiltFiles<Manifest>;

  /** `connectTo` is the address of the inference host, which the playground asks, for a page of this `Host`. */
  constructor(folder: string, connectTo: (host: string | undefined) => string | undefined) {
    this.#folder = folder;
    this.#files = new BuiltFiles(folder);
    this.#connectTo = connectTo;
  }

  /**
   * What is at a path; undefined: nothing of the console. A page is what a browser navigates to: a program that asks for `/keys`
   * without saying that it takes HTML gets the hint that it has the address wrong.
   */
  async answer(path: string, headers: IncomingHttpHeaders): Promise<BuiltAnswer | undefined> {
    if (path.startsWith('/assets/'))
      return await this.#files.answer(path.slice(1), headers, { 'cache-control': immutable });
    if (headers.accept?.includes('text/html') !== true) return undefined;
    const manifest = this.#files.manifest();
    if (manifest?.pages.some((page) => isAt(path, page)) !== true) return undefined;
    const policy = {
      'content-security-policy': consolePolicy(this.#connectTo(headers.host)),
      'cache-control': 'no-cache',
    };
    return await this.#files.answer('index.html', headers, { ...policy, vary: 'accept, accept-encoding' });
  }

  /** What is where a page of the console may be, while there is none; undefined: it is there. */
  standIn(): BuiltAnswer | undefined {
    if (this.#files.manifest() !== undefined) return undefined;
    // Its folder is there from the beginning of a build; one that has failed leaves a note in it.
    const isBeingBuilt = existsSync(this.#folder) && !existsSync(join(this.#folder, 'problem.txt'));
    return isBeingBuilt ? beingBuilt : notBuilt;
  }
}

const links = '<p><a href="/openapi.json">The API\'s document</a> · <a href="/docs/errors">Error codes</a></p>';
const unavailable = { ...pageHeaders, 'cache-control': 'no-store' };

const beingBuilt: BuiltAnswer = {
  status: 503,
  headers: { ...unavailable, refresh: '2', 'retry-after': '2' },
  body: page(
    'Console',
    `<p role="status">The console is being built. This page shows it as soon as it is there, usually within a minute.</p>\n${links}`,
  ),
};

const notBuilt: BuiltAnswer = {
  status: 503,
  headers: unavailable,
  body: page(
    'Console',
    `<p>This copy has no console: <code>npm run build console</code> builds it, or says why it cannot.</p>\n${links}`,
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
