import { createHash } from 'node:crypto';

import { escaped } from '../html.ts';
import type { Invoice } from '../store/invoice-queries.ts';
import { paperOf } from './document.ts';
import type { Table } from './document.ts';

const style = `body{font:15px/1.5 system-ui,sans-serif;max-width:56rem;margin:2rem auto;padding:0 1rem;color:#111;background:#fff}
h1{font-size:1.5rem}dl{display:grid;grid-template-columns:max-content 1fr;gap:0 1rem}dt{font-weight:600}dd{margin:0}
.parties{display:flex;gap:3rem;flex-wrap:wrap}.parties p{margin:0;white-space:pre-line}
table{border-collapse:collapse;width:100%;margin:1.5rem 0}caption{text-align:left;font-weight:600;font-size:1.1rem}
th,td{padding:.3rem .5rem;text-align:left;vertical-align:top;border-bottom:1px solid #ccc;overflow-wrap:anywhere}
.figure{text-align:right;white-space:nowrap}.totals dd{text-align:right}.totals{width:max-content;margin-left:auto}
.totals dt:last-of-type,.totals dd:last-of-type{font-weight:700}footer{color:#444}@media print{body{margin:0}}`;

/** What a browser may do with the page: show it, with this one style. */
export const invoicePolicy = `default-src 'none'; style-src 'sha256-${createHash('sha256').update(style).digest('base64')}'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'`;

/** A page without scripts; every text of it is escaped. */
export function invoiceHtml(invoice: Invoice): string {
  const paper = paperOf(invoice);
  const list = (facts: typeof paper.facts, kind: string): string =>
    `<dl class="${kind}">${facts.map(([label, value]) => `<dt>${escaped(label)}</dt><dd>${escaped(value)}</dd>`).join('')}</dl>`;
  return `<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1"><title>${escaped(paper.title)}</title>
<style>${style}</style></head>
<body><main><h1>${escaped(paper.title)}</h1>
${list(paper.facts, 'facts')}
<div class="parties">${paper.parties
    .map(
      ({ heading, lines }) =>
        `<section><h2>${escaped(heading)}</h2>${lines.map((line) => `<p dir="auto">${escaped(line)}</p>`).join('')}</section>`,
    )
    .join('')}</div>
${paper.tables.map(tableHtml).join('\n')}
${list(paper.totals, 'totals')}
</main><footer>${paper.notes.map((note) => `<p>${escaped(note)}</p>`).join('')}</footer></body></html>
`;
}

function tableHtml({ caption, head, rows, words }: Table): string {
  const cell = (tag: string) => (text: string, column: number) =>
    `<${tag}${tag.startsWith('th') ? ' scope="col"' : ''}${column < words ? '' : ' class="figure"'}>${escaped(text)}</${tag}>`;
  return `<table><caption>${escaped(caption)}</caption><thead><tr>${head.map(cell('th')).join('')}</tr></thead><tbody>${rows
    .map((row) => `<tr>${row.map(cell('td')).join('')}</tr>`)
    .join('')}</tbody></table>`;
}
