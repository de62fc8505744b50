/** A month of one account, through the ledger: everything that tells its total says the same, to the microcent. */
import assert from 'node:assert/strict';
import { printExport } from '../../src/account-api/export.ts';
import { exportedGenerations, generationColumns, generationTotals } from '../../src/account-api/exported-generation.ts';
import { houseAccounts } from '../../src/store/ledger.ts';
import type { Ledger, UsageRow } from '../../src/store/ledger.ts';
import type { Desk } from '../../src/store/operations.ts';
import { bucketBounds, startOfZoneMonth } from '../../src/store/time-zone.ts';
import { uuid } from '../store/fixture.ts';
import { keys } from './sums.ts';
import { randomOf, randomRow } from './ledger-of-rows.ts';

const dayMs = 86_400_000;
export const monthAccount = 'acct_month';
export const monthZones = ['UTC', 'Europe/Berlin', 'Asia/Kathmandu'] as const;

export interface Refunded {
  readonly requestId: Uint8Array;
  readonly amount: bigint;
  readonly at: number;
}

export interface Month {
  readonly rows: readonly UsageRow[];
  readonly refunds: readonly Refunded[];
}

/** Rows of March 2026 and the days around it, with a change of prices in it. */
export function monthOf(seed: number, count: number): Month {
  const random = randomOf(seed);
  const span = { accountId: monthAccount, from: Date.UTC(2026, 1, 26), to: Date.UTC(2026, 3, 4) };
  const rows = Array.from({ length: count }, () => randomRow(random, span, keys)).sort((a, b) => a.endedAt - b.endedAt);
  const refunds = rows
    .filter((row) => row.costMicrocents > 1n && random() < 0.02)
    .map(({ requestId, costMicrocents, endedAt }, index) => ({
      requestId,
      amount: index % 2 === 0 ? costMicrocents : costMicrocents / 2n,
      at: endedAt + Math.floor(random() * 5 * dayMs),
    }));
  return { rows, refunds };
}

const atOnce = 500;

/** Settles and refunds all of it. The account has enough, and it is held. */
export async function playMonth(ledger: Ledger, { rows, refunds }: Month): Promise<void> {
  for (let at = 0; at < rows.length; at += atOnce) {
    const outcomes = await Promise.all(rows.slice(at, at + atOnce).map((row) => ledger.settle(row)));
    assert.ok(outcomes.every((outcome) => outcome === 'billed'));
  }
  for (const { requestId, amount, at } of refunds)
    await ledger.transfer({
      id: uuid(),
      debitAccount: houseAccounts.revenue,
      creditAccount: monthAccount,
      amountMicrocents: amount,
      kind: 'refund',
      idempotencyKey: `refund:${Buffer.from(requestId).toString('hex')}`,
      reference: null,
      by: 'test',
      at,
    });
}

/** What the month is in a zone, by adding rows up. */
export function expectedIn({ rows, refunds }: Month, timeZone: string) {
  const [from, to] = [startOfZoneMonth(timeZone, 2026, 3), startOfZoneMonth(timeZone, 2026, 4)];
  const inMonth = rows.filter(({ endedAt }) => from <= endedAt && endedAt < to);
  const ids = new Set(inMonth.map(({ requestId }) => Buffer.from(requestId).toString('hex')));
  const sum = (amounts: readonly bigint[]): bigint => amounts.reduce((total, amount) => total + amount, 0n);
  return {
    from,
    to,
    requests: inMonth.length,
    cost: sum(inMonth.map(({ costMicrocents }) => costMicrocents)),
    prompt: sum(inMonth.map(({ promptTokens }) => BigInt(promptTokens))),
    refundedInMonth: sum(refunds.filter(({ at }) => from <= at && at < to).map(({ amount }) => amount)),
    /** Of its requests, whenever. */
    refundedOfMonth: sum(
      refunds.filter(({ requestId }) => ids.has(Buffer.from(requestId).toString('hex'))).map(({ amount }) => amount),
    ),
  };
}

/** Asks all that tells the total: in each zone, with nothing added up, with hours, and with days; with a change of zone between. */
export async function compareMonth(desk: Desk, month: Month): Promise<void> {
  for (const stage of ['rows', 'hours', 'days']) {
    if (stage === 'hours') await desk.recomputeUsageHours({ now: month.rows.at(-1)!.endedAt + dayMs });
    for (const timeZone of monthZones) {
      await desk.editAccount({ accountId: monthAccount, timeZone, at: Date.now(), changeId: uuid() });
      if (stage === 'days') while ((await desk.recomputeUsageDays({})).isMore);
      const expected = expectedIn(month, timeZone);
      const { from, to } = expected;
      const where = `${stage}, ${timeZone}`;
      const bounds = bucketBounds(timeZone, '1d', { from, to }, 366);
      assert.equal(bounds.length, 32, where);
      const common = { accountId: monthAccount, timeZone, bounds };
      const report = await desk.reportUsage({ ...common, by: ['model', 'key'] });
      assert.equal(
        sumOf(report, ({ cost }) => cost),
        expected.cost,
        where,
      );
      assert.equal(
        sumOf(report, ({ requests }) => requests),
        BigInt(expected.requests),
        where,
      );
      assert.equal(
        sumOf(report, ({ prompt_tokens: prompt }) => prompt),
        expected.prompt,
        where,
      );
      const refunds = await desk.reportRefunds({ ...common, by: ['model'] });
      assert.equal(
        sumOf(refunds, ({ amountMicrocents }) => amountMicrocents),
        expected.refundedInMonth,
        where,
      );
      assert.equal(await desk.spendSince({ accountId: monthAccount, from, to, by: 'account' }), expected.cost, where);
      const totals = await desk.monthTotals({ accountId: monthAccount, year: 2026, month: 3 });
      assert.deepEqual(
        [totals.timeZone, totals.requests, totals.costMicrocents, totals.refundMicrocents],
        [timeZone, expected.requests, expected.cost, expected.refundedInMonth],
        where,
      );
      assert.equal(
        sumOf(totals.models, ({ costMicrocents }) => costMicrocents),
        expected.cost,
        where,
      );
    }
  }
  for (const timeZone of monthZones) {
    const expected = expectedIn(month, timeZone);
    const lines = (await exported(desk, expected, timeZone)).split('\r\n');
    const [header, ...rest] = lines.slice(0, -1).map((line) => line.split(','));
    const columnOf = (name: (typeof generationColumns)[number]): number => header!.indexOf(name);
    const footer = rest.at(-1)!;
    assert.equal(rest.length - 1, expected.requests);
    for (const [name, sum] of [
      ['cost_microcents', expected.cost],
      ['tokens_prompt', expected.prompt],
      ['refunded_microcents', expected.refundedOfMonth],
    ] as const) {
      assert.equal(BigInt(footer[columnOf(name)]!), sum, name);
      assert.equal(
        sumOf(rest.slice(0, -1), (cells) => BigInt(cells[columnOf(name)]!)),
        sum,
        name,
      );
    }
  }
}

const sumOf = <Row>(rows: readonly Row[], of: (row: Row) => bigint): bigint =>
  rows.reduce((sum, row) => sum + of(row), 0n);

async function exported(desk: Desk, span: { readonly from: number; readonly to: number }, timeZone: string) {
  const filter = { accountId: monthAccount, from: span.from, to: span.to };
  const pages = exportedGenerations(desk, filter, timeZone);
  let text = '';
  for await (const piece of printExport('csv', generationColumns, generationTotals, pages)) text += piece;
  return text;
}
