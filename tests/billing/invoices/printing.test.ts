/** HTML and PDF of what was issued: the same words, escaped in the one, readable by programs in the other, whatever the names are. */
import assert from 'node:assert/strict';
import { createHash } from 'node:crypto';
import { test } from 'node:test';
import { extractText, getDocumentProxy } from 'unpdf';

import { paperOf } from '../../../src/billing/invoices/invoice-document.ts';
import { paperHtml, paperPolicy } from '../../../src/billing/invoices/html.ts';
import { alignedDollars, breakable } from '../../../src/billing/invoices/paper.ts';
import type { Paper } from '../../../src/billing/invoices/paper.ts';
import { paperPdf, systemFont } from '../../../src/billing/invoices/pdf.ts';
import { statementData } from '../../../src/billing/invoices/statement.ts';
import type { Buyer } from '../../../src/billing/invoices/statement.ts';
import type { LedgerUsage } from '../../../src/store/reports/ledger-span.ts';
import type { Invoice } from '../../../src/store/repositories/invoices.ts';
import { hostile } from '../../support/hostile.ts';
import { settings } from './invoicing.ts';

const october = Date.UTC(2026, 9, 1);
const november = Date.UTC(2026, 10, 1);

function invoiceOf(buyer: Partial<Buyer>, models: readonly string[] = ['small']): Invoice {
  const usage = models.map((modelId, index): LedgerUsage => ({
    modelId,
    tier: 'default',
    priceMultiple: null,
    plan: null,
    inputPrice: 15_000_000n,
    outputPrice: 60_000_000n,
    cacheReadPrice: 7_500_000n,
    requests: 1_234,
    promptTokens: 5_000_000,
    cachedTokens: 250_000,
    completionTokens: 70_000,
    costMicrocents: 1_234_567_891n - BigInt(index),
  }));
  const data = statementData(
    {
      usage,
      movements: [{ kind: 'topup', ofRevenue: false, count: 1, microcents: 50_000_000_000n }],
      payments: [{ at: october + 5, microcents: 50_000_000_000n, reference: 'pi_1 <b>&', receipt: null, method: null }],
      receiptlessMicrocents: 10n ** 18n,
      refunds: [],
    },
    { openingMicrocents: 0n, earlierMicrocents: 0n, refundsMicrocents: 0n, receiptlessMicrocents: 0n },
    {
      timeZone: 'Europe/Berlin',
      seller: settings.seller,
      tax: { ...settings.tax.rate!, treatment: 'standard', note: null },
      buyer: { name: 'Buyer', address: [], taxId: null, email: null, ...buyer },
      account: { id: 'acct_a', name: 'a' },
    },
  );
  return {
    id: 'inv_000000000000',
    accountId: 'acct_a',
    kind: 'statement',
    number: 'TH-2026-000007',
    month: '2026-10',
    corrects: '',
    periodStart: october,
    periodEnd: november,
    issuedAt: november + 3_600_000,
    totalMicrocents: BigInt(data.totalMicrocents),
    closingMicrocents: 0n,
    data: JSON.stringify(data),
  };
}

async function textOf(pdf: Uint8Array): Promise<string> {
  const { text } = await extractText(await getDocumentProxy(new Uint8Array(pdf)), { mergePages: true });
  return text.replace(/\s+/g, ' ');
}

