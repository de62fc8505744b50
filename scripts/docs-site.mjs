// The documentation as a site: `dist/docs`, which the account host serves at `/docs` (src/account-api/docs-site.ts). Every Markdown
// file that docs/README.md reaches becomes a page without a script, next to its Markdown version; the API reference is printed from
// its OpenAPI documents; the account host searches `search.json`, and agents read `llms.txt`. A link to a page or a heading that
// does not exist fails the build. `manifest.json` lists what is served.
//
//   node scripts/docs-site.mjs
import { createHash } from 'node:crypto';
import fs from 'node:fs';
import path from 'node:path';
import { gzipSync } from 'node:zlib';
import { importSources } from './bundle.mjs';
import { referencePages } from './docs-site/reference.mjs';
import { escaped, searchFrame, sitePage } from './docs-site/page.mjs';
import { isStarted, readJson, root, say, setup } from './setup.mjs';

/** The folder that the account host serves. */
export const docsFolder = path.join(root, 'dist', 'docs');

/** Everything else is found by following links from here. */
const start = 'docs/README.md';

/** Files that are not served as they are. */
const frame = 'search.html';
const index = 'search.json';

/** Builds the site into a folder, which is replaced. Throws with a message. */
export async function buildDocs(folder = docsFolder) {
  const startedAt = Date.now();
  const { files, documents } = await siteFiles();
  const draft = `${folder}.${process.pid}`;
  fs.rmSync(draft, { recursive: true, force: true });
  const listed = Object.entries(files).flatMap(([name, text]) => {
    const file = write(path.join(draft, name), text);
    return name === frame || name === index ? [] : [[name, file]];
  });
  // Only a clone builds it again; elsewhere the hash, which is also that of a built program, would make each build another.
  const sources = folder === docsFolder ? { documents, hash: hashOfSources(documents) } : undefined;
  const manifest = { sources, start: 'index.html', frame, index, files: Object.fromEntries(listed) };
  fs.writeFileSync(path.join(draft, 'manifest.json'), JSON.stringify(manifest));
  fs.rmSync(folder, { recursive: true, force: true });
  fs.renameSync(draft, folder);
  say(`docs     ${listed.length} files in ${((Date.now() - startedAt) / 1000).toFixed(1)} s`);
}

/** For command line use: builds if necessary; reports why it cannot, and the process ends with 1. */
export async function buildDocsOrSay() {
  if (!areDocsStale()) return;
  try {
    await buildDocs();
  } catch (error) {
    say(`docs     not built: ${error.message}`);
    process.exitCode = 1;
  }
}

/** Call it after a build of the program, from which the reference is printed. A copy without the documents has nothing to build. */
export function areDocsStale() {
  if (!fs.existsSync(path.join(root, start))) return false;
  const { documents, hash } = readJson(path.join(docsFolder, 'manifest.json'))?.sources ?? {};
  return hash === undefined || hash !== hashOfSources(documents);
}

/** A hash of everything that determines the build; the main file of the program names all others by their content. */
function hashOfSources(documents) {
  const form = fs.readdirSync(path.join(root, 'scripts', 'docs-site')).map((name) => `scripts/docs-site/${name}`);
  const hash = createHash('sha256');
  for (const name of [...documents, ...form, 'scripts/docs-site.mjs', 'dist/main.js']) {
    const file = path.join(root, name);
    hash.update(`${name}\0`).update(fs.existsSync(file) ? fs.readFileSync(file) : '');
  }
  return hash.digest('hex');
}

