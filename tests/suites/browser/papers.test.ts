/** Invoices, receipts and credit notes as pages, with the longest that they may say: in one piece on a phone and on a desktop. */
import assert from 'node:assert/strict';
import { createServer } from 'node:http';
import type { Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { after, before, describe, test } from 'node:test';

import { paperOf } from '../../../src/billing/invoices/invoice-document.ts';
import { paperHtml, paperPolicy } from '../../../src/billing/invoices/html.ts';
import type { Paper } from '../../../src/billing/invoices/paper.ts';
import { receiptPaper } from '../../../src/billing/invoices/receipt.ts';
import { longReceipt, longStatement } from '../../billing/invoices/long-papers.ts';
import type { Page } from 'playwright-core';
import { looks, openBrowser, Person } from './browser.ts';

const papers: ReadonlyMap<string, Paper> = new Map([
  ['/statement', paperOf(longStatement())],
  ['/receipt', receiptPaper(longReceipt('receipt'))],
  ['/credit_note', receiptPaper(longReceipt('credit_note'))],
]);
let server: Server;
let url = '';
before(async () => {
  server = createServer((request, response) => {
    const paper = papers.get(request.url ?? '');
    response.writeHead(paper === undefined ? 204 : 200, {
      'content-type': 'text/html; charset=utf-8',
      'content-security-policy': paperPolicy,
    });
    response.end(paper === undefined ? undefined : paperHtml(paper));
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
});
after(() => {
  server.close();
  server.closeAllConnections();
});

describe('every document', () => {
  for (const look of looks)
    test(look.name, async (t) => {
      const person = await Person.at(await openBrowser(t), look, [url]);
      for (const path of papers.keys()) {
        await person.open(url + path);
        assert.deepEqual(await brokenHeads(person.page), [], path);
      }
      await person.leave();
    });
});

/** On a phone a cell says its column's head before it: the heads that are narrower than their longest word, so that it is broken. */
const brokenHeads = async (page: Page): Promise<readonly string[]> =>
  (await page.evaluate(`[...document.querySelectorAll('td[data-head]')].flatMap((cell) => {
    const style = getComputedStyle(cell, '::before');
    if (cell.textContent === '' || style.content === 'none') return [];
    const word = document.createElement('span');
    word.style.cssText = 'position:absolute;white-space:nowrap;font-weight:' + style.fontWeight;
    cell.append(word);
    const widths = cell.dataset.head.split(' ').map((text) => {
      word.textContent = text;
      return word.getBoundingClientRect().width;
    });
    word.remove();
    return Number.parseFloat(style.width) + 1 < Math.max(...widths) ? [cell.dataset.head] : [];
  })`)) as readonly string[];
