/** Statements and credit notes: what they say is what the ledger says, each is issued once, and their numbers have no gaps. */
import assert from 'node:assert/strict';
import { test } from 'node:test';

import { paperOf } from '../../../src/billing/invoices/invoice-document.ts';
import fc from 'fast-check';

import { monthOf, monthText } from '../../../src/platform/calendar/months.ts';
import type { InvoiceData } from '../../../src/billing/invoices/statement.ts';
import type { UsageRow } from '../../../src/store/ledger.ts';
import { openConnection } from '../../../src/store/sqlite/connection.ts';
import { account, dayMs, issuedTo, moved, openPaper, refunded, spent } from './invoicing.ts';

const september = Date.UTC(2026, 8, 1);
const october = Date.UTC(2026, 9, 1);
const november = Date.UTC(2026, 10, 1);
const hourMs = 3_600_000;

test('a month is closed an hour after its end, once, with what the ledger has of it', async (t) => {
  const paper = await openPaper(t, october);
  await account(paper, 'acct_a', october);
  await moved(paper, 'acct_a', 10_000_000_000n, october + 1);
  await spent(paper, 'acct_a', 1_234_500_001n, october + dayMs, { modelId: 'small' });
  const batch = { modelId: 'large', inputPrice: 9n, tier: 'batch', priceMultiple: 3_333 } as const;
  await spent(paper, 'acct_a', 499_999n, october + 2 * dayMs, batch);
  await spent(paper, 'acct_a', 1n, november - 1, { modelId: 'large', inputPrice: 9n });
  await spent(paper, 'acct_a', 5n, november, { modelId: 'large' });

  paper.clock.now = november + hourMs - 1;
  while (await paper.invoices.issueDue());
  assert.deepEqual(await issuedTo(paper, 'acct_a'), []);

  paper.clock.now = november + hourMs;
  while (await paper.invoices.issueDue());
  while (await paper.invoices.issueDue());
  const [invoice, ...others] = await issuedTo(paper, 'acct_a');
  assert.deepEqual(others, []);
  assert.equal(invoice!.number, 'TH-2026-000001');
  assert.equal(invoice!.month, '2026-10');
  assert.equal(invoice!.total, 1_235_000_001n);
  const { statement, totalCents, tax } = invoice!.data;
  assert.deepEqual(
    statement!.lines.map(({ model, tier, priceMultiple, inputPrice, microcents }) => [
      model,
      tier,
      priceMultiple,
      inputPrice,
      microcents,
    ]),
    [
      ['small', undefined, undefined, '1000000', '1234500001'],
      ['large', 'batch', 3_333, '9', '499999'],
      ['large', undefined, undefined, '9', '1'],
    ],
  );
  const [kept] = await paper.store.repositories.listInvoices({ accountId: 'acct_a', limit: 1 });
  assert.match(JSON.stringify(paperOf(kept!)), /large \(batch\u00a0×\u00a00\.3333\)/);
  assert.equal(statement!.openingMicrocents, '0');
  assert.equal(statement!.closingMicrocents, String(10_000_000_000n - 1_235_000_001n));
  assert.deepEqual(statement!.payments, [
    { at: october + 1, microcents: '10000000000', reference: null, receipt: null, method: null },
  ]);
  assert.equal(totalCents, 1_235);
  assert.deepEqual(tax, { name: 'VAT', ratePerMille: 190, treatment: 'standard', note: null, cents: 197 });
});

test('the lines of a model are together, the largest model and its largest line first', async (t) => {
  const paper = await openPaper(t, september);
  await account(paper, 'acct_a', september);
  await moved(paper, 'acct_a', 1_000n, september);
  const lines = [
    ['small', 'flex', 20n],
    ['large', 'priority', 40n],
    ['small', undefined, 60n],
    ['large', undefined, 50n],
  ] as const;
  for (const [modelId, tier, amount] of lines)
    await spent(paper, 'acct_a', amount, september + dayMs, { modelId, ...(tier !== undefined && { tier }) });
  paper.clock.now = october + dayMs;
  while (await paper.invoices.issueDue());
  const [invoice] = await issuedTo(paper, 'acct_a');
  assert.deepEqual(
    invoice!.data.statement!.lines.map(({ model, tier, microcents }) => [model, tier, BigInt(microcents)]),
    [lines[3], lines[1], lines[2], lines[0]],
  );
});