/** `files`: path below the site → its text; `documents`: the files of the repository that it was made of. */
export async function siteFiles() {
  const { Marked } = await import('marked');
  const [{ measure }] = await importSources('src/inference/images/measure.ts');
  const tools = { Marked, measure };
  const documents = new Map();
  const waiting = [start];
  for (let file = waiting.shift(); file !== undefined; file = waiting.shift()) {
    if (documents.has(file)) continue;
    const document = parseDocument(tools, file, slugOf(file), textOf(file));
    documents.set(file, document);
    waiting.push(...document.links.flatMap(({ target }) => (target.endsWith('.md') ? [target] : [])));
  }
  checkLinks(documents);
  const reference = (await referencePages()).map(({ slug, text }) => parseDocument(tools, slug, slug, text));
  const groups = [...contentsOf(documents.get(start)), { title: 'Reference', pages: reference }];
  const pages = [...documents.values(), ...reference].map((page) => ({ ...page, html: page.print() }));
  const imagesOf = (ending) =>
    [...documents.values()].flatMap(({ links }) =>
      links.flatMap(({ target }) => (target.endsWith(ending) ? [target] : [])),
    );
  const [drawings, pictures] = [imagesOf('.svg'), imagesOf('.webp')];
  const style = fs.readFileSync(path.join(root, 'scripts', 'docs-site', 'site.css'), 'utf8');
  const styleName = `site-${hashOf(style)}.css`;
  const files = {
    ...Object.fromEntries(pages.map((page) => [`${page.slug}.html`, sitePage(page, groups, styleName)])),
    ...Object.fromEntries(pages.map(({ slug, markdown }) => [`${slug}.md`, markdown])),
    ...Object.fromEntries(drawings.map((file) => [file.replace(/^docs\//, ''), textOf(file)])),
    ...Object.fromEntries(pictures.map((file) => [file.replace(/^docs\//, ''), bytesOf(file)])),
    [styleName]: style,
    [frame]: searchFrame(groups, styleName),
    [index]: JSON.stringify(pages.flatMap(searchEntries)),
    'llms.txt': llmsText(groups),
    'llms-full.txt': pages.map(({ markdown }) => markdown.trimEnd()).join('\n\n---\n\n') + '\n',
  };
  return { files, documents: [...documents.keys(), ...drawings, ...pictures] };
}

const slugs = { [start]: 'index', 'README.md': 'readme', 'docs/decisions/README.md': 'decisions' };

/** `docs/api.md` → `api`, `bench/results.md` → `bench/results`, `SECURITY.md` → `security`. */
const slugOf = (file) =>
  slugs[file] ??
  file
    .replace(/^docs\//, '')
    .replace(/\.md$/, '')
    .toLowerCase();

const addressOf = (file) => (file === start ? '/docs' : `/docs/${slugOf(file)}`);

/** The text without comments, which are for tests and for `npm run check -- --fix`. */
const textOf = (file) => fs.readFileSync(path.join(root, file), 'utf8').replaceAll(/^<!--[^]*?-->\n?/gm, '');

const bytesOf = (file) => fs.readFileSync(path.join(root, file));

/** `print()` returns the HTML; `sections` is what the search finds; `links` are those to files of the repository. */
function parseDocument({ Marked, measure }, file, slug, text) {
  const marked = new Marked({ gfm: true });
  const links = [];
  const sections = [];
  const used = new Map();
  const tokens = marked.lexer(text);
  marked.walkTokens(tokens, (token) => {
    if (token.type === 'link' || token.type === 'image') resolveLink(token, file, links);
    if (token.type === 'heading') {
      token.anchor = anchorOf(plain(token.tokens), used);
      sections.push({ title: plain(token.tokens), anchor: token.anchor, depth: token.depth, text: '' });
    } else if (sections.length > 0 && ['paragraph', 'code', 'table', 'list'].includes(token.type)) {
      const section = sections.at(-1);
      // The parts of a list are visited after the list itself, which has all of their text.
      if (!section.text.includes(token.raw.trim())) section.text += `${token.raw.trim()}\n`;
    }
  });
  marked.use({
    renderer: {
      // Our pages have no HTML: what looks like it is a placeholder such as <account id>.
      html: ({ text: words }) => escaped(words),
      // In the page itself a drawing has the colours of the page (site.css) instead of its own, which GitHub shows.
      image: ({ drawing, picture, text: words }) =>
        picture === undefined
          ? textOf(drawing)
              .replace(/<style>.*?<\/style>\n/, '')
              .replace('<svg', '<svg class="drawing"')
          : pictureHtml(picture, words, measure),
      // Scrollable elements can be reached with the keyboard.
      code: ({ text: words }) => `<pre tabindex="0"><code>${escaped(words)}\n</code></pre>\n`,
      heading({ tokens: inner, depth, anchor }) {
        const words = this.parser.parseInline(inner);
        if (depth === 1) return `<h1 id="${anchor}">${words}</h1>\n`;
        return `<h${depth} id="${anchor}"><a class="anchor" href="#${anchor}">${words}</a></h${depth}>\n`;
      },
      table(token) {
        const row = (cells, tag) =>
          `<tr>${cells.map(({ tokens: inner, align }) => `<${tag}${align ? ` class="${align}"` : ''}>${this.parser.parseInline(inner)}</${tag}>`).join('')}</tr>`;
        const isHeadless = token.header.every(({ text: cell }) => cell.trim() === '');
        const head = isHeadless ? '' : `<thead>${row(token.header, 'th')}</thead>`;
        return `<div class="wide" tabindex="0"><table>${head}<tbody>${token.rows.map((cells) => row(cells, 'td')).join('')}</tbody></table></div>\n`;
      },
    },
  });
  const title = sections[0]?.title;
  if (title === undefined) throw new Error(`${file} has no heading`);
  return { file, slug, title, markdown: text, sections, links, tokens, print: () => marked.parser(tokens) };
}

/** Links to files of the repository become addresses of the site; those to other files become plain text. */
function resolveLink(token, file, links) {
  if (/^[a-z]+:/i.test(token.href)) return;
  const [name, anchor] = token.href.split('#');
  const target = name === '' ? file : path.posix.normalize(path.posix.join(path.posix.dirname(file), name));
  if (target.startsWith('..') || !fs.existsSync(path.join(root, target)))
    throw new Error(`${file} links to ${token.href}, which is not there`);
  links.push({ target, anchor, href: token.href });
  if (token.type === 'image' && target.endsWith('.svg')) token.drawing = target;
  else if (token.type === 'image' && target.endsWith('.webp')) token.picture = target;
  else if (!target.endsWith('.md')) {
    token.type = 'codespan';
    token.text = token.text.replaceAll('`', '');
  } else token.href = addressOf(target) + (anchor === undefined ? '' : `#${anchor}`);
}

/** With its size, so that nothing moves when it arrives. */
function pictureHtml(file, words, measure) {
  const bytes = bytesOf(file);
  const measured = measure({ length: bytes.length, at: (start, count) => bytes.subarray(start, start + count) });
  if (typeof measured === 'string') throw new Error(`${file} ${measured}`);
  const { width, height } = measured.size;
  return `<img src="/${file}" width="${width}" height="${height}" loading="lazy" alt="${escaped(words)}">`;
}

function checkLinks(documents) {
  for (const { file, links } of documents.values())
    for (const { target, anchor, href } of links) {
      if (anchor === undefined || !target.endsWith('.md')) continue;
      if (!documents.get(target).sections.some((section) => section.anchor === anchor))
        throw new Error(`${file} links to ${href}, and there is no such heading`);
    }
}

/** GitHub's anchors: lower case, no punctuation, hyphens for spaces, a number for duplicates. */
function anchorOf(text, used) {
  const base = text
    .toLowerCase()
    .replaceAll(/[^\p{L}\p{N}\p{M}\s_-]/gu, '')
    .replaceAll(' ', '-');
  const count = used.get(base) ?? 0;
  used.set(base, count + 1);
  return count === 0 ? base : `${base}-${count}`;
}

const plain = (tokens) => tokens.map((token) => (token.tokens ? plain(token.tokens) : token.text)).join('');

/** The groups of docs/README.md, in its order. */
function contentsOf(document) {
  const groups = [];
  for (const token of document.tokens) {
    if (token.type === 'heading' && token.depth === 2) groups.push({ title: plain(token.tokens), pages: [] });
    if (token.type !== 'list') continue;
    for (const item of token.items) {
      const link = item.tokens[0].tokens.find(({ type }) => type === 'link');
      const what = plain(item.tokens[0].tokens).slice(link.text.length).replace(/^: /, '');
      groups.at(-1).pages.push({ slug: link.href.replace(/^\/docs\//, ''), title: link.text, what });
    }
  }
  return groups;
}

const searchEntries = ({ slug, title, sections }) =>
  sections.map(({ title: heading, anchor, text }) => ({
    id: `${slug}#${anchor}`,
    page: title,
    heading,
    text: text
      .replaceAll(/^ *```\w*$/gm, ' ')
      .replaceAll(/[`*|]+|!\[|\]\([^)]*\)|^\s*[-:| ]+$/gm, ' ')
      .replaceAll(/\s+/g, ' ')
      .slice(0, 4000),
  }));

function llmsText(groups) {
  const lines = groups.map(({ title, pages }) => {
    const rows = pages.map((page) => `- [${page.title}](/docs/${page.slug}.md)${page.what ? `: ${page.what}` : ''}`);
    return `## ${title}\n${rows.join('\n')}`;
  });
  const about = textOf('README.md').split('\n\n')[1].replaceAll('\n', ' ');
  return `# Tokenhouse\n\n> ${about}\n\nEvery page has a twin in Markdown: add \`.md\` to its address. All of them: /docs/llms-full.txt\n\n${lines.join('\n\n')}\n`;
}

const types = {
  '.html': 'text/html; charset=utf-8',
  '.css': 'text/css; charset=utf-8',
  '.md': 'text/markdown; charset=utf-8',
  '.svg': 'image/svg+xml',
  '.webp': 'image/webp',
  '.txt': 'text/plain; charset=utf-8',
};

const hashOf = (text) => createHash('sha256').update(text).digest('hex').slice(0, 16);

/**
 * Writes a file, compressed where it gains by that, and returns its entry in the manifest: a request then costs one read, and whoever does not accept
 * it has it unzipped. Both forms would be a tenth of the package. Brotli takes ten times as long for a tenth less.
 */
function write(file, content) {
  const [plain, gz] = [Buffer.from(content), gzipSync(content)];
  fs.mkdirSync(path.dirname(file), { recursive: true });
  const entry = { type: types[path.extname(file)], bytes: plain.length, etag: `W/"${hashOf(content)}"` };
  const isSmaller = gz.length <= 0.9 * plain.length;
  fs.writeFileSync(isSmaller ? `${file}.gz` : file, isSmaller ? gz : plain);
  if (!isSmaller) return entry;
  return { ...entry, gz: gz.length };
}

if (isStarted(import.meta.url)) {
  setup();
  await buildDocs();
}
