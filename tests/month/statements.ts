/** Statements and credit notes against what was played: each is right, none overlap, and all together are the ledger. */
import assert from 'node:assert/strict';
import type { InvoiceData, StatementData } from '../../src/billing/invoices/statement.ts';
import type { UsageRow } from '../../src/store/ledger.ts';
import type { Repositories } from '../../src/store/repositories/repositories.ts';
import type { Invoice } from '../../src/store/repositories/invoices.ts';
import { isIn, movedIn, requestsIn, sumOf } from './played.ts';
import type { Moved, Played, Span } from './played.ts';
import type { Asker } from './reports.ts';

const spanOf = ({ periodStart, periodEnd }: Invoice): Span => ({ from: periodStart, to: periodEnd });
const costOf = ({ costMicrocents }: UsageRow): bigint => costMicrocents;
const amountOf = ({ microcents }: Moved): bigint => microcents;

/** Everything that was issued to an account, when all that was played is closed. Resolves with its statements, oldest first. */
export async function compareStatements(
  repositories: Repositories,
  played: Played,
  accountId: string,
): Promise<readonly Invoice[]> {
  const issued = (await repositories.listInvoices({ accountId, limit: 1_000 })).toReversed();
  const statements = issued.filter(({ kind }) => kind === 'statement');
  const all = { from: 0, to: Infinity };
  const [rows, moved] = [requestsIn(played, accountId, all), movedIn(played, accountId, all)];
  let closed = 0;
  let closing = 0n;
  for (const statement of statements) {
    const span = spanOf(statement);
    assert.ok(closed <= span.from && span.from < span.to, 'periods follow each other');
    // What lies between two statements is a month in which nothing moved.
    const between = { from: closed, to: span.from };
    assert.equal(moved.filter(({ at }) => isIn(between, at)).length, 0);
    assert.equal(rows.filter((row) => row.costMicrocents > 0n && isIn(between, row.endedAt)).length, 0);
    const data = (JSON.parse(statement.data) as InvoiceData).statement!;
    assert.equal(BigInt(data.openingMicrocents), closing);
    closing = BigInt(data.closingMicrocents);
    const before = { from: 0, to: span.to };
    const ledger =
      sumOf(movedIn(played, accountId, before), amountOf) - sumOf(requestsIn(played, accountId, before), costOf);
    assert.equal(closing, ledger, `${accountId} ${statement.month}: what the ledger has at its end`);
    assert.equal(statement.closingMicrocents, closing);
    compareOne(statement, data, requestsIn(played, accountId, span), movedIn(played, accountId, span));
    closed = span.to;
  }
  for (const row of rows.filter((one) => one.costMicrocents > 0n))
    assert.ok(statements.some((one) => isIn(spanOf(one), row.endedAt)));
  compareNotes(issued, statements, moved);
  const totalOf = (kind: Invoice['kind']): bigint =>
    sumOf(
      issued.filter((one) => one.kind === kind),
      (one) => one.totalMicrocents,
    );
  const refunds = moved.filter(({ request }) => request !== undefined);
  assert.equal(totalOf('statement') - totalOf('credit_note'), sumOf(rows, costOf) - sumOf(refunds, amountOf));
  assert.equal((await repositories.getAccount({ accountId }))!.balanceMicrocents, closing);
  return statements;
}

function compareOne(statement: Invoice, data: StatementData, rows: readonly UsageRow[], moved: readonly Moved[]): void {
  const where = `${statement.accountId} ${statement.month}`;
  const usage = sumOf(rows, costOf);
  const own = moved.filter(({ request }) => request !== undefined && request.endedAt >= statement.periodStart);
  assert.deepEqual(
    [data.usageMicrocents, data.refundsMicrocents, data.earlierMicrocents],
    [String(usage), String(sumOf(own, amountOf)), '0'],
    where,
  );
  assert.equal(statement.totalMicrocents, usage - sumOf(own, amountOf), where);
  const reported = data.lines.map((line) =>
    [
      line.model,
      line.plan,
      line.tier ?? 'default',
      line.inputPrice,
      line.outputPrice,
      line.cacheReadPrice,
      line.requests,
      line.promptTokens,
      line.cachedTokens,
      line.completionTokens,
      line.microcents,
    ].join(' '),
  );
  assert.deepEqual(reported.sort(), linesOf(rows), where);
  const movements = data.movements.map(({ name, count, microcents }) => `${name} ${count} ${microcents}`);
  assert.deepEqual(movements.sort(), movementsOf(moved), where);
  const payments = moved.filter(({ kind }) => kind === 'topup').sort((a, b) => a.at - b.at);
  assert.deepEqual(
    data.payments.map(({ at, microcents }) => [at, microcents]),
    payments.map(({ at, microcents }) => [at, String(microcents)]),
    where,
  );
}