test('a refund in the same month lowers the statement; a later one is a credit note for it', async (t) => {
  const paper = await openPaper(t, september);
  await account(paper, 'acct_a', september);
  await moved(paper, 'acct_a', 100_000_000n, september);
  const rows: UsageRow[] = [];
  for (let day = 0; day < 4; day++) rows.push(await spent(paper, 'acct_a', 10_000_000n, september + day * dayMs));
  await refunded(paper, rows[0]!, 3_000_000n, september + 5 * dayMs);
  const late = await spent(paper, 'acct_a', 20_000_000n, october + dayMs);
  await refunded(paper, rows[1]!, 10_000_000n, october + 2 * dayMs);
  await refunded(paper, rows[2]!, 1n, october + 3 * dayMs);
  await refunded(paper, late, 5n, october + 4 * dayMs);
  paper.clock.now = november + dayMs;
  while (await paper.invoices.issueDue());

  const [first, second, note, ...others] = await issuedTo(paper, 'acct_a');
  assert.deepEqual(others, []);
  assert.deepEqual([first!.kind, first!.total], ['statement', 37_000_000n]);
  assert.deepEqual([second!.kind, second!.total], ['statement', 19_999_995n]);
  assert.deepEqual([note!.kind, note!.total, note!.corrects], ['credit_note', 10_000_001n, first!.id]);
  assert.deepEqual(
    note!.data.creditNote!.refunds.map(({ request, microcents }) => [request, microcents]),
    [
      [rows[1]!.publicId, '10000000'],
      [rows[2]!.publicId, '1'],
    ],
  );
  assert.equal(note!.data.creditNote!.corrects.number, first!.number);
});

test('an account in which nothing moved gets nothing, and its next statement goes on where the last one ended', async (t) => {
  const paper = await openPaper(t, september);
  await account(paper, 'acct_a', september - 40 * dayMs);
  await moved(paper, 'acct_a', 50n, september - 35 * dayMs);
  await spent(paper, 'acct_a', 7n, october + dayMs);
  paper.clock.now = november + dayMs;
  while (await paper.invoices.issueDue());
  const found = await issuedTo(paper, 'acct_a');
  assert.deepEqual(
    found.map(({ month }) => month),
    ['2026-07', '2026-10'],
  );
  assert.equal(found[1]!.data.statement!.openingMicrocents, '50');
});

test('what is recorded after the month was closed is on the next statement, and said to be so', async (t) => {
  const paper = await openPaper(t, september);
  await account(paper, 'acct_a', september);
  await moved(paper, 'acct_a', 100n, september + 1);
  paper.clock.now = october + dayMs;
  while (await paper.invoices.issueDue());
  await spent(paper, 'acct_a', 30n, october - 1);
  await spent(paper, 'acct_a', 1n, october + 1);
  paper.clock.now = november + dayMs;
  while (await paper.invoices.issueDue());
  const { statement } = (await issuedTo(paper, 'acct_a'))[1]!.data;
  assert.deepEqual(
    [statement!.openingMicrocents, statement!.earlierMicrocents, statement!.closingMicrocents],
    ['100', '-30', '69'],
  );
});

test('two that close the same month issue one statement, and no number is lost', async (t) => {
  const paper = await openPaper(t, september);
  for (const id of ['acct_a', 'acct_b', 'acct_c']) {
    await account(paper, id, september);
    await moved(paper, id, 100n, september + 1);
  }
  paper.clock.now = october + dayMs;
  const close = (accountId: string, at: number) =>
    paper.store.repositories.closePeriod({
      accountId,
      closedUntil: null,
      until: october,
      year: 2026,
      prefix: 'TH-',
      at,
      invoices: [
        {
          id: `inv_${accountId}${at}`,
          noticeId: `evt_${accountId}${at}`,
          kind: 'statement',
          month: '2026-09',
          corrects: '',
          periodStart: september,
          periodEnd: october,
          totalMicrocents: 0n,
          closingMicrocents: 0n,
          data: '{}',
        },
      ],
    });
  const outcomes = await Promise.all(
    ['acct_a', 'acct_b', 'acct_a', 'acct_c', 'acct_b'].map((id, index) => close(id, index)),
  );
  assert.deepEqual(outcomes, [true, true, false, true, false]);
  const all = await paper.store.repositories.listInvoices({ limit: 10 });
  assert.deepEqual(
    all.map(({ number }) => number),
    ['TH-2026-000003', 'TH-2026-000002', 'TH-2026-000001'],
  );
});

test('an invoice refuses to be changed, deleted or replaced', async (t) => {
  const paper = await openPaper(t, september);
  await account(paper, 'acct_a', september);
  await moved(paper, 'acct_a', 100n, september + 1);
  paper.clock.now = october + dayMs;
  while (await paper.invoices.issueDue());
  const connection = openConnection(paper.file);
  t.after(() => connection.close());
  for (const statement of [
    `update invoice set data = '{}'`,
    'delete from invoice',
    'insert or replace into invoice select * from invoice',
  ])
    assert.throws(() => connection.exec(statement), /invoice is immutable/, statement);
});

const total = (amounts: readonly bigint[]): bigint => amounts.reduce((sum, amount) => sum + amount, 0n);

