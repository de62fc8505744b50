/** Invoices as the account API shows them, to those who may see what the account pays, and as they are sent by mail. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { extractText, getDocumentProxy } from 'unpdf';

import { openScene } from '../../notifications/webhooks/receiver.ts';
import { account, dayMs, moved, spent } from './invoicing.ts';

/** Months from before the database was made would not be mailed. */
const year = new Date().getUTCFullYear() + 1;
const september = Date.UTC(year, 8, 1);
const october = Date.UTC(year, 9, 1);
const november = Date.UTC(year, 10, 1);

test('an invoice is listed, read, printed and mailed; another account has nothing of it', async (t) => {
  const { host, ask, clock } = await openScene(t, []);
  const { ledger, repositories } = host.services.operations;
  const paper = { store: { ledger: ledger as never, repositories } };
  await account(paper, 'acct_p', september, 'Müller & <Söhne>');
  await repositories.editAccount({
    accountId: 'acct_p',
    billing: { invoiceEmail: 'bills@example.org', addressLines: ['Straße 1'], taxId: 'DE 1', country: 'DE' },
    at: september,
    changeId: host.services.operations.newId(),
  });
  const key = await host.key('acct_p', 'billing');
  for (const [index, at] of [september, october].entries()) {
    await moved(paper, 'acct_p', 50_000_000n, at + 1);
    await spent(paper, 'acct_p', 12_345_678n + BigInt(index), at + dayMs);
  }
  clock.now = november + dayMs;
  await host.jobs.run('invoices');
  await host.jobs.run('notices');

  const page = (await ask('GET', '/v1/invoices?limit=1', undefined, key)).json as {
    readonly data: readonly { readonly id: string; readonly number: string }[];
    readonly has_more: boolean;
    readonly next_after: string;
  };
  assert.deepEqual([page.data[0]!.number, page.has_more], [`TH-${year}-000002`, true]);
  const rest = (await ask('GET', `/v1/invoices?after=${page.next_after}`, undefined, key)).json as typeof page;
  assert.deepEqual([rest.data.map(({ number }) => number), rest.has_more], [[`TH-${year}-000001`], false]);

  const { id } = page.data[0]!;
  const whole = (await ask('GET', `/v1/invoices/${id}`, undefined, key)).json as {
    readonly total_cents: number;
    readonly total_microcents: number;
    readonly buyer: object;
    readonly statement: { readonly opening_microcents: number; readonly closing_microcents: number };
  };
  assert.deepEqual([whole.total_cents, whole.total_microcents], [12, 12_345_679]);
  assert.deepEqual(whole.buyer, {
    name: 'Müller & <Söhne>',
    address: ['Straße 1', 'DE'],
    tax_id: 'DE 1',
    email: 'bills@example.org',
  });
  assert.deepEqual(
    [whole.statement.opening_microcents, whole.statement.closing_microcents],
    [50_000_000 - 12_345_678, 100_000_000 - 12_345_678 - 12_345_679],
  );

  const html = await host.ask('GET', `/v1/invoices/${id}.html`, { key });
  assert.equal(html.status, 200);
  assert.ok(html.body.toString().includes('Müller &amp; &lt;Söhne&gt;'));
  assert.match(String(html.headers['content-security-policy']), /^default-src 'none'; style-src 'sha256-/);
  const pdf = await fetch(`${host.url}/v1/invoices/${id}.pdf`, { headers: { authorization: `Bearer ${key}` } });
  assert.equal(pdf.headers.get('content-type'), 'application/pdf');
  const bytes = new Uint8Array(await pdf.arrayBuffer());
  const { text } = await extractText(await getDocumentProxy(bytes), { mergePages: true });
  assert.ok(text.includes('Müller & <Söhne>'), text);

  assert.deepEqual(
    host.mails.map(({ to, subject, kind, attachments }) => [to, subject, kind, attachments!.map(({ name }) => name)]),
    [
      ['bills@example.org', `Monthly statement TH-${year}-000001`, 'invoice', [`TH-${year}-000001.pdf`]],
      ['bills@example.org', `Monthly statement TH-${year}-000002`, 'invoice', [`TH-${year}-000002.pdf`]],
    ],
  );
  for (const path of ['', '.html', '.pdf']) {
    const { status, json } = await ask('GET', `/v1/invoices/${id}${path}`);
    assert.deepEqual([status, (json as { error: { code: string } }).error.code], [404, 'http_404'], path);
  }
  const developer = await host.key('acct_p', 'developer');
  assert.equal((await ask('GET', '/v1/invoices', undefined, developer)).status, 403);
});