test('a PDF has a title, is tagged, and its text can be read back, umlauts too', async () => {
  const pdf = await paperPdf(
    paperOf(invoiceOf({ name: 'Müller & Söhne GmbH', address: ['Straße 1', '04109 Leipzig'], taxId: 'DE9' })),
    { font: undefined },
  );
  const document = await getDocumentProxy(new Uint8Array(pdf));
  const { info } = (await document.getMetadata()) as unknown as { readonly info: Readonly<Record<string, unknown>> };
  assert.equal(info['Title'], 'Invoice TH-2026-000007');
  assert.equal(info['Author'], 'Rechenhaus GmbH');
  assert.deepEqual(await document.getMarkInfo(), { Marked: true, UserProperties: false, Suspects: false });
  const tree = JSON.stringify(await (await document.getPage(1)).getStructTree());
  for (const role of ['Document', 'H1', 'H2', 'P', 'Table', 'TR', 'TH', 'TD'])
    assert.match(tree, new RegExp(`"${role}"`));
  const text = await textOf(pdf);
  for (const part of [
    'Invoice TH-2026-000007',
    'Period 2026-10-01 to 2026-11-01 (Europe/Berlin)',
    'Rechenhaus GmbH',
    'Lange Straße 1',
    'Müller & Söhne GmbH',
    'Tax id: DE9',
    'input $0.15, cached $0.075, output $0.60',
    '5,000,000',
    '$12.34567891',
    'VAT 19 % $1.97',
    'Without tax $10.38',
    'Total (USD) $12.35',
    'page 1 of 1',
  ])
    assert.ok(text.includes(part), `${part} is in: ${text}`);
});

test('the same document makes the same bytes', async () => {
  const invoice = invoiceOf({ name: 'Ångström' });
  const [one, other] = [
    await paperPdf(paperOf(invoice), { font: undefined }),
    await paperPdf(paperOf(invoice), { font: undefined }),
  ];
  assert.ok(Buffer.from(one).equals(Buffer.from(other)));
});

test('names with markup, a turned direction and no blanks are printed as they are, in both', async () => {
  for (const length of [50, 100, 200]) {
    const paper = paperOf(invoiceOf({ name: hostile(length) }, [hostile(length)]));
    for (const tag of ['img', 'script']) assert.ok(!paperHtml(paper).includes(`<${tag}`), `${length}`);
    assert.match(
      (await textOf(await paperPdf(paper, { font: systemFont() }))).replaceAll(/\s/g, ''),
      /<imgsrc=xclass=hostile/,
    );
  }
});

test('letters beyond Western Europe: printed where there is a font, and said to be missing where there is none', async (t) => {
  const invoice = invoiceOf({ name: 'Łódź Οδός Київ' });
  const without = await textOf(await paperPdf(paperOf(invoice), { font: undefined }));
  assert.match(without, /\?ód\?/);
  assert.match(without, /Letters that are missing in the font of this file/);
  const font = systemFont();
  if (font === undefined) {
    t.skip('this computer has none of the fonts that are looked for');
    return;
  }
  const text = await textOf(await paperPdf(paperOf(invoice), { font }));
  assert.ok(text.includes('Łódź Οδός Київ'), text);
  assert.doesNotMatch(text, /are missing in the font/);
  const rare = await textOf(await paperPdf(paperOf(invoiceOf({ name: '\u{13000} Київ' })), { font }));
  assert.ok(rare.includes('? Київ'), rare);
  assert.match(rare, /are missing in the font/);
});

test('a long statement goes on over pages, and none of its lines is lost', async () => {
  const models = Array.from({ length: 150 }, (_, index) => `model-${String(index).padStart(3, '0')}`);
  const text = await textOf(await paperPdf(paperOf(invoiceOf({}, models)), { font: undefined }));
  for (const model of models) assert.ok(text.includes(model), model);
  assert.match(text, /page 1 of [3-9]/);
});

interface Printed {
  readonly str: string;
  readonly width: number;
  readonly transform: readonly number[];
}

/** The pieces of text of each page, with their places. */
async function pagesOf(pdf: Uint8Array): Promise<readonly (readonly Printed[])[]> {
  const document = await getDocumentProxy(new Uint8Array(pdf));
  const pages: (readonly Printed[])[] = [];
  for (let number = 1; number <= document.numPages; number++) {
    const { items } = await (await document.getPage(number)).getTextContent();
    pages.push(items.filter((item) => 'str' in item && item.str.trim() !== '') as unknown as Printed[]);
  }
  return pages;
}