test('property: statements and credit notes add up to the ledger, whatever happens and wherever the account is', async (t) => {
  const paper = await openPaper(t, september);
  const begin = Date.UTC(2026, 0, 1);
  const months = 6;
  const end = Date.UTC(2026, months, 1);
  const at = fc.integer({ min: begin, max: end - 1 });
  const zone = fc.constantFrom('UTC', 'Europe/Berlin', 'Pacific/Auckland', 'Pacific/Honolulu', 'Asia/Kathmandu');
  let made = 0;
  await fc.assert(
    fc.asyncProperty(
      fc.array(fc.record({ at, cost: fc.bigInt(1n, 10n ** 12n), model: fc.nat(2), price: fc.nat(2) }), {
        minLength: 1,
        maxLength: 24,
      }),
      fc.array(fc.record({ of: fc.nat(23), later: fc.integer({ min: 0, max: 100 * dayMs }), part: fc.nat(100) }), {
        maxLength: 8,
      }),
      fc.array(fc.record({ at, amount: fc.bigInt(1n, 10n ** 10n) }), { maxLength: 4 }),
      zone,
      zone,
      fc.nat(months - 2),
      async (requests, refunds, payments, zoneBefore, zoneAfter, changeAfter) => {
        const id = `acct_${made++}`;
        await account(paper, id, begin);
        await moved(paper, id, 10n ** 14n, begin);
        for (const payment of payments) await moved(paper, id, payment.amount, payment.at);
        const rows = await Promise.all(
          requests.map(({ at: endedAt, cost, model, price }) =>
            spent(paper, id, cost, endedAt, { modelId: `model-${model}`, inputPrice: BigInt(price) }),
          ),
        );
        const back: { readonly at: number; readonly amount: bigint }[] = [];
        for (const [index, refund] of refunds.entries()) {
          if (refunds.findIndex((other) => other.of % rows.length === refund.of % rows.length) < index) continue;
          const row = rows[refund.of % rows.length]!;
          const amount = (row.costMicrocents * BigInt(refund.part)) / 100n;
          const refundAt = Math.min(row.endedAt + refund.later, end - 1);
          if (amount === 0n) continue;
          await refunded(paper, row, amount, refundAt);
          back.push({ at: refundAt, amount });
        }
        paper.zones.set(id, zoneBefore);
        // A little into a month, so that the change of the zone lies between two closings.
        paper.clock.now = Date.UTC(2026, changeAfter + 1, 3);
        await paper.invoices.issueFor(id);
        paper.zones.set(id, zoneAfter);
        paper.clock.now = end + 3 * dayMs;
        await paper.invoices.issueFor(id);

        const issued = await issuedTo(paper, id);
        const statements = issued.filter(({ kind }) => kind === 'statement');
        let closedAt = 0;
        for (const { data, periodStart, periodEnd, month, total: charged } of statements) {
          assert.ok(periodStart >= closedAt && periodEnd > periodStart, 'periods do not overlap');
          closedAt = periodEnd;
          const { statement, timeZone } = data as InvoiceData;
          assert.equal(month, monthText(monthOf(periodEnd - 1, timeZone)));
          const cost = (from: number, to: number): bigint =>
            rows
              .filter(({ endedAt }) => from <= endedAt && endedAt < to)
              .reduce((sum, { costMicrocents }) => sum + costMicrocents, 0n);
          const lines = statement!.lines.reduce((sum, { microcents }) => sum + BigInt(microcents), 0n);
          assert.equal(lines, cost(periodStart, periodEnd), 'its lines are the usage of the period');
          assert.equal(charged, lines - BigInt(statement!.refundsMicrocents));
          assert.equal(statement!.earlierMicrocents, '0', 'nothing falls between two periods');
          const transferred = await paper.store.repositories.transferredBefore({ accountId: id, before: periodEnd });
          assert.equal(BigInt(statement!.closingMicrocents), transferred - cost(0, periodEnd));
        }
        const [open] = await paper.store.repositories.listOpenPeriods({
          accountId: id,
          closedBefore: end * 2,
          limit: 1,
        });
        const until = open!.closedUntil!;
        assert.ok(until >= end - dayMs, 'closed until the last month that is over');
        for (const { endedAt } of rows) {
          const found = statements.filter(
            ({ periodStart, periodEnd }) => periodStart <= endedAt && endedAt < periodEnd,
          );
          assert.equal(found.length, endedAt < until ? 1 : 0, 'each request is on one statement');
        }
        assert.equal(new Set(statements.map(({ month }) => month)).size, statements.length);
        const of = (kind: string): bigint => total(issued.filter((one) => one.kind === kind).map((one) => one.total));
        const charged = total(rows.filter(({ endedAt }) => endedAt < until).map((row) => row.costMicrocents));
        const given = total(back.filter((refund) => refund.at < until).map(({ amount }) => amount));
        assert.equal(of('statement') - of('credit_note'), charged - given);
      },
    ),
    { numRuns: 25 },
  );
  const all = await paper.store.repositories.listInvoices({ limit: 10_000 });
  assert.deepEqual(
    all.map(({ number }) => number).sort(),
    all.map((_, index) => `TH-2026-${String(index + 1).padStart(6, '0')}`),
  );
});
