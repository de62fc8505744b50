/** Each payment leaves one receipt, no matter who reports it and how often; what it says is what was paid, and by whose tax. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { TestContext } from 'node:test';
import fc from 'fast-check';
import { extractText, getDocumentProxy } from 'unpdf';

import { accountRoutes } from '../../../src/account-api/routes.ts';
import type { Config } from '../../../src/config/config.ts';
import { paperOf, readData } from '../../../src/billing/invoices/invoice-document.ts';
import { methodText, taxOfPart } from '../../../src/billing/invoices/receipt.ts';
import { receiptlessAfter, statementData } from '../../../src/billing/invoices/statement.ts';
import { PaymentError } from '../../../src/billing/payments/provider.ts';
import type { PaymentDetails } from '../../../src/billing/payments/provider.ts';
import { taxWithin } from '../../../src/tax/tax.ts';
import { openConnection } from '../../../src/store/sqlite/connection.ts';
import { openHost } from '../../account-api/host.ts';
import { withDemoPayments } from '../payments/demo-services.ts';
import { input } from '../payments/claims.ts';
import { differencesOf, grant, uuid } from '../../store/fixture.ts';
import { account, dayMs, moved, openPaper, refunded, settings, spent } from './invoicing.ts';

const cent = 1_000_000n;

async function open(t: TestContext) {
  const { seller, tax, prefix } = settings;
  const host = await openHost(t, accountRoutes, Date.now, {
    config: { invoices: { seller, tax, prefix, font: undefined } } as unknown as Partial<Config>,
    more: withDemoPayments,
  });
  const accountId = await host.account('acct_a');
  const key = await host.key(accountId, 'billing');
  const { demo, payments, operations } = host.services;
  const { repositories } = operations;
  const bill = (billing: object) => repositories.editAccount({ accountId, billing, at: Date.now(), changeId: uuid() });
  const pay = async (amountCents = 1190, outcome: 'success' | 'duplicate' = 'success') => {
    const topup = await payments!.createTopup(input(accountId, amountCents));
    await demo!.play(topup.checkoutId!, outcome);
    return topup;
  };
  const get = async (path: string, as = key) => {
    const answer = await host.ask('GET', path, { key: as });
    const body = (answer.status === 200 && path.endsWith('html') ? {} : JSON.parse(answer.body.toString())) as Shown;
    return {
      status: answer.status,
      text: answer.body.toString().replaceAll('<wbr>', ''),
      headers: answer.headers,
      body,
    };
  };
  const receipts = async (): Promise<readonly Shown[]> => (await get('/v1/receipts?limit=100')).body.data.toReversed();
  const issue = async () => assert.ok(await host.jobs.run('receipts'));
  return { host, accountId, key, repositories, demo: demo!, payments: payments!, bill, pay, get, receipts, issue };
}

// oxlint-disable-next-line typescript/no-explicit-any
type Shown = any;

const year = new Date().getUTCFullYear();

test('a paid top-up leaves one receipt: listed, as a page, as a PDF, by mail and to webhooks', async (t) => {
  const { host, accountId, bill, pay, get, receipts, issue } = await open(t);
  await bill({ legalName: 'Müller & <Söhne>', country: 'FR', invoiceEmail: 'bills@example.org' });
  const topup = await pay(1200, 'duplicate');
  assert.equal((await get(`/v1/credits/topups/${topup.id}`)).body.receipt_id, null);
  await issue();
  await issue();
  const [receipt, ...others] = await receipts();
  assert.deepEqual(others, []);
  assert.equal((await get(`/v1/credits/topups/${topup.id}`)).body.receipt_id, receipt.id);
  assert.equal((await get('/v1/credits/topups')).body.data[0].receipt_id, receipt.id);
  assert.deepEqual(
    [receipt.kind, receipt.number, receipt.topup_id, receipt.origin, receipt.total_cents, receipt.method],
    ['receipt', `TH-R${year}-000001`, topup.id, 'checkout', 1200, 'Demonstration: no money has moved'],
  );
  assert.deepEqual(receipt.tax, {
    name: 'TVA',
    rate_per_mille: 200,
    percent: '20',
    cents: 200,
    treatment: 'standard',
    note: null,
  });
  const whole = (await get(`/v1/receipts/${receipt.id}`)).body;
  assert.deepEqual([whole.buyer.name, whole.seller.name], ['Müller & <Söhne>', 'Rechenhaus GmbH']);

  const html = await get(`/v1/receipts/${receipt.id}.html`);
  assert.equal(html.status, 200);
  assert.match(String(html.headers['content-security-policy']), /^default-src 'none'; style-src 'sha256-/);
  assert.ok(html.text.includes('Müller &amp; &lt;Söhne&gt;') && html.text.includes('<dt>TVA 20 %</dt><dd>$2.00</dd>'));
  const pdf = await fetch(`${host.url}/v1/receipts/${receipt.id}.pdf`, {
    headers: { authorization: `Bearer ${await host.key(accountId, 'owner')}` },
  });
  assert.match(String(pdf.headers.get('content-disposition')), /TH-R\d{4}-000001\.pdf/);
  const { text } = await extractText(await getDocumentProxy(new Uint8Array(await pdf.arrayBuffer())), {
    mergePages: true,
  });
  const words = text.replace(/\s+/g, ' ');
  for (const part of [
    `Receipt TH-R${year}-000001`,
    'Paid on 20',
    'Method Demonstration: no money has moved',
    'Without tax $10.00',
    'TVA 20 % $2.00',
    'Total paid (USD) $12.00',
    'This receipt is the invoice for the payment.',
  ])
    assert.ok(words.includes(part), `${part} is in: ${words}`);

  await host.jobs.run('notices');
  await host.jobs.run('notices');
  assert.deepEqual(
    host.mails.map(({ to, kind, subject, attachments }) => [to, kind, subject, attachments!.map(({ name }) => name)]),
    [['bills@example.org', 'receipt', `Receipt TH-R${year}-000001 from Rechenhaus GmbH`, [`TH-R${year}-000001.pdf`]]],
  );

  const stranger = await host.key(await host.account('acct_b'), 'owner');
  for (const path of ['', '.html', '.pdf'])
    assert.equal((await get(`/v1/receipts/${receipt.id}${path}`, stranger)).status, 404, path);
  assert.equal((await get('/v1/receipts', await host.key(accountId, 'developer'))).status, 403);
});

test('what a customer is: the tax of each payment is theirs on the day, and no receipt changes afterwards', async (t) => {
  const { bill, pay, receipts, issue, get } = await open(t);
  for (const billing of [
    {},
    { country: 'FR', taxId: 'FR12345678901' },
    { taxStatus: 'reverse_charge' },
    { taxStatus: 'exempt' },
  ]) {
    await bill(billing);
    await pay(1190);
    await issue();
  }
  const all = await receipts();
  assert.deepEqual(
    all.map(({ tax }) => [tax.name, tax.cents, tax.treatment]),
    [
      ['VAT', 190, 'standard'],
      ['TVA', 198, 'standard'],
      ['TVA', 0, 'reverse_charge'],
      ['TVA', 0, 'exempt'],
    ],
  );
  assert.deepEqual(
    all.map(({ total_cents }) => total_cents),
    [1190, 1190, 1190, 1190],
  );
  const page = (await get(`/v1/receipts/${all[2].id}.html`)).text;
  assert.match(page, /Reverse charge: VAT is accounted for by the recipient, Article 196/);
  assert.match(page, /Tax id: FR12345678901/);
});

test('numbers have no gaps and each payment one receipt, however many issue at once; another kind of credit has none', async (t) => {
  const { host, accountId, repositories, pay, receipts, issue } = await open(t);
  for (let count = 0; count < 6; count++) await pay(500 + count);
  const { ledger } = host.services.operations;
  await ledger.transfer(grant(accountId, 5n * cent));
  const due = await repositories.listUnreceipted({ since: 0, limit: 100 });
  assert.equal(due.length, 6);
  const issueOne = (transferId: Uint8Array, index: number) =>
    repositories.issueReceipt({
      receipt: {
        id: `rcpt_${String(index).padStart(12, '0')}`,
        accountId,
        kind: 'receipt',
        transferId,
        provider: null,
        returnId: null,
        corrects: '',
        topupId: null,
        totalMicrocents: cent,
        method: 'x',
        data: JSON.stringify({ paidAt: 0, tax: null, totalCents: 1 }),
        noticeId: `evt_${index}`,
      },
      year,
      prefix: 'TH-',
      at: Date.now(),
    });
  const twice = [...due.slice(0, 3), ...due.slice(0, 3)].map(({ transferId }, index) => issueOne(transferId, index));
  assert.deepEqual((await Promise.all(twice)).toSorted(), [false, false, false, true, true, true]);
  await issue();
  assert.deepEqual(
    (await receipts()).map(({ number }) => number),
    [1, 2, 3, 4, 5, 6].map((sequence) => `TH-R${year}-00000${sequence}`),
  );
  const connection = openConnection(host.file);
  t.after(() => connection.close());
  for (const statement of [
    `update receipt set data = '{}'`,
    'delete from receipt',
    'insert or replace into receipt select * from receipt',
  ])
    assert.throws(() => connection.exec(statement), /receipt is immutable/, statement);
});

test('a payment that an operator records leaves a receipt, too', async (t) => {
  const { host, accountId, receipts, issue } = await open(t);
  const operator = await host.key(accountId, 'owner', true);
  const recorded = await host.ask('POST', '/v1/admin/credits', {
    key: operator,
    headers: [['Idempotency-Key', 'recorded']],
    json: { account_id: accountId, type: 'topup', amount_cents: 2380, reason: 'bank transfer 7 <b>' },
  });
  assert.equal(recorded.status, 200, recorded.body.toString());
  await issue();
  const [receipt] = await receipts();
  assert.deepEqual(
    [receipt.origin, receipt.topup_id, receipt.total_cents, receipt.tax.cents, receipt.method],
    ['recorded', null, 2380, 380, 'Recorded by the seller'],
  );
});

test('a receipt waits for a provider that is away, and not for one that knows nothing; others do not wait with it', async (t) => {
  const { host, accountId, payments, pay, receipts, issue } = await open(t);
  let answer: PaymentDetails | 'unavailable' | 'declined' = 'unavailable';
  let asked = 0;
  Object.assign(payments.provider, {
    paymentDetails: () => {
      asked++;
      if (typeof answer === 'string') return Promise.reject(new PaymentError(answer, 'no'));
      return Promise.resolve(answer);
    },
  });
  await pay(1000);
  await pay(1000);
  const operator = await host.key(accountId, 'owner', true);
  await host.ask('POST', '/v1/admin/credits', {
    key: operator,
    headers: [['Idempotency-Key', 'recorded']],
    json: { account_id: accountId, type: 'topup', amount_cents: 100, reason: 'cash' },
  });
  await issue();
  assert.deepEqual(
    (await receipts()).map(({ origin }) => origin),
    ['recorded'],
  );
  assert.equal(asked, 1, 'it is not asked for each');
  answer = 'declined';
  await issue();
  assert.deepEqual((await receipts()).map(({ method }) => method).toSorted(), [
    'Demonstration: no money has moved',
    'Demonstration: no money has moved',
    'Recorded by the seller',
  ]);
  answer = {
    method: { type: 'card', brand: 'visa', last4: '4242' },
    tax: { cents: 81, name: 'Sales tax', percent: '8.875', treatment: 'standard' },
  };
  await pay(1000);
  await issue();
  const last = (await receipts()).at(-1)!;
  assert.equal(last.method, 'Visa ending in 4242');
  assert.deepEqual(last.tax, {
    name: 'Sales tax',
    rate_per_mille: null,
    percent: '8.875',
    cents: 81,
    treatment: 'standard',
    note: null,
  });
});

test('what is returned leaves a credit note with its share of the tax, and a reversal when that has failed', async (t) => {
  const { demo, payments, pay, receipts, issue, get } = await open(t);
  const topup = await pay(1190);
  await issue();
  const { paymentId } = (await get(`/v1/credits/topups/${topup.id}`)).body as { paymentId: string };
  assert.equal(paymentId, undefined, 'the wire has no such name');
  const payment = (await demo.getCheckout(topup.checkoutId!))!.paymentId!;
  await payments.provider.refund({ paymentId: payment, amountCents: 595, idempotencyKey: 'half' });
  await issue();
  await issue();
  await demo.play(topup.checkoutId!, 'refund_failure');
  await issue();
  await demo.play(topup.checkoutId!, 'dispute');
  await issue();
  await demo.play(topup.checkoutId!, 'win');
  await issue();
  await issue();
  const all = await receipts();
  assert.deepEqual(
    all.map(({ kind, total_cents, tax, corrects }) => [kind, total_cents, tax.cents, corrects]),
    [
      ['receipt', 1190, 190, null],
      ['credit_note', 595, 95, all[0].id],
      ['credit_note_reversal', 595, 95, all[1].id],
      ['credit_note', 1190, 190, all[0].id],
      ['credit_note_reversal', 1190, 190, all[3].id],
    ],
  );
  const page = (await get(`/v1/receipts/${all[1].id}.html`)).text;
  assert.match(page, new RegExp(`<dt>Corrects</dt><dd>${all[0].number}</dd>`));
  assert.match(page, /Payment refunded/);
});

test('a payment that an operator returns leaves a credit note for the receipt that it names, and never for more than was paid', async (t) => {
  const { host, accountId, demo, payments, pay, receipts, issue, get } = await open(t);
  const operator = await host.key(accountId, 'owner', true);
  const credit = (key: string, json: object, account = accountId) =>
    host.ask('POST', '/v1/admin/credits', {
      key: operator,
      headers: [['Idempotency-Key', key]],
      json: { account_id: account, ...json },
    });
  const statusOf = async (key: string, json: object, account = accountId) => (await credit(key, json, account)).status;
  assert.equal(await statusOf('paid', { type: 'topup', amount_cents: 2380, reason: 'bank transfer 7' }), 200);
  const topup = await pay(1190);
  await issue();
  const [recorded, paid] = (await receipts()).toSorted((one, other) => other.total_cents - one.total_cents);

  // By its number or its id, once for each key, and as much as has not been returned, whoever returned it.
  const half = { type: 'payback', amount_cents: 1190, receipt_id: recorded.number, reason: 'bank transfer 8' };
  for (const again of [false, true])
    assert.equal(((await credit('half', half)).json() as Shown).again, again, `again: ${again}`);
  const refused = await credit('too-much', { ...half, amount_cents: 1191 });
  assert.equal(refused.status, 409, refused.body.toString());
  assert.match(refused.body.toString(), new RegExp(`receipt ${recorded.number}, \\$11\\.90 has not been returned yet`));
  assert.equal(await statusOf('rest', { ...half, receipt_id: recorded.id, type: 'chargeback' }), 200);
  const payment = (await demo.getCheckout(topup.checkoutId!))!.paymentId!;
  await payments.provider.refund({ paymentId: payment, amountCents: 595, idempotencyKey: 'half' });
  assert.equal(await statusOf('most', { type: 'payback', amount_cents: 596, receipt_id: paid.id }), 409);
  assert.equal(await statusOf('fits', { type: 'payback', amount_cents: 595, receipt_id: paid.id }), 200);

  // What is no receipt of a payment of this account moves nothing.
  await issue();
  await issue();
  const all = await receipts();
  const note = all.find(({ kind }) => kind === 'credit_note')!;
  const other = await host.account('acct_b');
  assert.equal(await statusOf('given', { type: 'topup', amount_cents: 500 }, other), 200);
  for (const [key, json, account] of [
    ['note', { ...half, receipt_id: note.id }, accountId],
    ['nothing', { ...half, receipt_id: 'TH-R1999-000001' }, accountId],
    ['stranger', { ...half, amount_cents: 1 }, other],
  ] as const)
    assert.match((await credit(key, json, account)).body.toString(), /has no receipt .* of a payment/);
  for (const type of ['grant', 'topup', 'expire', 'adjust', 'refund_request'])
    assert.match((await credit(type, { ...half, type })).body.toString(), /"param":"receipt_id"/);

  assert.deepEqual(
    all
      .filter(({ kind }) => kind === 'credit_note')
      .map(({ total_cents, tax, corrects, method }) => [corrects, total_cents, tax.cents, method])
      .toSorted(),
    [
      [recorded.id, 1190, 190, 'Recorded by the seller'],
      [recorded.id, 1190, 190, 'Recorded by the seller'],
      [paid.id, 595, 95, 'Demonstration: no money has moved'],
      [paid.id, 595, 95, 'Recorded by the seller'],
    ].toSorted(),
  );
  const pages = await Promise.all(
    all.filter(({ corrects }) => corrects === recorded.id).map(({ id }) => get(`/v1/receipts/${id}.html`)),
  );
  const text = pages.map((page) => page.text).join('');
  assert.match(
    text,
    /Payment refunded.*Payment taken back by the bank|Payment taken back by the bank.*Payment refunded/s,
  );
  assert.match(text, /<dt>Reference<\/dt><dd>bank transfer 8<\/dd>/);
  assert.doesNotMatch(text, /operator:/, 'the key of the movement is not printed');
  assert.deepEqual(await differencesOf(host.file, false), []);
});

test('nothing is taxed twice: credit from before receipts on the statement that uses it, all other on its receipt', async (t) => {
  // In this database payments leave receipts from now on.
  const now = Date.now();
  const month = (offset: number): number =>
    Date.UTC(new Date(now).getUTCFullYear(), new Date(now).getUTCMonth() + offset);
  const paper = await openPaper(t, month(0));
  const id = 'acct_a';
  await account(paper, id, month(-1));
  await moved(paper, id, 1000n * cent, month(-1) + dayMs);
  const first = await spent(paper, id, 400n * cent, month(-1) + 2 * dayMs);
  await moved(paper, id, 2000n * cent, month(1) + dayMs);
  await spent(paper, id, 900n * cent, month(1) + 2 * dayMs);
  await spent(paper, id, 500n * cent, month(2) + dayMs);
  await refunded(paper, first, 200n * cent, month(3) + dayMs);
  await spent(paper, id, 300n * cent, month(3) + 2 * dayMs);
  await spent(paper, id, 100n * cent, month(4) + dayMs);
  paper.clock.now = month(5) + dayMs;
  while (await paper.invoices.issueDue());
  const found = await paper.store.repositories.listInvoices({ accountId: id, limit: 100 });
  const shown = found.toReversed().map((invoice) => {
    const { soldMicrocents, tax } = readData(invoice);
    const { title, totals } = paperOf(invoice);
    return [title.replace(/ TH.*/, ''), Number(BigInt(soldMicrocents!) / cent), tax?.cents ?? null, totals.length];
  });
  assert.deepEqual(shown, [
    ['Invoice', 400, 64, 3],
    // 600 were left of the first payment, 300 are of the second.
    ['Invoice', 600, 96, 4],
    ['Monthly statement', 0, null, 1],
    ['Invoice', 200, 32, 4],
    ['Credit note', 200, 32, 3],
    ['Monthly statement', 0, null, 1],
  ]);
  const due = await paper.store.repositories.listUnreceipted({
    since: await paper.store.repositories.receiptsSince({}),
    limit: 10,
  });
  assert.deepEqual(
    due.map(({ amountMicrocents }) => amountMicrocents),
    [2000n * cent],
  );
});

