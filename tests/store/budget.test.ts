/** Which period a time is in, and what its balance is called (money.md, "Budgets"). */
import fc from 'fast-check';
import assert from 'node:assert/strict';
import { test } from 'node:test';

import { budgetPeriods, isOfBudget, periodOf, balanceAt, readBalanceId } from '../../src/store/budget.ts';

const at = (text: string): number => Date.parse(text);

for (const [per, time, start, end] of [
  ['day', '2026-11-22T00:00:00.000Z', '2026-11-22', '2026-11-23'],
  ['day', '2026-11-22T23:59:59.999Z', '2026-11-22', '2026-11-23'],
  ['day', '2028-02-28T12:00:00Z', '2028-02-28', '2028-02-29'],
  ['day', '2028-02-29T12:00:00Z', '2028-02-29', '2028-03-01'],
  ['day', '2027-02-28T23:59:59.999Z', '2027-02-28', '2027-03-01'],
  ['day', '2026-12-31T23:59:59.999Z', '2026-12-31', '2027-01-01'],
  // Sunday and Monday.
  ['week', '2026-11-22T23:59:59.999Z', '2026-11-16', '2026-11-23'],
  ['week', '2026-11-23T00:00:00.000Z', '2026-11-23', '2026-11-30'],
  // Across the leap day, and across the year.
  ['week', '2028-02-29T12:00:00Z', '2028-02-28', '2028-03-06'],
  ['week', '2027-01-01T00:00:00Z', '2026-12-28', '2027-01-04'],
  ['week', '1970-01-04T23:59:59.999Z', '1969-12-29', '1970-01-05'],
  ['week', '1970-01-05T00:00:00.000Z', '1970-01-05', '1970-01-12'],
  ['month', '2026-11-30T23:59:59.999Z', '2026-11-01', '2026-12-01'],
  ['month', '2026-12-01T00:00:00.000Z', '2026-12-01', '2027-01-01'],
  ['month', '2027-02-28T23:59:59.999Z', '2027-02-01', '2027-03-01'],
  ['month', '2028-02-29T23:59:59.999Z', '2028-02-01', '2028-03-01'],
  // A century that is no leap year.
  ['month', '2100-02-28T23:59:59.999Z', '2100-02-01', '2100-03-01'],
] as const) {
  test(`${time} is in the ${per} from ${start} to ${end}`, () => {
    assert.deepEqual(periodOf(per, at(time)), { startsAt: at(start), endsAt: at(end) });
    assert.equal(balanceAt('key_a', per, at(time)).id, `key_a:${per}:${start}`);
  });
}

test('a total has one period, which never ends', () => {
  const balance = balanceAt('acct_a', 'total', Date.now());
  assert.deepEqual(balance, { id: 'acct_a:total', subject: 'acct_a', per: 'total', startsAt: 0, endsAt: null });
});

test('every time is in one period, periods follow one another, and an id says which one it is', () => {
  const time = fc.integer({ min: 0, max: at('2200-01-01') });
  fc.assert(
    fc.property(fc.constantFrom(...budgetPeriods), time, (per, now) => {
      const balance = balanceAt('key_a', per, now);
      const { startsAt, endsAt } = balance;
      assert.ok(startsAt <= now && (endsAt === null || now < endsAt));
      assert.deepEqual(readBalanceId(balance.id), balance);
      assert.ok(isOfBudget(balance.id) && !isOfBudget('acct_a'));
      if (endsAt === null) return;
      assert.deepEqual(balanceAt('key_a', per, startsAt), balance);
      assert.deepEqual(balanceAt('key_a', per, endsAt - 1), balance);
      assert.equal(periodOf(per, endsAt).startsAt, endsAt);
      const start = new Date(startsAt);
      assert.ok(Number.isInteger(startsAt / 86_400_000));
      if (per === 'week') assert.equal(start.getUTCDay(), 1);
      if (per === 'month') assert.equal(start.getUTCDate(), 1);
    }),
    { numRuns: 2_000 },
  );
});