test('amounts stand below each other, the head is on every page, and names are broken behind their signs only', async () => {
  const long = 'meta-llama/Llama-3.3-70B-Instruct-Turbo-FP8-128k-with-a-very-long-context';
  const models = [long, ...Array.from({ length: 90 }, (_, index) => `model-${index}`)];
  const pages = await pagesOf(await paperPdf(paperOf(invoiceOf({}, models)), { font: undefined }));
  assert.ok(pages.length > 2);
  const text = (page: readonly Printed[]): readonly string[] => page.map(({ str }) => str);
  const withUsage = pages.filter((page) => text(page).includes('1,234'));
  for (const page of withUsage)
    for (const head of ['Model', 'Requests', 'Amount'])
      assert.equal(
        text(page).filter((str) => str === head).length,
        page === withUsage.at(-1) ? 1 + Number(head === 'Amount') * 2 : 1,
        head,
      );
  const right = ({ width, transform }: Printed): number => Math.round(10 * (transform[4]! + width));
  const amounts = pages.flat().filter(({ str }) => /^-?\$[\d,]+\.\d{8}$/.test(str));
  assert.ok(amounts.length > models.length);
  assert.equal(new Set(amounts.map(right)).size, 1, 'all end at the same place');
  const counts = pages.flat().filter(({ str }) => str === '1,234' || str === 'Requests');
  assert.equal(new Set(counts.map(right)).size, 1);
  const parts = text(pages[0]!).filter((str) => /^[\w./-]+$/.test(str) && long.includes(str) && str.length > 3);
  assert.equal(parts.join(''), long);
  for (const part of parts.slice(0, -1)) assert.match(part, /[/-]$/);
  // Inside the page.
  for (const one of pages.flat())
    assert.ok(one.transform[4]! >= 48 - 0.1 && right(one) <= 10 * (595.28 - 48) + 1, one.str);
});

test('amounts in words of a column have the same number of decimals; whatever the amounts, they are exact', () => {
  const cases: readonly (readonly [readonly bigint[], readonly string[]])[] = [
    [[], []],
    [
      [0n, 100_000_000n],
      ['$0.00', '$1.00'],
    ],
    [
      [123_456_789_000_000n, -5n],
      ['$1,234,567.89000000', '-$0.00000005'],
    ],
    [
      [150_000_000n, 112_500_000n],
      ['$1.500', '$1.125'],
    ],
    [[99_999_999_999_999_900_000_000n], ['$999,999,999,999,999.00']],
  ];
  for (const [amounts, texts] of cases) assert.deepEqual(alignedDollars(amounts), texts);
});

test('where a line may end', () => {
  for (const [text, parts] of [
    ['', ['']],
    ['two words', ['two ', 'words']],
    ['a/b-c_d:e@f', ['a/', 'b-', 'c_', 'd:', 'e@', 'f']],
    ['3.5, 1,000.00', ['3.5, ', '1,000.00']],
    ['-x --y /z z/', ['-x ', '--y ', '/z ', 'z/']],
    ['input\u00a0$1.00, output\u00a0$2.00', ['input\u00a0$1.00, ', 'output\u00a0$2.00']],
  ] as const)
    assert.deepEqual(breakable(text), parts);
});

/** Where a long name may be broken is no part of it. */
const withoutBreaks = (paper: Paper): string => paperHtml(paper).replaceAll('<wbr>', '');

test('HTML: everything escaped, no script, and its one style is the one that its policy allows', () => {
  const evil = '<script>alert(1)</script>" onload="x\' & {{7*7}}';
  const html = withoutBreaks(paperOf(invoiceOf({ name: evil, address: [evil], taxId: evil }, [evil])));
  assert.doesNotMatch(html, /<script|onload="x'/);
  assert.ok(html.includes('&lt;script&gt;alert(1)&lt;/script&gt;&quot; onload=&quot;x&#39; &amp;'));
  assert.ok(html.includes('pi_1 &lt;b&gt;&amp;'));
  const style = /<style>([^]*?)<\/style>/.exec(html)![1]!;
  const hash = createHash('sha256').update(style).digest('base64');
  assert.ok(paperPolicy.includes(`style-src 'sha256-${hash}'`));
  assert.doesNotMatch(html, /style=/);
  assert.ok(html.includes('<dt>Total (USD)</dt><dd>$12.35</dd>'));
});
