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

  /** `connectTo` returns the address of the inference host, which the playground uses, for a page on this `Host`. */
  constructor(folder: string, connectTo: (host: string | undefined) => string | undefined) {
    this.#folder = folder;
    this.#files = new BuiltFiles(folder);
    this.#connectTo = connectTo;
  }

  /**
   * The answer for a path; undefined if it is not the console's. Pages are for browsers: a program that requests `/keys` without
   * accepting HTML gets a hint that its address is wrong.
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

  /** The answer for pages of the console while there is none; undefined if it is there. */
  standIn(): BuiltAnswer | undefined {
    if (this.#files.manifest() !== undefined) return undefined;
    // Its folder exists from the start of a build; a failed build leaves a note in it.
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

/** Allows scripts and styles of this host only, and no other host except the one that serves models. */
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