function linesOf(rows: readonly UsageRow[]): readonly string[] {
  const lines = new Map<string, { counts: number[]; cost: bigint }>();
  for (const row of rows) {
    if (row.costMicrocents === 0n && row.plan === null) continue;
    const name = [
      row.modelId,
      row.plan,
      row.tier ?? 'default',
      row.inputPrice,
      row.outputPrice,
      row.cacheReadPrice,
    ].join(' ');
    const line = lines.get(name) ?? { counts: [0, 0, 0, 0], cost: 0n };
    lines.set(name, line);
    for (const [index, count] of [1, row.promptTokens, row.cachedTokens, row.completionTokens].entries())
      line.counts[index]! += count;
    line.cost += row.costMicrocents;
  }
  return [...lines].map(([name, { counts, cost }]) => [name, ...counts, cost].join(' ')).sort();
}

function movementsOf(moved: readonly Moved[]): readonly string[] {
  const sums = new Map<string, { count: number; sum: bigint }>();
  for (const { kind, ofRevenue, microcents } of moved) {
    const name = {
      topup: 'Payments',
      grant: 'Promotional credit',
      refund: ofRevenue ? 'Refunds' : 'Payments returned',
      adjust: 'Corrections',
      chargeback: 'Payments taken back by the bank',
      expiry: 'Promotional credit that ended',
      usage_closed: 'Usage of closed accounts',
    }[kind];
    const side = `${name} ${microcents > 0n}`;
    const { count, sum } = sums.get(side) ?? { count: 0, sum: 0n };
    sums.set(side, { count: count + 1, sum: sum + microcents });
  }
  return [...sums].map(([side, { count, sum }]) => `${side.replace(/ (true|false)$/, '')} ${count} ${sum}`).sort();
}

/** For each statement and each later period, what was given back in it of what was charged then. */
function compareNotes(issued: readonly Invoice[], statements: readonly Invoice[], moved: readonly Moved[]): void {
  const expected = new Map<string, bigint>();
  for (const { request, at, microcents } of moved) {
    if (request === undefined) continue;
    const charged = statements.find((one) => isIn(spanOf(one), request.endedAt))!;
    const given = statements.find((one) => isIn(spanOf(one), at))!;
    if (charged === given) continue;
    const name = `${charged.id} in ${given.month}`;
    expected.set(name, (expected.get(name) ?? 0n) + microcents);
  }
  const notes = issued.filter(({ kind }) => kind === 'credit_note');
  assert.deepEqual(
    new Map(notes.map(({ corrects, month, totalMicrocents }) => [`${corrects} in ${month}`, totalMicrocents])),
    expected,
  );
}

/** Over all accounts, whichever they are: without a gap, and each to be notified of once. */
export async function compareNumbers(repositories: Repositories): Promise<void> {
  const all = (await repositories.listInvoices({ limit: 10_000 })).toReversed();
  const notices = await repositories.listNotices({ after: '', limit: 10_000 });
  assert.deepEqual(
    notices.map(({ data }) => (JSON.parse(data) as { readonly number: string }).number).sort(),
    all.map(({ number }) => number).sort(),
    'each is to be notified of',
  );
  const sequences = new Map<string, number>();
  for (const { number } of all) {
    const [, series, sequence] = /^(.*-)(\d{6})$/.exec(number)!;
    assert.equal(Number(sequence), (sequences.get(series!) ?? 0) + 1, number);
    sequences.set(series!, Number(sequence));
  }
}

/** The account API tells the same of a statement as its reports do of the period. */
export async function compareWithReports(ask: Asker, statement: Invoice): Promise<void> {
  const found: {
    readonly total_microcents: number;
    readonly total_cents: number;
    readonly statement: { readonly usage_microcents: number; readonly movements: readonly StatementMovement[] };
  } = await ask.json(`/v1/invoices/${statement.id}`);
  const { from, to } = spanOf(statement);
  const costs: {
    readonly data: readonly { readonly results: readonly { line_item: string; amount_microcents: number }[] }[];
  } = await ask.json(`/v1/costs?start_time=${from / 1000}&end_time=${to / 1000}&limit=366`);
  const sumOfItem = (item: string): number =>
    costs.data
      .flatMap(({ results }) => results)
      .filter(({ line_item: of }) => of === item)
      .reduce((sum, { amount_microcents: amount }) => sum + amount, 0);
  assert.equal(found.statement.usage_microcents, sumOfItem('usage'));
  const refunds = found.statement.movements.find(({ name }) => name === 'Refunds')?.microcents ?? 0;
  assert.equal(refunds + sumOfItem('refunds'), 0);
  assert.equal(found.total_microcents, Number(statement.totalMicrocents));
  assert.equal(found.total_cents, Number((statement.totalMicrocents + 500_000n) / 1_000_000n));
}

interface StatementMovement {
  readonly name: string;
  readonly microcents: number;
}