test('property: whatever is paid, used and returned, each cent that was paid before receipts is sold once at most', async (t) => {
  const amount = fc.bigInt(0n, 1_000n).map((cents) => cents * cent);
  const parties = {
    timeZone: 'UTC',
    seller: settings.seller,
    buyer: { name: 'a', address: [], taxId: null, email: null },
    account: { id: 'a', name: 'a' },
    tax: { ...settings.tax.rate!, treatment: 'standard' as const, note: null },
  };
  t.diagnostic('statements alone, without a database');
  fc.assert(
    fc.property(
      fc.array(fc.record({ old: amount, paid: amount, used: amount }), { minLength: 1, maxLength: 12 }),
      (months) => {
        let [opening, receiptless, oldSum, soldSum] = [0n, 0n, 0n, 0n];
        for (const { old, paid, used } of months) {
          const cost = used < opening + old + paid ? used : opening + old + paid;
          const data = statementData(
            {
              usage: [{ ...line, costMicrocents: cost }],
              movements: [{ kind: 'topup', ofRevenue: false, count: 1, microcents: old + paid }],
              payments: [],
              receiptlessMicrocents: old,
              refunds: [],
            },
            {
              openingMicrocents: opening,
              earlierMicrocents: 0n,
              refundsMicrocents: 0n,
              receiptlessMicrocents: receiptless,
            },
            parties,
          );
          opening = BigInt(data.statement!.closingMicrocents);
          receiptless = receiptlessAfter(data);
          oldSum += old;
          soldSum += BigInt(data.soldMicrocents!);
          assert.ok(receiptless <= opening && soldSum <= oldSum);
          assert.equal(soldSum + receiptless, oldSum, 'none of it is lost');
          assert.equal(data.tax === null, data.soldMicrocents === '0');
        }
      },
    ),
  );
});

