// The frame of a page: navigation, the page, its headings.

export const escaped = (text) =>
  text.replaceAll('&', '&amp;').replaceAll('<', '&lt;').replaceAll('>', '&gt;').replaceAll('"', '&quot;');

/** `page`: `{ slug, title, html, sections }`; `groups`: `{ title, pages: [{ slug, title }] }`. */
export function sitePage(page, groups) {
  const isHere = ({ slug }) => slug === page.slug;
  const navigation = groups.map(
    (group) =>
      `<details${group.pages.some(isHere) || group.title !== 'Reference' ? ' open' : ''}><summary>${escaped(group.title)}</summary><ul>${group.pages
        .map((entry) => {
          const here = isHere(entry) ? ' aria-current="page"' : '';
          return `<li><a href="/docs/${entry.slug}"${here}>${escaped(entry.title)}</a></li>`;
        })
        .join('')}</ul></details>`,
  );
  const headings = page.sections.filter(({ depth }) => depth === 2);
  const outline =
    headings.length < 2
      ? ''
      : `<nav class="outline" aria-label="On this page"><p>On this page</p><ul>${headings
          .map(({ title, anchor }) => `<li><a href="#${anchor}">${escaped(title)}</a></li>`)
          .join('')}</ul></nav>`;
  return `<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>${escaped(page.title)} · Tokenhouse</title>
<link rel="stylesheet" href="/docs/site.css"><link rel="alternate" type="text/markdown" href="/docs/${page.slug}.md">
<script src="/docs/site.js" defer></script></head>
<body><a class="skip" href="#content">Skip to the content</a>
<header><a class="home" href="/docs">Tokenhouse</a><button type="button" class="menu" aria-expanded="false" aria-controls="pages">Pages</button>
<div class="search" role="search"><input type="search" placeholder="Search ( / )" aria-label="Search the documentation" autocomplete="off" spellcheck="false" disabled><div class="found" role="status" aria-live="polite" hidden></div></div>
<a href="/">Console</a></header>
<div class="columns"><nav id="pages" class="pages" aria-label="Pages">${navigation.join('')}</nav>
<main id="content" tabindex="-1">${page.html}
<p class="twin"><a href="/docs/${page.slug}.md">This page as Markdown</a></p></main>${outline}</div></body></html>
`;
}
