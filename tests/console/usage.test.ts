/** What the usage page makes of a report: groups, their sums, and what is drawn of them. */
import assert from 'node:assert/strict';
import { test } from 'node:test';

import { pages } from '../../src/account-api/report-request.ts';
import { shownTicks } from '../../web/src/components/axis.ts';
import { seriesMax, topSeries } from '../../web/src/components/series.ts';
import { bucketsMax, spanBefore, spanOf, widthOf } from '../../web/src/pages/usage/filter.ts';
import { modelsOf } from '../../web/src/pages/usage/receipt.ts';
import { firstUsed, groupsOf, sumsOf } from '../../web/src/pages/usage/sums.ts';
import type { Report } from '../../web/src/pages/usage/sums.ts';

type Result = Report['data'][number]['results'][number];

const result = (user: string | null, cost: number, requests = 1): Result => ({
  input_tokens: 10 * requests,
  input_cached_tokens: 4 * requests,
  output_tokens: 3 * requests,
  output_reasoning_tokens: requests,
  num_model_requests: requests,
  cost_microcents: cost,
  uncharged_microcents: 0,
  model: null,
  api_key_id: null,
  user_id: user,
  tag: null,
  service_tier: null,
  ending: null,
});
const report = (...buckets: readonly Result[][]): Report => ({
  object: 'page',
  time_zone: 'UTC',
  has_more: false,
  data: buckets.map((results, at) => ({ object: 'bucket', start_time: at, end_time: at + 1, results })),
});

test('a receipt says which model was asked for, and which one served, if any', () => {
  const failed = (model: string) => ({ model, reason: 'backend_down', skipped: false });
  assert.deepEqual(modelsOf({ model: 'a', fallbacks: null }), { asked: 'a', served: 'a' });
  assert.deepEqual(modelsOf({ model: 'c', fallbacks: [failed('a'), failed('b')] }), { asked: 'a', served: 'c' });
  assert.deepEqual(modelsOf({ model: 'a', fallbacks: [failed('a'), failed('b')] }), { asked: 'a', served: undefined });
});

test('groups have a value for each bucket, add up to the report, and the largest figure is first', () => {
  const found = report([result('anna', 5, 9), result(null, 1)], [], [result('ben', 7), result(null, 2)]);
  const groups = groupsOf(found, 'person', 'cost');
  assert.deepEqual(
    groups.map(({ id, sums, buckets }) => [id, sums.cost, buckets.map(({ cost }) => cost)]),
    [
      ['ben', 7, [0, 0, 7]],
      ['anna', 5, [5, 0, 0]],
      [null, 3, [1, 0, 2]],
    ],
  );
  assert.equal(groupsOf(found, 'person', 'requests')[0]?.id, 'anna');
  assert.deepEqual(sumsOf(found), { requests: 12, input: 120, cached: 48, output: 36, reasoning: 12, cost: 15 });
  assert.deepEqual(groupsOf(report([], []), 'model', 'cost'), []);
});

test('beyond the fifth series there is one of all others', () => {
  const series = [3, 1, 7, 2, 6, 5, 4].map((value) => ({ name: `s${value}`, values: [value, value * 10] }));
  const drawn = topSeries(series, 'others');
  assert.deepEqual(
    drawn.map(({ name }) => name),
    ['s7', 's6', 's5', 's4', 's3', 'others'],
  );
  assert.deepEqual(drawn.at(-1)?.values, [3, 30]);
  assert.equal(topSeries(series.slice(0, 5), 'others').length, 5);
});

test('a chart draws at most a page of the API in six series: 2,196 marks (decision 043)', () => {
  for (const width of ['1h', '1d'] as const) assert.equal(bucketsMax[width], pages[width][1], width);
  const many = Array.from({ length: 20 }, (_, at) => ({ name: `s${at}`, values: [at] }));
  assert.equal(topSeries(many, 'others').length, seriesMax);
  assert.equal(Math.max(...Object.values(bucketsMax)) * seriesMax, 2196);
});

test('up to two days are shown by the hour', () => {
  const day = 86_400;
  assert.equal(widthOf({ start: 100, end: 100 + 2 * day }), '1h');
  assert.equal(widthOf({ start: 100, end: 101 + 2 * day }), '1d');
  assert.equal(widthOf({ start: 100, end: undefined }, 100 + day), '1h');
  assert.equal(widthOf({ start: undefined, end: 100 }), '1d');
});

test('a period is compared with the same part of the one before', () => {
  const at = (text: string): number => Date.parse(text) / 1000;
  const now = at('2026-11-29T15:30:00Z');
  const before = (filter: Parameters<typeof spanOf>[0]) => {
    const found = spanBefore(filter, spanOf(filter, now, 'UTC'), now, 'UTC');
    return found && [found.start, found.end].map((one) => new Date(one! * 1000).toISOString().slice(0, 16));
  };
  assert.deepEqual(before({ since: 'today' }), ['2026-11-28T00:00', '2026-11-28T15:30']);
  assert.deepEqual(before({ since: '7d' }), ['2026-11-16T00:00', '2026-11-22T15:30']);
  assert.deepEqual(before({ since: 'month' }), ['2026-10-01T00:00', '2026-10-29T15:30']);
  const [from, to] = [at('2026-11-10T00:00:00Z'), at('2026-11-12T00:00:00Z')];
  assert.deepEqual(before({ from, to }), ['2026-11-08T00:00', '2026-11-10T00:00']);
  assert.deepEqual(before({ from }), ['2026-10-21T08:30', '2026-11-10T00:00']);
  for (const none of [{ to }, { from: 1 }]) assert.equal(before(none), undefined);
  // A month that is longer than the one before it is compared with all of that one.
  const last = at('2027-03-31T12:00:00Z');
  const march = spanBefore({ since: 'month' }, spanOf({ since: 'month' }, last, 'UTC'), last, 'UTC');
  assert.equal(march!.end, at('2027-03-01T00:00:00Z'));
});

test('a chart begins where the usage does, and has a few bars', () => {
  const sums = (requests: number) => ({ requests, input: 0, cached: 0, output: 0, reasoning: 0, cost: 0 });
  const group = (...requests: readonly number[]) => ({ id: null, sums: sums(1), buckets: requests.map(sums) });
  const long = (at: number) => Array.from({ length: 30 }, (_, index) => (index >= at ? 1 : 0));
  assert.equal(firstUsed([group(...long(12)), group(...long(10))]), 10);
  assert.equal(firstUsed([group(...long(29))]), 23);
  assert.equal(firstUsed([group(0, 0, 1)]), 0);
  assert.equal(firstUsed([]), 0);
});

test('what is counted has whole figures at the axis; of nothing there is only that', () => {
  for (const [values, proposed, shown] of [
    [[1], [0, 0.2, 0.4, 0.6, 0.8, 1], [0, 1]],
    [
      [0, 3, 1],
      [0, 0.5, 1, 1.5, 2, 2.5, 3],
      [0, 1, 2, 3],
    ],
    [[60], [0, 20, 40, 60], [0, 20, 40, 60]],
    [
      [0.25, 1],
      [0, 0.5, 1],
      [0, 0.5, 1],
    ],
    [[0, 0], [0, 0.5, 1], [0]],
    [[], [0, 0.5, 1], [0]],
  ] as const)
    assert.deepEqual(shownTicks(values, proposed), shown, values.join(' '));
});
