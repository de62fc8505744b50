// The documentation as a site: `dist/docs`, which the account host serves at `/docs`. Every Markdown file that docs/README.md reaches
// becomes a page and keeps a twin in Markdown; the API's reference is printed from its OpenAPI documents; `search.json`
// is what the search reads, and `llms.txt` what agents read. A link to a page or a heading that does not exist fails the build.
import fs from 'node:fs';
import path from 'node:path';
import { brotliCompressSync, constants, gzipSync } from 'node:zlib';
import { referencePages } from './docs-site/reference.mjs';
import { escaped, sitePage } from './docs-site/page.mjs';
import { isStarted, root, say, setup } from './setup.mjs';

/** Everything else is found by following links from here. */
const start = 'docs/README.md';

/** Builds the site into a folder, which is replaced. */
export async function buildDocs(folder = path.join(root, 'dist', 'docs')) {
  const startedAt = Date.now();
  const files = await siteFiles();
  const draft = `${folder}.${process.pid}`;
  fs.rmSync(draft, { recursive: true, force: true });
  for (const [name, content] of Object.entries(files)) writeCompressed(path.join(draft, name), content);
  fs.rmSync(folder, { recursive: true, force: true });
  fs.renameSync(draft, folder);
  say(`docs     ${Object.keys(files).length} files in ${((Date.now() - startedAt) / 1000).toFixed(1)} s`);
}

/** Path below the site → its text. */
export async function siteFiles() {
  const { Marked } = await import('marked');
  const documents = new Map();
  const waiting = [start];
  for (let file = waiting.shift(); file !== undefined; file = waiting.shift()) {
    if (documents.has(file)) continue;
    const document = parseDocument(Marked, file, slugOf(file), textOf(file));
    documents.set(file, document);
    waiting.push(...document.links.flatMap(({ target }) => (target.endsWith('.md') ? [target] : [])));
  }
  checkLinks(documents);
  const reference = (await referencePages()).map(({ slug, text }) => parseDocument(Marked, slug, slug, text));
  const groups = [...contentsOf(documents.get(start)), { title: 'Reference', pages: reference }];
  const pages = [...documents.values(), ...reference].map((page) => ({ ...page, html: page.print() }));
  return {
    ...Object.fromEntries(pages.map((page) => [`${page.slug}.html`, sitePage(page, groups)])),
    ...Object.fromEntries(pages.map(({ slug, markdown }) => [`${slug}.md`, markdown])),
    ...(await assets()),
    'search.json': JSON.stringify(pages.flatMap(searchEntries)),
    'llms.txt': llmsText(groups),
    'llms-full.txt': pages.map(({ markdown }) => markdown.trimEnd()).join('\n\n---\n\n') + '\n',
  };
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

/** Without comments, which are for tests and for `npm run docs`. */
const textOf = (file) => fs.readFileSync(path.join(root, file), 'utf8').replaceAll(/^<!--[^]*?-->\n?/gm, '');

/** `print()` gives the HTML; `sections` is what the search finds; `links` are those to files of the repository. */
function parseDocument(Marked, file, slug, text) {
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
      // The parts of a list are walked after the list itself, which has all of their text.
      if (!section.text.includes(token.raw.trim())) section.text += `${token.raw.trim()}\n`;
    }
  });
  marked.use({
    renderer: {
      // Our pages have no HTML: what looks like it is a placeholder such as <account id>.
      html: ({ text: words }) => escaped(words),
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

/** Links to files of the repository become addresses of the site; those to what is not a document lose their link. */
function resolveLink(token, file, links) {
  if (/^[a-z]+:/i.test(token.href)) return;
  const [name, anchor] = token.href.split('#');
  const target = name === '' ? file : path.posix.normalize(path.posix.join(path.posix.dirname(file), name));
  if (target.startsWith('..') || !fs.existsSync(path.join(root, target)))
    throw new Error(`${file} links to ${token.href}, which is not there`);
  links.push({ target, anchor, href: token.href });
  if (!target.endsWith('.md')) {
    token.type = 'codespan';
    token.text = token.text.replaceAll('`', '');
  } else token.href = addressOf(target) + (anchor === undefined ? '' : `#${anchor}`);
}

function checkLinks(documents) {
  for (const { file, links } of documents.values())
    for (const { target, anchor, href } of links) {
      if (anchor === undefined || !target.endsWith('.md')) continue;
      if (!documents.get(target).sections.some((section) => section.anchor === anchor))
        throw new Error(`${file} links to ${href}, and there is no such heading`);
    }
}

/** GitHub's: lower case, no punctuation, hyphens for spaces, a number for what is there already. */
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
      .replaceAll(/[`*|]+|\]\([^)]*\)|^\s*[-:| ]+$/gm, ' ')
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

/** The style and the one script, which searches and copies. */
async function assets() {
  const { build } = await import('esbuild');
  const folder = path.join(root, 'scripts', 'docs-site');
  const { outputFiles } = await build({
    entryPoints: [path.join(folder, 'site.js'), path.join(folder, 'site.css')],
    bundle: true,
    minify: true,
    write: false,
    format: 'iife',
    target: 'es2022',
    outdir: '.',
  });
  return Object.fromEntries(outputFiles.map((file) => [path.basename(file.path), file.text]));
}

/** With what browsers take compressed: a request then costs a read. */
function writeCompressed(file, text) {
  fs.mkdirSync(path.dirname(file), { recursive: true });
  fs.writeFileSync(file, text);
  fs.writeFileSync(`${file}.gz`, gzipSync(text, { level: 9 }));
  const params = { [constants.BROTLI_PARAM_QUALITY]: 9 };
  fs.writeFileSync(`${file}.br`, brotliCompressSync(text, { params }));
}

if (isStarted(import.meta.url)) {
  setup();
  await buildDocs();
}