const line = {
  modelId: 'small',
  tier: 'default' as const,
  priceMultiple: null,
  plan: null,
  inputPrice: 1n,
  outputPrice: 1n,
  cacheReadPrice: 1n,
  requests: 1,
  promptTokens: 1,
  cachedTokens: 0,
  completionTokens: 1,
};

test('how was paid, in words, whatever a provider sends', () => {
  for (const [type, brand, last4, text] of [
    ['card', 'visa', '4242', 'Visa ending in 4242'],
    ['card', 'amex', '0005', 'American Express ending in 0005'],
    ['card', 'some_new_brand', '1234', 'Card ending in 1234'],
    ['card', null, null, 'Card'],
    ['sepa_debit', null, null, 'SEPA direct debit'],
    ['revolut_pay', null, null, 'Revolut pay'],
    ['<script>', null, '<b>', 'Other'],
    ['card', 'constructor', '12345', 'Card'],
    ['__proto__', '__proto__', null, 'Other'],
  ] as const)
    assert.equal(methodText({ type, brand, last4 }), text);
});

test('the tax of a part is its share, and the parts of a whole are the whole to a cent for each', () => {
  fc.assert(
    fc.property(
      fc.integer({ min: 1, max: 1_000_000 }),
      fc.integer({ min: 0, max: 1000 }),
      fc.integer({ min: 0, max: 100 }),
      (total, ratePerMille, share) => {
        const tax = { name: 'VAT', ratePerMille, cents: taxWithin(total, ratePerMille) };
        const part = Math.floor((total * share) / 100);
        const [one, other] = [taxOfPart(tax, part, total)!, taxOfPart(tax, total - part, total)!];
        assert.ok(Math.abs(one.cents + other.cents - tax.cents) <= 1);
        assert.equal(taxOfPart(tax, total, total)!.cents, tax.cents);
      },
    ),
  );
});
