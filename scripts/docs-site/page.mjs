// The frame of a page: navigation, the page, its headings. No script: the search is a form that the account host answers.

export const escaped = (text) =>
  text.replaceAll('&', '&amp;').replaceAll('<', '&lt;').replaceAll('>', '&gt;').replaceAll('"', '&quot;');

/** `page`: `{ slug, title, html, sections }`; `groups`: `{ title, pages: [{ slug, title }] }`; `style`: name of the sheet. */
export function sitePage(page, groups, style) {
  const headings = page.sections.filter(({ depth }) => depth === 2);
  const outline =
    headings.length < 2
      ? ''
      : `<nav class="outline" aria-label="On this page"><p>On this page</p><ul>${headings
          .map(({ title, anchor }) => `<li><a href="#${anchor}">${escaped(title)}</a></li>`)
          .join('')}</ul></nav>`;
  const twin = `/docs/${page.slug}.md`;
  const main = `${page.html}
<p class="twin"><a href="${twin}">This page as Markdown</a></p>`;
  const head = `<link rel="alternate" type="text/markdown" href="${twin}">`;
  return frame({ title: page.title, head, words: '', main, outline, groups, here: page.slug, style });
}

/** The frame of search results, which the account host inserts at the two comments. */
export const searchFrame = (groups, style) =>
  frame({
    title: 'Search',
    head: '<meta name="robots" content="noindex">',
    words: '<!-- words -->',
    main: '<h1>Search</h1>\n<!-- results -->',
    outline: '',
    groups,
    style,
  });

function frame({ title, head, words, main, outline, groups, here, style }) {
  return `<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>${escaped(title)} · Tokenhouse</title>
<link rel="stylesheet" href="/docs/${style}">${head}</head>
<body><a class="skip" href="#content">Skip to the content</a>
<header><a class="home" href="/docs">Tokenhouse</a><a class="menu" href="#pages">Pages</a>
<form class="search" role="search" action="/docs/search"><input type="search" name="q" value="${words}" maxlength="200" placeholder="Search" aria-label="Search the documentation" autocomplete="off" spellcheck="false"></form>
<a href="/">Console</a></header>
<div class="columns"><main id="content" tabindex="-1">${main}</main>${outline}
<nav id="pages" class="pages" aria-label="Pages">${navigation(groups, here)}</nav></div></body></html>
`;
}

function navigation(groups, here) {
  return groups
    .map(({ title, pages }) => {
      const isOpen = title !== 'Reference' || pages.some(({ slug }) => slug === here);
      const items = pages.map(({ slug, title: name }) => {
        const current = slug === here ? ' aria-current="page"' : '';
        return `<li><a href="/docs/${slug}"${current}>${escaped(name)}</a></li>`;
      });
      return `<details${isOpen ? ' open' : ''}><summary>${escaped(title)}</summary><ul>${items.join('')}</ul></details>`;
    })
    .join('');
}
