import { createHash } from 'node:crypto';

import { escaped } from '../../platform/html.ts';
import { breakable } from './paper.ts';
import type { Column, Paper, Table } from './paper.ts';

/** Prints dark on light, with the table head repeated on each page. On a phone each table row becomes a card. */
const style = `:root{color-scheme:light dark;background:Canvas;color:CanvasText}
body{font:15px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem;overflow-wrap:break-word}
h1{font-size:1.5rem;line-height:1.25}h2{font-size:1.1rem;margin:0 0 .2rem}
.facts{display:grid;grid-template-columns:max-content 1fr;gap:.1rem 1.5rem}dt{font-weight:600}dd{margin:0;min-width:0}
.parties{display:flex;gap:1.5rem 4rem;flex-wrap:wrap;margin:1.5rem 0}.parties section{min-width:0;max-width:100%}.parties p{margin:0;white-space:pre-line}
table{border-collapse:collapse;width:100%;margin:1.5rem 0}caption{text-align:left;font-weight:600;font-size:1.1rem;padding:0 0 .3rem}
th,td{padding:.35rem 1rem .35rem 0;text-align:left;vertical-align:top;border-bottom:1px solid #8886}thead th{vertical-align:bottom;border-bottom:2px solid #888}
:is(th,td):last-child{padding-right:0}.figure{text-align:right;font-variant-numeric:tabular-nums}:is(td.figure,td.whole){white-space:nowrap}td.words{min-width:10rem;overflow-wrap:anywhere}
.totals{display:grid;grid-template-columns:auto auto;width:max-content;max-width:100%;margin:1.5rem 0 1.5rem auto}
.totals dt{font-weight:400}.totals dd{text-align:right;padding-left:2rem;white-space:nowrap;font-variant-numeric:tabular-nums}
.totals :is(dt,dd):last-of-type{font-weight:700;border-top:2px solid #888;padding-top:.2rem}
@media screen and (max-width:44rem){thead{position:absolute;clip-path:inset(50%);width:1px;height:1px;overflow:hidden;white-space:nowrap}
table,caption,tbody,tr,td{display:block}tr{padding:.5rem 0;border-bottom:1px solid #8886}td{display:flex;justify-content:space-between;gap:1rem;border:0;padding:.1rem 0}
td:empty{display:none}td[data-head]::before{content:attr(data-head);font-weight:600;white-space:normal;overflow-wrap:normal;text-align:left}td.words{text-align:right;min-width:0}td.words>span{min-width:0}}
@media print{:root{color-scheme:light}body{margin:0;max-width:none;font-size:10pt}thead{display:table-header-group}tr{break-inside:avoid}}`;

/** The page's Content-Security-Policy: a browser may display it, with only this style. */
export const paperPolicy = `default-src 'none'; style-src 'sha256-${createHash('sha256').update(style).digest('base64')}'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'`;

/** Returns a page without scripts; all its text is escaped. */
export function paperHtml(paper: Paper): string {
  const list = (facts: Paper['facts'], kind: string): string =>
    `<dl class="${kind}">${facts.map(([label, value]) => `<dt>${escaped(label)}</dt><dd>${broken(value)}</dd>`).join('')}</dl>`;
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
${paper.notes.map((note) => `<p>${escaped(note)}</p>`).join('')}</main></body></html>
`;
}

/** Builds the table. Its roles are explicit because a table displayed as cards would lose them. */
function tableHtml({ caption, columns, rows }: Table): string {
  const head = ({ head: text, kind }: Column): string =>
    `<th scope="col" role="columnheader" class="${kind}">${escaped(text)}</th>`;
  const cell = (text: string, { head: name, kind }: Column): string => {
    const label = name === '' || text === '' ? '' : ` data-head="${escaped(name)}"`;
    const inside = text === '' ? '' : `<span>${kind === 'words' ? broken(text) : escaped(text)}</span>`;
    return `<td role="cell" class="${kind}"${label}>${inside}</td>`;
  };
  return `<table role="table"><caption>${escaped(caption)}</caption><thead role="rowgroup"><tr role="row">${columns.map(head).join('')}</tr></thead><tbody role="rowgroup">${rows
    .map((row) => `<tr role="row">${row.map((text, index) => cell(text, columns[index]!)).join('')}</tr>`)
    .join('')}</tbody></table>`;
}

/** Marks the positions where a long name may be broken. */
const broken = (text: string): string =>
  breakable(text)
    .map((part) => `${escaped(part)}${part.endsWith(' ') ? '' : '<wbr>'}`)
    .join('')
    .replace(/<wbr>$/, '');
