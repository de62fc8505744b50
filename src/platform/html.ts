/** Escapes a text for HTML, in an element or in a quoted attribute. */
export const escaped = (text: string): string =>
  text
    .replaceAll('&', '&amp;')
    .replaceAll('<', '&lt;')
    .replaceAll('>', '&gt;')
    .replaceAll('"', '&quot;')
    .replaceAll("'", '&#39;');

/**
 * The colours are the browser's own, light or dark as the user prefers; the scheme has to be on the root, which paints the
 * background of the page. On a phone, tables of names and meanings have the meaning below the name.
 */
const style = `:root{color-scheme:light dark;background:Canvas;color:CanvasText}
body{font:16px/1.5 system-ui,sans-serif;max-width:46rem;margin:2rem auto;padding:0 1rem;overflow-wrap:break-word}
table{border-collapse:collapse}td,th{padding:.3rem .6rem;text-align:left;vertical-align:top;border-bottom:1px solid #8884}
dt{font-weight:600;margin-top:.6rem}dd{margin-left:0}
pre{padding:.8rem;white-space:pre-wrap;overflow-wrap:anywhere;background:#8882}
input,button{font:inherit;max-width:100%;box-sizing:border-box;padding:.3rem .5rem}
.card{max-width:26rem;padding:.4rem 1.4rem;border:1px solid #8886;border-radius:.7rem}.amount{margin-bottom:0;font-size:2rem;font-weight:600}.card button{padding:.5rem .9rem;border:1px solid #8886;border-radius:.45rem;background:none;color:inherit}.card .main{border-color:#2f5fd0;background:#2f5fd0;color:#fff}
@media(max-width:40rem){.codes tr{display:grid;grid-template-columns:minmax(0,1fr) auto;border-bottom:1px solid #8884}.codes td,.codes th{border:0}.codes :is(td,th):nth-child(3){grid-column:1/-1;padding-top:0}.facts :is(tr,td){display:block}.facts td:first-child{border:0;padding-bottom:0}}`;

/** Returns a page without scripts. `body` is HTML. */
export function page(title: string, body: string): string {
  return `<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1"><title>${escaped(title)} · Tokenhouse</title>
<style>${style}</style></head>
<body><main><h1>${escaped(title)}</h1>
${body}
</main></body></html>
`;
}

/**
 * Restrictions on the browser for all our pages. `same-origin`: other sites do not see the referrer, but our own hosts do; without
 * it the forms of a page would send an opaque origin (`Origin: null`).
 */
export const pageHeaders = {
  'content-type': 'text/html; charset=utf-8',
  'content-security-policy': "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'; base-uri 'none'",
  'x-content-type-options': 'nosniff',
  'referrer-policy': 'same-origin',
} as const;
