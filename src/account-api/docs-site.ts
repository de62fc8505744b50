import type { IncomingHttpHeaders } from 'node:http';

import { escaped, page, pageHeaders } from '../platform/html.ts';
import { BuiltFiles, immutable } from './built-files.ts';
import type { BuiltAnswer, BuiltManifest } from './built-files.ts';
import { indexOf, searchDocs } from './docs-search.ts';
import type { DocsIndex, DocsMatch, DocsSection } from './docs-search.ts';

/** What `scripts/docs-site.mjs` has built. */
interface Manifest extends BuiltManifest {
  /** The file at `/docs`, the frame of search results, and the search index. */
  readonly start: string;
  readonly frame: string;
  readonly index: string;
}

/**
 * The documentation: pages without a script, each also in Markdown, and a search that this host answers, so that it works without a
 * script and without a network. A copy that has no documentation says so.
 */
export class DocsSite {
  readonly #files: BuiltFiles<Manifest>;
  #search: { readonly of: Manifest; readonly frame: string; readonly index: DocsIndex } | undefined;

  constructor(folder: string) {
    this.#files = new BuiltFiles(folder);
  }

  /** The answer for a path; undefined if it is not the documentation's. */
  async answer(path: string, query: string, request: IncomingHttpHeaders): Promise<BuiltAnswer | undefined> {
    if (path !== '/docs' && path !== '/llms.txt' && !path.startsWith('/docs/')) return undefined;
    const manifest = this.#files.manifest();
    const isStart = path === '/docs' || path === '/docs/';
    if (manifest === undefined) return isStart ? notBuilt : undefined;
    if (path === '/docs/search') return await this.#found(manifest, query, request);
    const name = isStart ? manifest.start : fileAt(path);
    if (name === undefined) return undefined;
    const caching = name.endsWith('.css') ? immutable : 'no-cache';
    return await this.#files.answer(name, request, { ...headers, 'cache-control': caching });
  }

  /** A page; JSON for who accepts that and no page, such as the console's palette. */
  async #found(
    manifest: Manifest,
    query: string,
    { accept = '' }: IncomingHttpHeaders,
  ): Promise<BuiltAnswer | undefined> {
    if (this.#search?.of !== manifest) {
      const [frame, index] = await Promise.all([this.#files.text(manifest.frame), this.#files.text(manifest.index)]);
      if (frame === undefined || index === undefined) return undefined;
      this.#search = { of: manifest, frame, index: indexOf(JSON.parse(index) as readonly DocsSection[]) };
    }
    const { frame, index } = this.#search;
    const words = (new URLSearchParams(query).get('q') ?? '').slice(0, wordsCharactersMax);
    const found = searchDocs(index, words);
    const isJson = accept.includes('application/json') && !accept.includes('text/html');
    const body = isJson
      ? JSON.stringify({ object: 'list', data: found.map(({ id, ...rest }) => ({ url: addressOf(id), ...rest })) })
      : frame.replace(resultsMark, () => resultsHtml(words, found)).replace(wordsMark, () => escaped(words));
    const type = isJson ? 'application/json; charset=utf-8' : pageHeaders['content-type'];
    const caching = { 'cache-control': 'no-store', vary: 'accept' };
    return { status: 200, headers: { ...headers, 'content-type': type, ...caching }, body };
  }
}

/** Maximum length of a search; people write a few words. */
const wordsCharactersMax = 200;

/** Their places in the frame, see `scripts/docs-site/page.mjs`. */
const resultsMark = '<!-- results -->';
const wordsMark = '<!-- words -->';

/** `/docs/api` → `api.html`, `/docs/api.md` → `api.md`; a page has one address, without an ending. */
function fileAt(path: string): string | undefined {
  if (path === '/llms.txt') return 'llms.txt';
  const name = path.slice('/docs/'.length);
  if (name.endsWith('.html')) return undefined;
  return /\.[a-z]+$/.test(name) ? name : `${name}.html`;
}

/** Allows our style, our pictures and our search, nothing else, and no script. */
const headers = {
  'content-security-policy':
    "default-src 'none'; style-src 'self'; img-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'",
} as const;

/** `index#run-it` → `/docs#run-it`: that page has one address. */
const addressOf = (id: string): string => `/docs/${id}`.replace(/^\/docs\/index(?=#)/, '/docs');

function resultsHtml(words: string, found: readonly DocsMatch[]): string {
  if (words.trim() === '') return '<p>Write a few words into the field above.</p>';
  if (found.length === 0) return `<p role="status">Nothing has “${escaped(words)}”.</p>`;
  const rows = found.map(
    ({ id, heading, page, part }) =>
      `<li><a href="${escaped(addressOf(id))}">${escaped(heading)}</a>${page === heading ? '' : ` · ${escaped(page)}`}<br><small>${escaped(part)}</small></li>`,
  );
  return `<ol class="found">${rows.join('')}</ol>`;
}

const notBuilt: BuiltAnswer = {
  status: 404,
  headers: { 'content-type': pageHeaders['content-type'], 'cache-control': 'no-store' },
  body: page(
    'Documentation',
    `<p>The documentation is not built in this copy, or not yet. <code>npm run build</code> builds it; in the repository it is the folder <code>docs/</code>.</p>
<p><a href="/docs/errors">Error codes</a> · <a href="/openapi.json">The API's document</a></p>`,
  ),
};
