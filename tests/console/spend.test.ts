/** The figures of the overview: what a report of days adds up to in the zone of an account. */
import assert from 'node:assert/strict';
import { test } from 'node:test';

import { bucketBounds } from '../../src/platform/calendar/time-zone.ts';
import { reportBuckets, reportStart, spendOf } from '../../web/src/pages/overview/spend.ts';
import type { Costs } from '../../web/src/pages/overview/spend.ts';

type Result = Costs['data'][number]['results'][number];

const charge = (model: string, microcents: number, item: Result['line_item'] = 'usage'): Result => ({
  model,
  api_key_id: null,
  user_id: null,
  tag: null,
  service_tier: null,
  ending: null,
  line_item: item,
  amount: { value: '', currency: 'usd' },
  amount_microcents: microcents,
});

/** As the API divides it; each day costs what `of` says of its beginning. */
function report(zone: string, now: number, of: (start: number) => Result[]): Costs {
  const bounds = bucketBounds(zone, '1d', { from: reportStart(now) * 1000, to: now }, reportBuckets);
  const data = bounds.slice(0, -1).map((start, at) => ({
    object: 'bucket' as const,
    start_time: start / 1000,
    end_time: bounds[at + 1]! / 1000,
    results: of(start),
  }));
  return { object: 'page', time_zone: zone, data, has_more: false };
}

test('the month is whole in every zone, whatever day it is', () => {
  for (const zone of ['UTC', 'Europe/Berlin', 'Pacific/Kiritimati', 'Pacific/Niue', 'Asia/Kolkata'])
    for (const day of [0, 1, 29, 30, 31, 32, 60, 61, 62, 63])
      for (const hour of [0, 11, 23]) {
        const now = Date.UTC(2026, 11, 1, hour, 30) + day * 86_400_000;
        const { today, month } = spendOf(report(zone, now, () => [charge('a', 1)]));
        const date = new Intl.DateTimeFormat('en-US', { day: 'numeric', timeZone: zone }).format(now);
        assert.equal(today, 1);
        assert.equal(month, Number(date), `${zone}, ${new Date(now).toISOString()}`);
      }
});

test('refunds lessen the sums and are no bars; models beyond the fifth are one', () => {
  const now = Date.UTC(2026, 10, 24, 12);
  const today = Date.UTC(2026, 10, 24);
  const models = ['a', 'b', 'c', 'd', 'e', 'f', 'g'].map((name, at) => charge(name, 100 - at));
  const { series, ...spend } = spendOf(
    report('UTC', now, (start) => (start === today ? [...models, charge('a', -50, 'refunds')] : [])),
    'others',
  );
  assert.equal(spend.today, 679 - 50);
  assert.equal(spend.month, spend.today);
  assert.equal(spend.days.length, 30);
  assert.deepEqual(
    series.map(({ name, values }) => [name, values.at(-1), values.length]),
    [
      ['a', 100, 30],
      ['b', 99, 30],
      ['c', 98, 30],
      ['d', 97, 30],
      ['e', 96, 30],
      ['others', 95 + 94, 30],
    ],
  );
});
