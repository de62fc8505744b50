/** The documentation as it is built from this repository and served at `/docs`: whole, without a script, and nothing beside it. */
import assert from 'node:assert/strict';
import { mkdirSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { test } from 'node:test';
import { pathToFileURL } from 'node:url';

import { indexOf, searchDocs } from '../../src/account-api/docs-search.ts';
import { inRepository } from '../support/repository.ts';
import { openHost } from './host.ts';

const { buildDocs } = (await import(pathToFileURL(inRepository('scripts/docs-site.mjs')).href)) as {
  buildDocs(folder: string): Promise<void>;
};

const idsOf = (html: string): ReadonlySet<string> => new Set([...html.matchAll(/ id="([^"]*)"/g)].map(([, id]) => id!));
const linksOf = (html: string): readonly string[] => [...html.matchAll(/ href="([^"]*)"/g)].map(([, href]) => href!);

test('the documentation of this repository', async (t) => {
  const host = await openHost(t, []);
  const get = (path: string, headers: Readonly<Record<string, string>> = {}) => fetch(host.url + path, { headers });
  const folder = join(dirname(host.file), 'docs');

  await t.test('that is not built says so, and the pages of errors are there without it', async () => {
    const start = await get('/docs');
    assert.equal(start.status, 404);
    assert.match(await start.text(), /npm run build/);
    assert.equal((await get('/docs/errors')).status, 200);
    for (const path of ['/docs/api', '/docs/search?q=key', '/llms.txt'])
      assert.equal((await get(path)).status, 404, path);
  });

  await buildDocs(folder);
  // Beside the site, not in it.
  writeFileSync(join(folder, '..', 'secret.html'), 'secret');
  writeFileSync(join(folder, 'secret.html'), 'secret');
  mkdirSync(join(folder, 'empty'));

  const pages = new Map<string, string>();
  const pictures = new Set<string>();
  await t.test('has no dead link, no script, and a twin of every page', async () => {
    const waiting = ['/docs'];
    const links: (readonly [string, string])[] = [];
    for (let path = waiting.shift(); path !== undefined; path = waiting.shift()) {
      if (pages.has(path)) continue;
      const answer = await get(path);
      assert.equal(answer.status, 200, path);
      const html = await answer.text();
      pages.set(path, html);
      if (!path.startsWith('/docs') || !answer.headers.get('content-type')?.startsWith('text/html')) continue;
      const withoutPictures = html.replaceAll(/<img src="(\/docs\/pictures\/[\w-]+\.webp)" /g, (_, picture: string) => {
        pictures.add(picture);
        return '<img ';
      });
      assert.doesNotMatch(withoutPictures, /<script|javascript:|<[^>]*\s(src|on\w+|style)=/, path);
      const policy = answer.headers.get('content-security-policy') ?? '';
      // Pages of errors bring their style in themselves.
      assert.match(policy, /^default-src 'none'; style-src '(self|unsafe-inline)'/, path);
      assert.doesNotMatch(policy, /script-src/);
      for (const link of linksOf(html).filter((one) => !/^(https?|mailto):/.test(one))) {
        const { pathname, hash } = new URL(link, host.url + path);
        links.push([pathname, decodeURIComponent(hash.slice(1))]);
        waiting.push(pathname);
      }
    }
    for (const [path, anchor] of links)
      assert.ok(anchor === '' || idsOf(pages.get(path)!).has(anchor), `a link to ${path}#${anchor}`);
    const sitePages = [...pages].filter(([, html]) => html.includes('class="pages"'));
    assert.ok(sitePages.length > 60, `${sitePages.length} pages`);
    for (const [path] of sitePages) {
      const twin = pages.get(path === '/docs' ? '/docs/index.md' : `${path}.md`);
      assert.match(twin ?? '', /^# /, path);
    }
  });

  await t.test('has its pictures, which its policy allows, with their sizes and what they show', async () => {
    assert.ok(pictures.size >= 6, `${pictures.size} pictures`);
    for (const picture of pictures) {
      const answer = await get(picture, { 'accept-encoding': 'gzip' });
      assert.deepEqual(
        [answer.status, answer.headers.get('content-type'), answer.headers.get('content-encoding')],
        [200, 'image/webp', null],
        picture,
      );
      assert.equal(Buffer.from(await answer.arrayBuffer()).toString('latin1', 8, 12), 'WEBP', picture);
    }
    const { headers } = await get('/docs/tutorial-sell');
    assert.match(headers.get('content-security-policy') ?? '', /; img-src 'self';/);
    const shown = [...pages.get('/docs/tutorial-sell')!.matchAll(/<img [^>]*>/g)].map(([image]) => image);
    assert.ok(shown.length >= 6);
    for (const image of shown)
      assert.match(image, / width="\d{3,4}" height="\d{3,4}" loading="lazy" alt="[^"]{60,}">$/);
  });

  await t.test('is compressed, and sent again only when it has changed', async () => {
    const first = await get('/docs/api', { 'accept-encoding': 'gzip' });
    assert.equal(first.headers.get('content-encoding'), 'gzip');
    assert.equal(first.headers.get('cache-control'), 'no-cache');
    assert.equal(await first.text(), pages.get('/docs/api'));
    const etag = first.headers.get('etag') ?? '';
    for (const sent of [etag, `W/"other", ${etag}`, '*']) {
      const again = await get('/docs/api', { 'if-none-match': sent });
      assert.equal(again.status, 304, sent);
      assert.equal(again.headers.get('content-length'), null);
      assert.equal(again.headers.get('etag'), etag);
    }
    assert.equal((await get('/docs/api', { 'if-none-match': 'W/"other"' })).status, 200);
    const sheet = [...pages.keys()].find((path) => path.endsWith('.css'))!;
    assert.match((await get(sheet)).headers.get('cache-control') ?? '', /immutable/);
  });

  await t.test('has an index for agents', async () => {
    const text = await (await get('/llms.txt')).text();
    assert.match(text, /^# Tokenhouse\n\n> /);
    const named = [...text.matchAll(/\]\((\/docs\/\S+\.md)\)/g)].map(([, path]) => path!);
    assert.ok(named.length > 40);
    for (const path of named) assert.ok(pages.has(path), path);
    assert.equal((await get('/docs/llms-full.txt')).headers.get('content-type'), 'text/plain; charset=utf-8');
  });

  await t.test('has nothing beside it, and nothing of its folder that is no page', async () => {
    for (const path of [
      '/docs/secret',
      '/docs/../secret',
      '/docs/..%2fsecret',
      '/docs/%2e%2e/secret',
      '/docs/..\\secret',
      '/docs//etc/passwd',
      '/docs/empty',
      '/docs/api.html',
      '/docs/api.html.gz',
      '/docs/api/',
      '/docs/manifest.json',
      '/docs/search.json',
      '/docs/search.html',
      '/docs/constructor',
      '/docs/__proto__',
      '/docs/toString.md',
      '/docsearch',
    ]) {
      const answer = await host.ask('GET', path);
      assert.equal(answer.status, 404, path);
      assert.match(answer.body, /<a href="\/docs">Documentation<\/a>/, path);
      assert.ok(answer.body.length < 3000);
      assert.doesNotMatch(answer.body, /secret/);
    }
    assert.equal((await host.ask('POST', '/docs/api')).status, 405);
  });

  await t.test('is searched by this host', async () => {
    const found = async (words: string) => await (await get(`/docs/search?q=${encodeURIComponent(words)}`)).text();
    const first = async (words: string) =>
      linksOf(/<ol class="found">[^]*<\/ol>/.exec(await found(words))?.[0] ?? '')[0];
    assert.equal(await first('json SCHEMA'), '/docs/constraints#json-schema');
    assert.match((await first('retention')) ?? '', /^\/docs\//);
    const link = (await first('STRIPE webhook')) ?? '';
    assert.ok(idsOf(pages.get(link.split('#')[0]!)!).has(link.split('#')[1]!), link);
    assert.match(await found(''), /a few words/);
    for (const words of ['zyxwvut', '<script>alert(1)</script>', '$& $1 " onfocus="x']) {
      const html = await found(words);
      assert.match(html, /Nothing has/);
      assert.doesNotMatch(html, /<script|" onfocus/);
      assert.equal(html.split('<main').length, 2, 'the frame is whole');
    }
    const long = await get(`/docs/search?q=${'a+'.repeat(3_000)}&q=b`);
    assert.equal(long.status, 200);
    assert.ok((await long.text()).length < 100_000);
    for (const query of ['', '?', '?q', '?q=%ff%', '?x=1'])
      assert.equal((await get(`/docs/search${query}`)).status, 200);
  });

  await t.test('is searched by programs, in the same order; each result leads to its heading', async () => {
    const json = { accept: 'application/json' };
    const find = async (words: string) =>
      (await (await get(`/docs/search?q=${encodeURIComponent(words)}`, json)).json()) as {
        readonly object: string;
        readonly data: readonly Readonly<Record<'url' | 'heading' | 'page' | 'part', string>>[];
      };
    for (const words of ['json SCHEMA', 'retention', 'run it', 'back up']) {
      const { object, data } = await find(words);
      const html = await (await get(`/docs/search?q=${encodeURIComponent(words)}`)).text();
      assert.equal(object, 'list');
      assert.ok(data.length > 0 && data.length <= 20, words);
      const shown = /<ol class="found">[^]*<\/ol>/.exec(html)![0];
      assert.deepEqual(
        data.map(({ url }) => url),
        linksOf(shown),
      );
      for (const { url, heading, page, part } of data) {
        const [path, anchor] = url.split('#');
        assert.ok(idsOf(pages.get(path!)!).has(anchor!), url);
        assert.ok(
          [heading, page, part].every((text) => typeof text === 'string' && text !== ''),
          url,
        );
      }
    }
    for (const words of ['', 'zyxwvut', '<script>']) assert.deepEqual(await find(words), { object: 'list', data: [] });
    const answer = await get('/docs/search?q=key', json);
    assert.equal(answer.headers.get('content-type'), 'application/json; charset=utf-8');
    assert.equal(answer.headers.get('vary'), 'accept');
    // A browser, which accepts everything, gets the page.
    const page = await get('/docs/search?q=key', { accept: 'text/html,application/json;q=0.9,*/*;q=0.8' });
    assert.match(page.headers.get('content-type') ?? '', /^text\/html/);
  });

  assert.deepEqual(host.failures, []);
});

test('a section is found by all of its words, wherever they stand; a heading counts more', () => {
  const section = (id: string, page: string, heading: string, text: string) => ({ id, page, heading, text });
  const index = indexOf([
    section('a', 'Keys', 'Limits', 'How many requests a key may make.'),
    section('b', 'Operations', 'Backup', 'Keys keys keys keys keys keys are in the backup.'),
    section('c', 'Keys', 'Rotation', 'A new secret.'),
  ]);
  const ids = (words: string) => searchDocs(index, words).map(({ id }) => id);
  for (const [words, expected] of [
    ['keys', ['b', 'a', 'c']],
    ['KEYS rotation', ['c']],
    ['backup', ['b']],
    ['keys nothing', []],
    ['  ', []],
    ['a b c d e f g h nothing', []],
  ] as const)
    assert.deepEqual(ids(words), expected, words);
});

test('what is shown of a section is whole words around the one that was found', () => {
  const words = Array.from({ length: 100 }, (_, number) => `word${number}`);
  const text = words.join(' ');
  const index = indexOf([{ id: 'a', page: 'Page', heading: 'Heading', text }]);
  for (const wanted of words) {
    const part = searchDocs(index, wanted)[0]!.part;
    const shown = part.split(' ').filter((word) => word !== '…');
    assert.ok(shown.includes(wanted) && shown.every((word) => words.includes(word)), part);
    assert.equal(part.startsWith('… '), shown[0] !== words[0]);
    assert.equal(part.endsWith(' …'), shown.at(-1) !== words.at(-1));
  }
});
