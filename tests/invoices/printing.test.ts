/** HTML and PDF of what was issued: the same words, escaped in the one, readable by programs in the other, whatever the names are. */
import assert from 'node:assert/strict';
import { createHash } from 'node:crypto';
import { test } from 'node:test';
import { extractText, getDocumentProxy } from 'unpdf';

import { invoiceHtml, invoicePolicy } from '../../src/invoices/html.ts';
import { invoicePdf, systemFont } from '../../src/invoices/pdf.ts';
import { statementData } from '../../src/invoices/statement.ts';
import type { Buyer } from '../../src/invoices/statement.ts';
import type { BookedUsage, Invoice } from '../../src/store/invoice-queries.ts';
import { settings } from './house.ts';

const october = Date.UTC(2026, 9, 1);
const november = Date.UTC(2026, 10, 1);

function invoiceOf(buyer: Partial<Buyer>, models: readonly string[] = ['small']): Invoice {
  const usage = models.map((modelId, index): BookedUsage => ({
    modelId,
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
      payments: [{ at: october + 5, microcents: 50_000_000_000n, reference: 'pi_1 <b>&' }],
      refunds: [],
    },
    { openingMicrocents: 0n, earlierMicrocents: 0n, refundsMicrocents: 0n },
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
  const pdf = await invoicePdf(
    invoiceOf({ name: 'Müller & Söhne GmbH', address: ['Straße 1', '04109 Leipzig'], taxId: 'DE9' }),
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
    'Period: 2026-10-01 to 2026-11-01 (Europe/Berlin)',
    'Rechenhaus GmbH',
    'Lange Straße 1',
    'Müller & Söhne GmbH',
    'Tax id: DE9',
    'input $0.15, cached $0.075, output $0.60',
    '5,000,000',
    '$12.34567891',
    'VAT 19 %: $1.97',
    'Without tax: $10.38',
    'Total (USD): $12.35',
    'page 1 of 1',
  ])
    assert.ok(text.includes(part), `${part} is in: ${text}`);
});

test('the same document makes the same bytes', async () => {
  const invoice = invoiceOf({ name: 'Ångström' });
  const [one, other] = [await invoicePdf(invoice, { font: undefined }), await invoicePdf(invoice, { font: undefined })];
  assert.ok(Buffer.from(one).equals(Buffer.from(other)));
});

test('letters beyond Western Europe: printed where there is a font, and said to be missing where there is none', async (t) => {
  const invoice = invoiceOf({ name: 'Łódź Οδός Київ' });
  const without = await textOf(await invoicePdf(invoice, { font: undefined }));
  assert.match(without, /\?ód\?/);
  assert.match(without, /Letters that the font of this file does not have/);
  const font = systemFont();
  if (font === undefined) {
    t.skip('this computer has none of the fonts that are looked for');
    return;
  }
  const text = await textOf(await invoicePdf(invoice, { font }));
  assert.ok(text.includes('Łódź Οδός Київ'), text);
  assert.doesNotMatch(text, /does not have/);
  const rare = await textOf(await invoicePdf(invoiceOf({ name: '\u{13000} Київ' }), { font }));
  assert.ok(rare.includes('? Київ'), rare);
  assert.match(rare, /does not have/);
});

test('a long statement goes on over pages, and none of its lines is lost', async () => {
  const models = Array.from({ length: 150 }, (_, index) => `model-${String(index).padStart(3, '0')}`);
  const text = await textOf(await invoicePdf(invoiceOf({}, models), { font: undefined }));
  for (const model of models) assert.ok(text.includes(model), model);
  assert.match(text, /page 1 of [3-9]/);
});

test('HTML: everything escaped, no script, and its one style is the one that its policy allows', () => {
  const evil = '<script>alert(1)</script>" onload="x\' & {{7*7}}';
  const html = invoiceHtml(invoiceOf({ name: evil, address: [evil], taxId: evil }, [evil]));
  assert.doesNotMatch(html, /<script|onload="x'/);
  assert.ok(html.includes('&lt;script&gt;alert(1)&lt;/script&gt;&quot; onload=&quot;x&#39; &amp;'));
  assert.ok(html.includes('pi_1 &lt;b&gt;&amp;'));
  const style = /<style>([^]*?)<\/style>/.exec(html)![1]!;
  const hash = createHash('sha256').update(style).digest('base64');
  assert.ok(invoicePolicy.includes(`style-src 'sha256-${hash}'`));
  assert.doesNotMatch(html, /style=/);
  assert.ok(html.includes('<dt>Total (USD)</dt><dd>$12.35</dd>'));
});
